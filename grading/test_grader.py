"""The grader without compiling anything: what it takes, how points come about, what it writes."""

import argparse
import concurrent.futures
import contextlib
import csv
import html
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
import unittest
import warnings
import zipfile
from unittest import mock

GRADING = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(GRADING))
import exploits  # noqa: E402
from grader import (  # noqa: E402
    changed, classroom, course, header_text, memory_group, objects, programs, report, run, sandbox, schema,
    score, session, source_text, submission, throughput, whole_file,
)
from grader import grade as grading  # noqa: E402
from grader.grade import Grade, most_extension_points, most_points  # noqa: E402
from grader.progress import Progress  # noqa: E402
from grader.run import Result  # noqa: E402

LISTED = "task2_flat_parameter/flat_parameter.cpp"
EXTENSION = "extensions/task4_backward_hooks/accumulate.cpp"


class Submissions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def put(self, name, text="// mine\n"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def zipped(self, *names):
        path = self.folder / "handed_in.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "// mine\n")
        return path

    def refused(self, path):
        with self.assertRaises(course.Refused) as caught:
            submission.read(path)
        return str(caught.exception)

    def test_takes_the_listed_files_and_nothing_else(self):
        self.put(f"tasks/{LISTED}")
        self.put("tests/task2_flat_parameter/test_flat_parameter.cpp")
        self.put("tasks/task2_flat_parameter/CMakeLists.txt")
        read = submission.read(self.folder)
        self.assertEqual(read.files[LISTED], b"// mine\n")
        self.assertEqual(set(read.files), set(course.blank()))
        self.assertEqual(len(read.missing), len(course.blank()) - 1)

    def test_finds_them_under_another_folder_and_in_a_zip(self):
        self.put(f"group7/fsdp-course/tasks/{LISTED}")
        self.assertEqual(submission.read(self.folder).files[LISTED], b"// mine\n")
        archive = self.zipped(f"x/tasks/{LISTED}", f"__MACOSX/x/tasks/{LISTED}", "../../evil.cpp")
        self.assertEqual(submission.read(archive).files[LISTED], b"// mine\n")

    def test_finds_them_in_a_zip_whatever_tool_made_it(self):
        for name in (f"./tasks/{LISTED}", f".//x/./tasks/{LISTED}", "tasks\\" + LISTED.replace("/", "\\"),
                     ".\\x\\tasks/" + LISTED.replace("/", "\\"), f"/x/tasks/{LISTED}", "C:\\" + LISTED.replace("/",
                     "\\")):
            with self.subTest(name=name):
                self.assertEqual(submission.read(self.zipped("./", name)).files[LISTED], b"// mine\n")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["handed_in.zip"])

    def test_what_leads_out_of_a_zip_or_is_hidden_is_not_taken_from_it_in_any_spelling(self):
        for before in ("../", "..\\", "./../", ".\\..\\", "x\\..\\..\\", "/../", "C:\\..\\", ".git\\", "./.git/",
                       "__MACOSX\\", ".\\__MACOSX\\"):
            with self.subTest(before=before):
                self.assertIn("no file of tasks/", self.refused(self.zipped(f"{before}tasks/{LISTED}")))
        for other in (f"./tasks/{LISTED}", "tasks\\" + LISTED.replace("/", "\\"), f"/tasks/{LISTED}"):
            self.assertIn("is in it twice", self.refused(self.zipped(f"tasks/{LISTED}", other)), other)

    def test_a_member_of_which_no_part_can_be_unpacked_is_refused_before_it_fills_the_memory(self):
        for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            path = self.folder / f"{method}.zip"
            with zipfile.ZipFile(path, "w", method) as archive:
                archive.writestr(f"tasks/{LISTED}", b"\0" * 50_000_000)
            tracemalloc.start()
            self.assertIn("is compressed in an unusual way", self.refused(path))
            self.assertLess(tracemalloc.get_traced_memory()[1], 1_000_000)
            tracemalloc.stop()

    def test_sources_that_the_course_does_not_have_are_told(self):
        own = "task2_flat_parameter/recorder.h"
        for name in (LISTED, own, "task2_flat_parameter/notes.txt", "elsewhere/mine.cpp", EXTENSION):
            self.put(f"tasks/{name}")
        self.put("tests/task2_flat_parameter/test_layout.cpp")
        for read in (submission.read(self.folder), submission.read(self.zipped(f"tasks/{LISTED}", f"tasks/{own}"))):
            self.assertEqual(read.ignored, (own,))
            grade = Grade("ada", ignored=read.ignored)
            self.assertIn(f"Not compiled, as the course has no files of these names: {own}.", report.student_page(grade))
        self.assertEqual(submission.read(self.zipped(f"tasks/{LISTED}", EXTENSION)).ignored, ())

    def test_a_zip_of_everything_is_refused_unread(self):
        path = self.zipped(f"tasks/{LISTED}")
        os.truncate(path, submission.MOST_ZIPPED + 1)
        self.assertIn("hand in a zip of the folder tasks/ alone", self.refused(path))

    def test_takes_the_files_of_extensions_from_their_own_folder_alone(self):
        self.put(f"group7/tasks/{EXTENSION}")
        self.put(f"group7/tasks/{EXTENSION.removeprefix('extensions/')}", "// elsewhere\n")
        read = submission.read(self.folder)
        self.assertEqual(read.files[EXTENSION], b"// mine\n")
        self.assertEqual(set(read.files), set(course.blank()))

    def test_without_extensions_these_are_as_at_first(self):
        self.put(f"tasks/{LISTED}")
        read = submission.read(self.folder)
        self.assertIn(EXTENSION, read.missing)
        self.assertEqual(read.files[EXTENSION], course.blank()[EXTENSION])

    def test_an_extension_that_is_missing_gives_way_to_the_same_function_in_a_file_of_the_task(self):
        self.put(f"tasks/{LISTED}")
        missing = "extensions/task2_flat_parameter/mixed_precision.cpp"
        text = submission.read(self.folder).files[missing].decode()
        self.assertIn("\n[[gnu::weak]] void FlatParameter::set_mixed_precision(", text)
        self.assertEqual(text.replace("[[gnu::weak]] ", "").encode(), course.blank()[missing])
        for task in course.tasks():  # every function of theirs
            self.put(f"tasks/{task.files[0]}")
        files = submission.read(self.folder).files
        for name, text in files.items():
            if name.startswith("extensions/") and name.endswith(".cpp"):
                self.assertEqual(text.count(b"[[gnu::weak]] "), text.count(b"todo("), name)
        self.put(f"tasks/{missing}")
        self.assertEqual(submission.read(self.folder).files[missing], b"// mine\n")

    def test_what_is_no_file_of_the_course_is_not_built(self):
        of_an_earlier_course = self.put("graded/task5_sharded_optimizer/locate.cpp")
        with mock.patch.object(programs, "GRADED", self.folder / "graded"):
            programs.put_in({EXTENSION: b"// mine\n"})
            programs.put_in({LISTED: b"// mine\n"})
        self.assertFalse(of_an_earlier_course.exists())
        for name in (EXTENSION, LISTED):
            self.assertEqual((self.folder / "graded" / name).read_bytes(), b"// mine\n")

    def test_refuses_two_of_one_file(self):
        self.put(f"tasks/{LISTED}")
        self.put(f"old/tasks/{LISTED}")
        self.assertIn("is in it twice", self.refused(self.folder))

    def test_refuses_what_is_no_file_of_its_own(self):
        path = self.folder / "tasks" / LISTED
        path.parent.mkdir(parents=True)
        path.symlink_to("/etc/passwd")
        self.assertIn("not a regular file", self.refused(self.folder))

    def test_refuses_what_is_too_large(self):
        self.put(f"tasks/{LISTED}", "x" * (submission.MOST_BYTES + 1))
        self.assertIn("more than", self.refused(self.folder))

    def test_refuses_what_holds_nothing(self):
        self.assertIn("no file of tasks/", self.refused(self.folder))
        self.assertIn("can't be read as a zip", self.refused(self.put("broken.zip")))
        self.assertIn("neither a folder nor a zip", self.refused(self.folder / "none"))

    def test_a_program_is_known_by_the_files_that_are_in_it(self):
        self.put(f"tasks/{LISTED}")
        one, blank = submission.read(self.folder), submission.Submission(course.blank(), ())
        keys = {p: (p.key(one), p.key(blank)) for p in programs.all_programs()}
        for program, (mine, first) in keys.items():
            holds_it = 2 in [task.number for task in program.tasks]
            self.assertEqual(mine != first, holds_it, program.target)

    def test_training_is_known_by_all_tasks_and_by_the_reference_it_is_compared_with(self):
        blank, program = submission.Submission(course.blank(), ()), programs.training_program()
        for name in course.blank():
            changed = submission.Submission({**blank.files, name: b"// mine\n"}, ())
            self.assertNotEqual(program.key(changed), program.key(blank), name)
        tests = next(p for p in programs.all_programs() if p.target == "graded_task7_tests")
        self.assertEqual(program.tasks, tests.tasks)
        self.assertNotEqual(program.key(blank), tests.key(blank))
        self.assertIn("programs", program.sources)
        self.assertIn("solutions", program.sources)

    def test_a_program_over_solutions_is_known_by_them_and_by_those_of_their_extensions(self):
        program = next(p for p in programs.all_programs() if p.target == "graded_on_3_task4_tests")
        found = [folder for folder in program.sources if folder.startswith("solutions/")]
        expected = [f"solutions/{folder}" for task in course.tasks()[:3] for folder in task.folders]
        self.assertEqual(found, expected)
        programs.code(program)  # also if a task has no extensions

    def test_the_programs_of_equal_submissions_do_not_end_with_one_of_them(self):
        binary = self.put("bin/tests")
        with (mock.patch.object(programs, "COPIES", self.folder / "programs"),
              mock.patch.object(programs, "LOCKS", self.folder / "locks")):
            left = self.put("programs/0/of_a_grader_that_was_killed")
            with programs.new_job() as first:
                kept = programs.keep_program(binary, first)
                self.assertFalse(binary.exists())  # moved: a copy might be held open by another thread
                with programs.new_job() as second:
                    other = programs.keep_program(self.put("bin/tests"), second)
                self.assertFalse(other.exists() or left.exists())
                self.assertTrue(kept.exists())
            self.assertFalse(kept.exists())


    def test_graders_in_two_folders_of_a_machine_have_different_users(self):
        with mock.patch.object(programs, "LOCKS", self.folder / "locks"):
            with mock.patch.object(programs, "COPIES", self.folder / "a"), programs.new_job() as first:
                with mock.patch.object(programs, "COPIES", self.folder / "b"), programs.new_job() as second:
                    self.assertFalse({*sandbox.users(first)} & {*sandbox.users(second)})


class HostileSubmissions(unittest.TestCase):
    """As many as FSDP_HOSTILE says. Each is read or refused with a text that can be printed; nothing is
    written."""

    COUNT = int(os.environ.get("FSDP_HOSTILE", "200"))
    PARTS = ["tasks", "..", ".", "", "x" * 300, "m\udcfcll", "\x1b]0;title\x07", "a\nb", "/", "C:", "ä",
             "__MACOSX", ".git", "..\\", "C:\\x", *LISTED.split("/")]

    def name(self, dice):
        kind = dice.random()
        if kind < 0.3:
            return f"tasks/{LISTED}"
        if kind < 0.6:
            return "/".join(dice.choices(self.PARTS, k=dice.randrange(1, 6))) + f"/{LISTED}"
        return "/".join(dice.choices(self.PARTS, k=dice.randrange(1, 40)))

    def zip_of(self, dice, path):
        raw = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(raw, "w") as archive:
            warnings.simplefilter("ignore")  # two members of one name
            for _ in range(dice.randrange(4)):
                info = zipfile.ZipInfo(self.name(dice).encode(errors="replace").decode() or "x")
                info.external_attr = dice.choice([0o120777, 0o100644, 0o10644, 0o40755]) << 16
                info.compress_type = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
                archive.writestr(info, dice.randbytes(dice.randrange(2000)))
        data = bytearray(raw.getvalue())
        for _ in range(dice.choice([0, 1, 3, 40])):  # damaged: sizes, offsets, methods, names, content
            data[dice.randrange(len(data))] = dice.randrange(256)
        if dice.random() < 0.2:
            del data[dice.randrange(len(data)):]
        path.write_bytes(data)

    def folder_of(self, dice, path):
        path.mkdir()
        for _ in range(dice.randrange(1, 5)):
            parts = [part for part in self.name(dice).split("/") if part not in ("", ".", "..")]
            file = path.joinpath(*(part[:200] for part in parts))
            with contextlib.suppress(OSError):
                file.parent.mkdir(parents=True, exist_ok=True)
                make = dice.choice([lambda: file.write_bytes(b"x"), lambda: os.mkfifo(file), file.mkdir,
                                    lambda: file.symlink_to("/dev/zero"), lambda: file.symlink_to(file),
                                    lambda: file.symlink_to(path)])
                if not os.path.lexists(file):
                    make()

    def test_are_read_or_refused_in_a_line(self):
        for number in range(self.COUNT):
            dice = random.Random(number)
            with self.subTest(number=number), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / dice.choice(["a.zip", "m\udcfcll.zip"])
                (self.zip_of if dice.random() < 0.6 else self.folder_of)(dice, path)
                before = sorted(os.walk(folder))
                try:
                    read = submission.read(path)
                    self.assertEqual(set(read.files), set(course.blank()))
                except course.Refused as refused:
                    self.assertTrue(str(refused).isprintable())
                    str(refused).encode()
                self.assertEqual(sorted(os.walk(folder)), before)

    def test_a_folder_of_a_thousand_folders_in_one_another_is_refused_or_read(self):
        with tempfile.TemporaryDirectory() as folder:
            at = os.getcwd()
            try:
                os.chdir(folder)
                for _ in range(1200):
                    os.mkdir("d")
                    os.chdir("d")
            finally:
                os.chdir(at)
            with self.assertRaises(course.Refused):
                submission.read(folder)
            subprocess.run(["rm", "-rf", os.path.join(folder, "d")], check=True)


class Changed(unittest.TestCase):
    def put(self, **change):
        files = {LISTED: b"one two two"}
        changed.put_into(files, LISTED, {"name": "it", **change})
        return files[LISTED]

    def test_lines_that_stand_once_are_changed(self):
        self.assertEqual(self.put(old="one", new="1"), b"1 two two")
        self.assertEqual(self.put(old="one", new="1", old_2="1 two", new_2=""), b" two")
        self.assertEqual(self.put(), b"one two two")

    def test_a_change_that_fits_nowhere_or_twice_or_is_none_is_refused(self):
        for old in ("three", "two", "", "one"):
            with self.assertRaisesRegex(course.Refused, "it: its old lines are . times|or change nothing"):
                self.put(old=old, new="one")

    def test_failures_are_by_test_and_ranks(self):
        tests = [{"test": "T.a", "ranks": f"W{w}", "outcome": outcome, "text": f"is {w}"}
                 for w, outcome in ((3, "failed"), (1, "not started"), (2, "passed"))]
        found = changed.failures(Result(tests))
        self.assertEqual(found, {"T.a": {"W3": "is 3", "W1": "is 1"}})
        self.assertEqual(changed.ranks_of(found["T.a"]), "13")
        self.assertEqual(changed.ranks_of({"": "of one process"}), "")


class Running(unittest.TestCase):
    def test_tells_the_status_and_what_is_printed(self):
        self.assertEqual(run.run(["sh", "-c", "echo b >&2; echo a; exit 3"], {}, 60), (3, "b\na\n"))

    def test_what_takes_too_long_ends_with_what_it_has_started(self):
        status, _ = run.run(["sh", "-c", "sleep 600 & wait"], {}, 0.1)
        self.assertIsNone(status)
        self.assertFalse([path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                          if text_of(path) == "sleep\x00600\x00"])

    def test_graded_code_that_prints_without_end_fills_no_memory(self):
        limits = {**course.rubric()["limits"], "file_bytes": 100_000}
        with mock.patch.object(sandbox, "rubric", lambda: {"limits": limits}):
            status, printed = run.run([sandbox.SCRIPT, "/bin/sh", "-c", "exec yes"], sandbox.environment(), 60)
        self.assertNotIn(status, (0, None))
        self.assertLessEqual(len(printed), 110_000)

    def test_the_usual_tests_have_no_seed_whatever_the_shell_has(self):
        given = []
        with (mock.patch.object(run, "run", lambda command, environment, seconds: given.append(environment) or (1, "")),
              mock.patch.object(sandbox, "environment", lambda *_, **__: {"FSDP_TEST_SEED": "shell"}),
              mock.patch.object(sandbox, "clean_up", lambda *_: None)):
            for seed in ("", "drawn"):
                run.run_tests(pathlib.Path("tests"), course.tasks()[1], seed, 0)
        self.assertEqual([environment.get("FSDP_TEST_SEED") for environment in given], [None, "drawn"])


class NamesOfOthers(unittest.TestCase):
    def test_hold_those_of_every_room_that_is_built(self):
        rooms = {path.parent.name for path in course.ROOT.glob("common/*/*.cpp")} - {"build", "train"}
        self.assertGreater(len(rooms), 5)
        with tempfile.TemporaryDirectory() as folder:
            for room in rooms:  # train is not: nothing that was built needs it
                (pathlib.Path(folder) / f"libfsdp_{room}.a").touch()
            with (mock.patch.object(objects, "BUILD", pathlib.Path(folder)),
                  mock.patch.object(objects, "libraries", lambda: []),
                  mock.patch.object(objects, "symbols", lambda *args: [(args[-1].stem, "T")])):
                found = objects.names_of_others.__wrapped__()
        self.assertEqual(found, {f"libfsdp_{room}": (f"common/{room}", True) for room in rooms})


class Compiling(unittest.TestCase):
    def compile(self, command, seconds, **limits):
        """The log and the steps of a build of one command."""
        limits = {**course.rubric()["limits"], "build_seconds": seconds, **limits}
        steps = []
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as place:
            (pathlib.Path(folder) / "build.ninja").write_text(
                f"rule run\n  command = {command}\nbuild made: run\n"
            )
            with (mock.patch.object(programs, "BUILD", folder),
                  mock.patch.object(sandbox, "compiler_environment", lambda *_: dict(os.environ)),
                  mock.patch.object(course, "rubric", lambda: {"limits": limits})):
                return programs.ninja(["made"], place, steps.append), steps

    def test_tells_each_step_and_what_a_compiler_says(self):
        log, steps = self.compile("echo error: no such thing >&2; false", seconds=60)
        self.assertIn("error: no such thing", log)
        self.assertIn("1/1", steps)

    def test_a_program_has_the_errors_of_its_own_parts(self):
        log = "".join(
            f"[{i}/5] making\nFAILED: {made} \n{made}: error: {i}\n"
            for i, made in enumerate((
                "CMakeFiles/graded_task3.dir/build/graded/task3/forward_hooks.cpp.o",
                "CMakeFiles/graded_task3_tests.dir/tests/task3/test_forward_hooks.cpp.o",
                "bin/graded_train",
                "CMakeFiles/graded_on_2_task3.dir/build/graded/task3/forward_hooks.cpp.o",
                "bin/graded_on_2_task3_tests"))
        )
        programs_of = {p.target: p for p in (*programs.all_programs(), programs.training_program())}

        def errors(target):
            found = programs.errors_of(programs_of[target], log)
            return [line.rpartition(" ")[2] for line in found.splitlines() if "error:" in line]

        self.assertEqual(errors("graded_task2_tests"), [])
        self.assertEqual(errors("graded_task3_tests"), ["0", "1"])
        self.assertEqual(errors("graded_task4_tests"), ["0"])
        self.assertEqual(errors("graded_train"), ["0", "2"])
        self.assertEqual(errors("graded_on_2_task3_tests"), ["3", "4"])
        self.assertEqual(errors("graded_on_3_task4_tests"), [])

    def test_ends_when_the_time_is_over_with_what_ninja_has_started(self):
        log, _ = self.compile("echo $$$$ > pid; sleep 600", seconds=0.5)
        self.assertIn("the time for compiling was over", log)
        self.assertFalse([path for path in pathlib.Path("/proc").glob("*/cmdline")
                          if path.parent.name.isdigit() and text_of(path) == "sleep\x00600\x00"])

    def test_what_a_killed_compiler_leaves_is_removed(self):
        kept = []
        with mock.patch.object(session, "end", lambda process: kept.extend(
                pathlib.Path(process.args[process.args.index("-C") + 1]).glob("graded_output.*"))):
            self.compile("mkdir graded_output.1 && head -c 1000 /dev/zero > graded_output.1/x; false", seconds=60)
        self.assertEqual(len(kept), 1)
        self.assertFalse(kept[0].exists())

    def test_a_build_that_does_not_work_is_not_the_submission_s_fault(self):
        own, _ = self.compile("echo 'ninja: error: mine'; false", seconds=60)
        self.assertIn("\nninja: error: mine\n", own)
        programs.require_that_ninja_works(own)
        log, _ = self.compile("true\nbuild x: no_such_rule", seconds=60)
        with self.assertRaisesRegex(course.Refused, "the grader's build does not work .*no_such_rule"):
            programs.require_that_ninja_works(log)

    def test_a_log_that_was_cut_says_nothing_about_the_build(self):
        for end in (programs.TOO_MUCH, programs.NO_TIME):
            programs.require_that_ninja_works(f"[1/2] x\nninja: error: mine\n{end}")

    def test_what_a_full_machine_says_is_among_the_errors(self):
        for words in ("mktemp: failed to create directory: No space left on device",
                      "collect2: fatal error: ld terminated with signal 9 [Killed]",
                      "vfork: Resource temporarily unavailable"):
            self.assertIn(words, programs.first_errors(f"tasks/a.cpp:1: error: mine\n{words}\n", "graded"))

    def built(self, *answers, files=(EXTENSION,)):
        """Of one program of a submission with these files; `answers`: of each time that it is built."""
        program = programs.Program(course.tasks()[3], "own")
        given = []

        def build_as_it_is(handed_in, wanted, *_):
            given.append(handed_in.files[EXTENSION])
            return {program: answers[len(given) - 1] for _ in wanted}

        with mock.patch.object(programs, "build_as_it_is", build_as_it_is):
            handed_in = submission.Submission({**course.blank(), **dict.fromkeys(files, b"// mine\n")}, ())
            made = programs.build_programs(handed_in, {program}, 0)[program]
        self.assertEqual(len(given), len(answers))
        self.assertEqual([b"// mine" in content for content in given], [True, False][:len(given)] if files else [False])
        return made

    def test_extensions_cost_nothing_but_their_own_points(self):
        path = pathlib.Path("made")
        for why in ("does not compile:\n/usr/include/c++/12/x.h:1: error: x", f"is not run: tasks/{EXTENSION} uses exit"):
            made = self.built(programs.Built(None, why), programs.Built(path))
            self.assertEqual((made.path, made.why, made.left_out), (path, "", why))
            made = self.built(programs.Built(None, why), programs.Built(None, "does not compile:"))
            self.assertEqual((made.path, made.why, made.left_out), (None, why, ""))

    def test_what_has_no_extensions_or_was_ended_by_the_machine_is_built_once(self):
        self.assertEqual(self.built(programs.Built(None, "is not run: x"), files=()).why, "is not run: x")
        full = f"does not compile:\ntasks/{EXTENSION}: fatal error: No space left on device"
        self.assertEqual(self.built(programs.Built(None, full)).why, full)
        self.assertEqual(self.built(programs.Built(pathlib.Path("made"))).left_out, "")

    def test_what_a_student_writes_about_a_machine_is_no_error_of_it(self):
        errors = programs.first_errors("tasks/a.cpp:1:2: error: x\n    12 | // out of memory\n      | signal 9\n", "graded")
        self.assertEqual(errors, "tasks/a.cpp:1:2: error: x")

    def test_ends_when_the_compiler_prints_too_much(self):
        log, _ = self.compile("yes | head -c 100000", seconds=60, log_characters=5000)
        self.assertIn("error: the compiler prints too much", log)
        self.assertLess(len(log), 6000)

    def test_a_compiler_writes_no_file_beyond_the_limit(self):
        limits = {**course.rubric()["limits"], "object_bytes": 1 << 20}
        with (tempfile.TemporaryDirectory() as folder,
              mock.patch.object(sandbox, "rubric", lambda: {"limits": limits}),
              mock.patch.object(sandbox, "read_by_compilers", lambda: [])):
            os.chmod(folder, 0o777)
            environment = {**sandbox.compiler_environment(0, "limits"), "FSDP_FOLDER": folder}
            command = [sandbox.SCRIPT, "/bin/sh", "-c", "head -c 2000000 /dev/zero > big; wc -c < big"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        self.assertEqual(done.stdout, "1048576\n")


OUTCOMES = {"passed": (2, 0, 0), "failed": (0, 2, 0), "not started": (0, 0, 2)}


def result_of(task, outcome="passed", sentinel_fails=False):
    """As `check --json` tells it, if all tests of the task have this outcome."""
    tests, problems = [], {}
    for problem in task.problems + task.extensions:
        passed, failed, not_started = OUTCOMES[outcome]
        problems[problem.number] = {
            "number": problem.number, "passed": passed, "failed": failed, "not_started": not_started,
            "share": passed / 2, "explanation": "" if outcome == "passed" else "why",
        }
        for ranks in ("W1", "W2"):
            test = f"{problem.suites[0]}.says_so"
            tests.append({"test": test, "ranks": ranks, "outcome": outcome, "text": "why"})
    return Result(tests, problems=problems, sentinel_fails=sentinel_fails)


def scored(task, base, outcome="passed", sentinel_fails=False):
    result = result_of(task, outcome, sentinel_fails)
    return score.score_task(task, base, {"tests": result, "hidden": result})


class Scores(unittest.TestCase):
    def test_everything_passed_gives_all_points(self):
        for task in course.tasks():
            self.assertAlmostEqual(scored(task, "own").points, task.points)

    def test_nothing_started_gives_none(self):
        for task in course.tasks():
            self.assertEqual(scored(task, "own", "not started", sentinel_fails=True).points, 0)

    def test_a_task_whose_sentinel_fails_has_no_points_and_the_remark_says_why(self):
        for task in course.tasks():
            got = scored(task, "own", sentinel_fails=True)
            self.assertEqual(got.points, 0)
            self.assertIn(task.sentinel, got.remark)

    def test_code_that_does_not_compile_is_told_as_that(self):
        task = course.tasks()[1]
        result = Result([], "does not compile:\ntasks/x.cpp:1: error")
        got = score.score_task(task, "own", {"tests": result, "hidden": result})
        self.assertEqual(got.points, 0)
        self.assertIn("does not compile", got.problems[0].text)

    def test_the_better_base_counts(self):
        task = course.tasks()[3]
        own, other = scored(task, "own", "failed"), scored(task, "reference")
        self.assertEqual(score.better([own, other]).base, "reference")
        self.assertEqual(score.better([scored(task, "own"), other]).base, "own")

    def mixed(self, base, usual, hidden):
        task = course.tasks()[1]
        return score.score_task(task, base, {"tests": result_of(task, usual), "hidden": result_of(task, hidden)})

    def test_what_is_shown_does_not_depend_on_hidden_cases(self):
        for usual, shown in (("passed", "own"), ("failed", "own")):
            for own, other in (("passed", "failed"), ("failed", "passed")):
                best = score.better([self.mixed("own", usual, own), self.mixed("reference", usual, other)])
                self.assertEqual(best.base, shown)
                self.assertEqual(best.base_of_hidden, "own" if own == "passed" else "reference")
                self.assertEqual(best.points_of("hidden"), course.tasks()[1].points * course.rubric()["hidden"])

    def test_the_better_of_the_usual_tests_and_the_better_of_the_hidden_cases_count(self):
        best = score.better([self.mixed("own", "passed", "failed"), self.mixed("reference", "failed", "passed")])
        self.assertEqual(best.points, course.tasks()[1].points)

    def test_hidden_cases_bring_their_part_whatever_their_own_sentinel_says(self):
        task = course.tasks()[1]
        results = {"tests": result_of(task), "hidden": result_of(task, "failed", sentinel_fails=True)}
        got = score.score_task(task, "own", results)
        self.assertAlmostEqual(got.points, task.points * (1 - course.rubric()["hidden"]))

    def test_reads_what_check_has_written(self):
        written = {
            "points": 2, "possible": 4, "sentinel_fails": [2],
            "problems": [{"number": "2.1", "passed": 1, "failed": 1, "not_started": 0, "share": 0.5,
                          "explanation": "is 3"}],
            "tests": [{"test": "T2_1_layout.a", "ranks": "W1", "outcome": "failed", "text": "is 3"}],
        }
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tests.json"
            path.write_text(json.dumps(written))
            result = run.read_result(path, course.tasks()[1], 1.5)
            other = run.read_result(path, course.tasks()[2], 1.5)
        self.assertEqual(result.problems["2.1"]["share"], 0.5)
        self.assertTrue(result.sentinel_fails)
        self.assertFalse(other.sentinel_fails)


class HostileResults(unittest.TestCase):
    """As many as FSDP_HOSTILE says. What is no result of `check` gives no point and no traceback."""

    VALUES = [None, True, -1, 1, 2, 1e308, float("nan"), float("inf"), 2**70, "", "x\udcff\0\x1b[2J", [], {}, [[]],
              {"number": []}, "9" * 5000]

    def spoil(self, value, dice):
        """A copy in which one part is another, is missing, or is there twice."""
        if not isinstance(value, (dict, list)) or not value or dice.random() < 0.15:
            return dice.choice(self.VALUES)
        copy = value.copy()
        at = dice.choice(list(copy)) if isinstance(copy, dict) else dice.randrange(len(copy))
        kind = dice.random()
        if kind < 0.15:
            del copy[at]
        elif kind < 0.3 and isinstance(copy, list):
            copy.append(copy[at])
        else:
            copy[at] = self.spoil(copy[at], dice)
        return copy

    def test_are_no_result_and_bring_no_point(self):
        task = course.tasks()[1]
        failed = result_of(task, "failed")
        written = {"sentinel_fails": [], "problems": list(failed.problems.values()), "tests": failed.tests}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tests.json"
            for number in range(int(os.environ.get("FSDP_HOSTILE", "200"))):
                dice = random.Random(number)
                text = json.dumps(self.spoil(written, dice) if number else written).encode()
                for _ in range(dice.choice([0, 0, 1, 5])):
                    at = dice.randrange(len(text))
                    text = text[:at] + bytes([dice.choice(b"\xff\0[{\"x,")]) + text[at + dice.randrange(3):]
                with self.subTest(number=number):
                    path.write_bytes(text)
                    result = run.read_result(path, task, 0)
                    got = score.score_task(task, "own", {"tests": result, "hidden": result})
                    grade = Grade("ada", scores={2: [got]}, complete=True)
                    self.assertEqual(grade.points, 0)
                    self.assertEqual(schema.wrong(report.gradescope(grade)), [])
                    classroom.class_page([grade])
                    report.student_page(grade).encode()

    def test_nested_without_end_are_none(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tests.json"
            for text in ("[" * 100_000, '{"a":' * 100_000, "", "\0", "9" * 10_000):
                path.write_text(text)
                self.assertIn("gave no result", run.read_result(path, course.tasks()[1], 0).why)


class Kept(unittest.TestCase):
    def test_results_are_kept_but_not_those_for_which_the_machine_is_to_blame(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(programs, "KEPT", pathlib.Path(folder)):
            for why, kept in (("", True), ("does not compile:\nx.cpp:1: error", True), ("is not run: uses system", True),
                              ("gave no result: its tests did not end", False),
                              ("does not compile:\nx.o: No space left on device", False),
                              ("does not compile:\nc++: fatal error: Killed signal terminated program cc1plus", False)):
                run.keep(why, "", Result([], why))
                self.assertEqual(run.kept(why, "") is not None, kept, why)
            tests = [{"test": "a", "ranks": "W2", "outcome": "failed", "text": "rank 1 was killed by signal 9 (Killed)"}]
            run.keep("killed", "", Result(tests))
            self.assertIsNone(run.kept("killed", ""))
            run.keep("throughput", "", Result([{"points": 5, "ratio": 1.0}]))
            self.assertEqual(run.kept("throughput", "").tests[0]["points"], 5)
            for why, kept in (("training failed: No space left on device", False), ("training did not end in time", True),
                              ("gave no result: the reference's training failed", False)):
                run.keep(why, "", Result([{"points": 0, "why": why}]))
                self.assertEqual(run.kept(why, "") is not None, kept, why)
            for text in ("the program of the ranks was killed: Killed", "left by exit(137)", f"{programs.NO_REASON}"):
                run.keep(text, "", Result([{**tests[0], "text": text}]))
                self.assertIsNone(run.kept(text, ""), text)

    def test_what_a_machine_left_whose_power_failed_is_no_result(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(programs, "KEPT", pathlib.Path(folder)):
            run.keep("key", "", Result([]))
            for content in ("", "{", "[]", '{"mine": 1}'):
                run.result_file("key", "").write_text(content)
                self.assertIsNone(run.kept("key", ""), content)


class Grades(unittest.TestCase):
    def test_what_was_known_before_still_tells_what_it_took(self):
        known = mock.patch.object(run, "kept", lambda key, seed: Result([], "", 2.0))
        trained = mock.patch.object(throughput, "measure", lambda *_: {"points": 0, "seconds": 3.0})
        with known, trained:
            done = grading.grade("ada", submission.Submission(course.blank(), ()), "seed", job=0)
        self.assertEqual(done.seconds, 2 * 2.0 * len(programs.all_programs()) + 3.0)
        self.assertEqual(done.usual_seconds, 2.0 * len(programs.all_programs()) + 3.0)


class Held(unittest.TestCase):
    TASK = course.tasks()[1]
    PROGRAM = programs.Program(TASK, "reference")

    def kinds_that_ran(self, kept, sentinel_fails):
        """Of a program whose results are `kept` from before, or whose tests end in this way."""
        ran, result = [], result_of(self.TASK, sentinel_fails=sentinel_fails)

        def run_tests(path, task, seed, job):
            ran.append("hidden" if seed else "tests")
            return result_of(self.TASK, sentinel_fails=sentinel_fails)

        built = {self.PROGRAM: programs.Built(pathlib.Path("made"))}
        with mock.patch.object(run, "kept", lambda key, seed: result if kept and not seed else None), \
                mock.patch.object(run, "keep", lambda *_: None), mock.patch.object(run, "run_tests", run_tests), \
                mock.patch.object(grading, "build_programs", lambda *_: built):
            found = grading.results(submission.Submission(course.blank(), ()), "seed", 0, [self.PROGRAM])
            self.assertEqual([kind for _, kind, _ in found], ["tests", "hidden"])
        return ran

    def test_hidden_cases_run_unless_no_point_of_them_can_count(self):
        self.assertEqual(self.kinds_that_ran(kept=False, sentinel_fails=False), ["tests", "hidden"])
        self.assertEqual(self.kinds_that_ran(kept=True, sentinel_fails=False), ["hidden"])
        self.assertEqual(self.kinds_that_ran(kept=False, sentinel_fails=True), ["tests"])
        self.assertEqual(self.kinds_that_ran(kept=True, sentinel_fails=True), [])


def whole_grade(outcome="passed"):
    grade = Grade("ada", complete=True)
    for task in course.tasks():
        grade.scores[task.number] = [scored(task, base, outcome) for base in programs.BASES]
    grade.throughput = {"points": 5, "ratio": 1.01, "peak": 1000, "traffic": 2000}
    return grade


class Reports(unittest.TestCase):
    def test_results_are_as_gradescope_documents_them(self):
        grades = (Grade("ada"), Grade("ada", refused="no tasks/"), whole_grade(), whole_grade("failed"))
        for grade in grades:
            results = report.gradescope(grade)
            self.assertEqual(schema.wrong(results), [])
            graded = [t for t in results["tests"] if t["name"] != "extensions"]
            self.assertAlmostEqual(results["score"], sum(t["score"] for t in graded))
            self.assertAlmostEqual(sum(t["max_score"] for t in graded), most_points())

    def test_extensions_are_told_and_count_in_no_sum(self):
        for outcome in ("passed", "failed"):
            grade = whole_grade(outcome)
            earned = most_extension_points() if outcome == "passed" else 0
            self.assertGreater(most_extension_points(), 0)
            self.assertEqual(grade.points, 5 + (120 if outcome == "passed" else 0))
            self.assertEqual(grade.extension_points, earned)
            (entry,) = [t for t in report.gradescope(grade)["tests"] if t["name"] == "extensions"]
            self.assertFalse({"score", "max_score"} & set(entry))
            told = f"{earned:g} of {most_extension_points():g} points"
            self.assertIn(told, entry["output"])
            self.assertIn(told, report.student_page(grade))

    def test_an_extension_of_a_task_that_does_not_shard_has_no_points(self):
        task = course.tasks()[3]
        most = [problem.points for problem in task.extensions]
        self.assertEqual([points for _, points in scored(task, "own").extensions], most)
        held = scored(task, "own", sentinel_fails=True)
        self.assertEqual([points for _, points in held.extensions], [0] * len(most))

    def test_an_extension_that_was_left_out_is_told_with_the_reason(self):
        grade = whole_grade()
        for one in grade.scores[4]:
            one.left_out = "is not run: tasks/<b>.cpp:3 has a raw string"
        for text in (report.gradescope(grade)["tests"][-1]["output"], report.student_page(grade)):
            self.assertIn("as if these extensions had not been handed in", text)
            self.assertEqual(html.unescape(text).count("<b>.cpp:3 has a raw string"), 1)

    def test_seconds_of_hidden_cases_are_not_shown_before_their_day(self):
        grade = Grade("ada", seconds=1234, usual_seconds=1000, complete=True)
        for text in (json.dumps(report.gradescope(grade)), report.student_page(grade)):
            self.assertIn("1000", text)
            self.assertNotIn("1234", text)

    def test_the_schema_finds_what_is_wrong(self):
        results = report.gradescope(whole_grade())
        for name, value in (("score", "all"), ("visibility", "to me"), ("points", 3)):
            self.assertEqual(len(schema.wrong({**results, name: value})), 1, name)
        self.assertEqual(len(schema.wrong({"tests": [{"status": "ok"}]})), 2)

    def test_half_a_grade_says_that_it_is_one(self):
        half = Grade("ada", scores={1: [scored(course.tasks()[0], "own")]})
        results = report.gradescope(half)
        self.assertEqual(results["score"], course.tasks()[0].points)
        self.assertIn("The grader stopped early", results["output"])

    def test_names_and_texts_of_students_are_no_html(self):
        grade = Grade("<b>ada</b>", refused="<script>")
        for page in (report.student_page(grade), classroom.class_page([grade])):
            self.assertNotIn("<b>ada", page)
            self.assertNotIn("<script>", page)

    def test_names_and_texts_of_students_are_no_formula_no_script_and_no_command_of_a_terminal(self):
        for name in ("=HYPERLINK(1)", "+1", "-1", "@x"):
            cells = next(csv.reader([classroom.table([Grade(name, refused=name)]).splitlines()[1]]))
            self.assertEqual((cells[0], cells[-1]), (f"'{name}", f"'{name}"))
        page = classroom.class_page([Grade("javascript:alert(1)"), Grade("a#b'?%\udcff"), Grade("\x1b]0;x\x07")])
        self.assertEqual(re.findall("href='(.*?)'", page), [
            "./javascript%3Aalert%281%29/report.html", "./a%23b%27%3F%25%FF/report.html",
            "./%1B%5D0%3Bx%07/report.html"])
        self.assertNotIn("\x1b", page)
        bad = score.shortened("a\x1b[2J\0\nb\udcff\tc")
        self.assertEqual(bad, "a\\x1b[2J\\x00\nb\\udcff\tc")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            Progress(1).show("\x1b[2J", "")
        self.assertNotIn("\x1b", printed.getvalue())

    def test_the_results_of_a_class_do_not_lie_among_its_submissions(self):
        with tempfile.TemporaryDirectory() as folder:
            for out in (folder, f"{folder}/grades"):
                arguments = argparse.Namespace(all=folder, out=out)
                with self.assertRaisesRegex(course.Refused, "name another folder"):
                    classroom.grade_all(arguments)

    def test_a_submission_is_not_called_as_the_results_of_the_class(self):
        for name in ("seed", "grades.csv", "class.html.zip", "grades.csv.17.partial", "seed.17.partial.ZIP"):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / name
                path.touch() if name.lower().endswith(".zip") else path.mkdir()
                with self.assertRaisesRegex(course.Refused, "rename it"):
                    classroom.submissions(pathlib.Path(folder))

    def test_names_of_submissions_stay_on_one_line(self):
        name = "ann\neve  120.00 points\teve"
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            Progress(1).show(name, f"tasks/x.cpp is in it twice: {name} and x")
        self.assertEqual(len(printed.getvalue().splitlines()), 1)
        table = classroom.table([Grade(name, refused=name)])
        self.assertEqual(len(table.splitlines()), 2)
        self.assertNotIn("\t", table)
        for page in (report.student_page(Grade(name)), classroom.class_page([Grade(name)])):
            self.assertNotIn("ann\n", page)
            self.assertIn("ann\\neve", page)
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            (pathlib.Path(folder) / "a").mkdir()
            (pathlib.Path(folder) / "x\nfsdp grade: all is well").touch()
            classroom.submissions(pathlib.Path(folder))
        self.assertEqual(len(said.getvalue().splitlines()), 1)

    def test_what_lies_beside_the_submissions_and_is_none_is_told_by_name(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            for name in ("ann.tar.gz", "eve.ZIP", "bob.zip", ".DS_Store"):
                (pathlib.Path(folder) / name).touch()
            self.assertEqual(list(classroom.submissions(pathlib.Path(folder))), ["bob", "eve"])
        self.assertEqual(said.getvalue(), "ann.tar.gz is neither a folder nor a zip: it is not graded\n")

    def test_two_submissions_of_one_name_are_both_not_graded_and_stand_in_no_others_way(self):
        with tempfile.TemporaryDirectory() as folder:
            class_, out = pathlib.Path(folder) / "class", pathlib.Path(folder) / "out"
            for name in ("ann", "bob"):
                (class_ / name).mkdir(parents=True)
            (class_ / "bob.zip").touch()
            arguments = argparse.Namespace(all=class_, out=out, seed="x", fresh=False, jobs=1)
            with (mock.patch.object(grading, "prepare", lambda: None),
                  mock.patch.object(programs, "COPIES", pathlib.Path(folder) / "programs"),
                  mock.patch.object(programs, "LOCKS", pathlib.Path(folder) / "locks"),
                  mock.patch.object(classroom.submission, "read", lambda path: path),
                  mock.patch.object(grading, "grade", lambda name, *_, **__: Grade(name, complete=True)),
                  contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())):
                classroom.grade_all(arguments)
            rows = list(csv.DictReader((out / "grades.csv").read_text().splitlines()))
        self.assertEqual([(row["submission"], row["remark"]) for row in rows], [
            ("ann", ""), ("bob", "there are bob and bob.zip, and only one can be graded: remove the other")])

    def test_hidden_cases_say_nothing_before_their_day(self):
        grade = whole_grade()
        task = course.tasks()[1]
        hidden = result_of(task, "failed")
        for problem in hidden.problems.values():
            problem["explanation"] = "rank 3 of 6 is wrong"
        grade.scores[2] = [score.score_task(task, "own", {"tests": result_of(task), "hidden": hidden})]
        results = report.gradescope(grade)
        for entry in results["tests"]:
            told = "rank 3 of 6" in entry.get("output", "")
            self.assertEqual(told, entry["name"].startswith("2.") and "hidden" in entry["name"], entry["name"])
        passed = whole_grade()
        self.assertNotEqual(passed.points, grade.points)
        passed.scores[2] = [scored(task, "own")]
        self.assertEqual(results["output"], report.gradescope(passed)["output"])
        self.assertEqual(report.student_page(grade), report.student_page(passed))
        self.assertIn("95 of 95 points", results["output"])

    def test_refused_not_compiled_and_wrong_are_told_apart(self):
        grade = whole_grade("failed")
        for number, why in ((2, "is not run: tasks/x.cpp uses system"), (3, "does not compile:\ntasks/x.cpp:1: error")):
            result = Result([], why)
            grade.scores[number] = [
                score.score_task(course.tasks()[number - 1], "own", {"tests": result, "hidden": result})]
        self.assertEqual(grade.remark, "task 2 refused: tasks/x.cpp uses system; "
                                       "task 3 does not compile: tasks/x.cpp:1: error")
        for text in (classroom.table([grade]), classroom.class_page([grade]), report.student_page(grade)):
            self.assertIn("task 2 refused", text)
            self.assertIn("task 3 does not compile", text)
        self.assertEqual(whole_grade("failed").remark, "")

    def test_of_two_bases_with_equal_points_the_one_is_shown_that_tells_more(self):
        task = course.tasks()[2]
        nothing = Result([], "is not run: task 1 is refused")
        own = score.score_task(task, "own", {"tests": nothing, "hidden": nothing})
        other = scored(task, "reference", "failed")
        self.assertEqual(score.better([own, other]).base, "reference")

    def test_a_refused_submission_is_one_sentence(self):
        page = report.student_page(Grade("ada", refused="no tasks/"))
        self.assertIn("ada: not graded", page)
        self.assertNotIn("<table>", page)
        self.assertNotIn("not graded yet", str(report.gradescope(Grade("ada", refused="no tasks/"))))

    def test_the_page_of_a_class_tells_its_median(self):
        page = classroom.class_page([whole_grade(), Grade("bob"), Grade("eve"), whole_grade()])
        self.assertIn(f"4 submissions, median {most_points() / 2:g} of", page)

    def test_the_table_has_a_line_for_each(self):
        lines = classroom.table([whole_grade(), Grade("bob", refused="no tasks/")]).splitlines()
        self.assertEqual(len(lines), 3)
        self.assertTrue(lines[1].startswith(f'"ada","{most_points():g}","15",'))
        self.assertTrue(lines[2].endswith(',"no tasks/"'))

    def test_no_cell_of_the_table_is_a_formula_whatever_ends_a_cell(self):
        for name in ("=1+1", "bob;=cmd|' -C calc'!A1;x", "\uff1d1+1", 'a";=1', "a,=1", "a\t=1"):
            text = classroom.table([Grade(name)])
            for ends in ",;\t":
                for row in csv.reader(io.StringIO(text), delimiter=ends):
                    self.assertFalse([cell for cell in row if cell.startswith(("=", "\uff1d"))], (name, ends))

    def test_a_name_that_the_terminal_cannot_show_ends_no_class(self):
        script = ("import sys; sys.argv = ['grade', '--help']; import grade\n"
                  "try: grade.main()\nexcept SystemExit: pass\nprint('\u5b66')")
        done = subprocess.run([sys.executable, "-B", "-c", script], cwd=course.ROOT / "grading", capture_output=True,
                              env={**os.environ, "PYTHONIOENCODING": "ascii"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith(b"\\u5b66\n"))


class Throughput(unittest.TestCase):
    PRINTED = ("param sum 1.0 (change +0.1), sha256 abc123\n"
               "bytes per rank: peak 1,000, all_gather 2,000, metrics 16 (last step)\n")

    def trained(self, text, status=0):
        with (mock.patch.object(run, "run", lambda *_: (status, text)),
              mock.patch.object(sandbox, "clean_up", lambda *_: None),
              mock.patch.object(sandbox, "environment", lambda *_, **__: {})):
            return throughput.train("program", 1, 0)

    def test_reads_what_training_prints(self):
        got = self.trained("step 1\n" + self.PRINTED)
        self.assertEqual((got.parameters, got.peak, got.traffic, got.why), ("abc123", 1000, 2016, ""))

    def test_results_that_graded_code_prints_beside_are_refused(self):
        forged = "bytes per rank: peak 1, all_gather 0 (last step)"
        for text in (forged + "\n" + self.PRINTED, self.PRINTED + "x" + forged, "sha256 0\n" + self.PRINTED):
            self.assertEqual(self.trained(text).why, "training prints its results more than once")

    def test_whether_training_is_tried_tells_nothing_of_hidden_cases(self):
        last = course.tasks()[-1]
        for usual, tried in (("passed", True), ("failed", False)):
            grade = Grade("ada")
            results = {"tests": result_of(last, usual), "hidden": result_of(last, "failed")}
            grade.scores[last.number] = [score.score_task(last, "own", results)]
            with mock.patch.object(run, "kept", lambda *_: Result([{"points": 5, "ratio": 1.0}])):
                measured = throughput.measure(submission.Submission(course.blank(), ()), grade, "seed", 0, False)
            self.assertEqual("ratio" in measured, tried)

    def test_a_reference_that_does_not_train_is_nobody_s_result(self):
        with mock.patch.object(throughput, "train", lambda program, *_: throughput.Training(why="training failed")):
            measured = throughput.compare("program", 1, 0)
        self.assertTrue(run.is_of_the_machine(Result([measured])))

    def test_bytes_that_training_cant_have_told_are_on_no_leaderboard(self):
        reference = throughput.Training(2.0, "abc", 1000, 500)
        for peak, traffic, shown in ((1000, 500, True), (800, 500, True), (700, 500, False), (1000, 499, False)):
            told = throughput.Training(2.0, "abc", peak, traffic)
            with mock.patch.object(throughput, "train", lambda path, *_: told if path == "program" else reference):
                measured = throughput.compare("program", 1, 0)
            leaders = report.leaderboard(Grade("ada", throughput=measured))
            self.assertEqual((measured["points"], len(leaders)), (5, 3 if shown else 1), (peak, traffic))

    def test_training_that_fails_says_how(self):
        self.assertIn("no loss", self.trained("no loss").why)
        self.assertIn("at the end", self.trained(self.PRINTED + "at the end", 1).why)


class SourceText(unittest.TestCase):
    def refusal(self, text, is_header=False):
        return (source_text.wrong("a.h" if is_header else "a.cpp", text.encode()) or (0, ""))[1]

    def test_assembly_is_refused_wherever_it_hides(self):
        for text in ("int a = 1'000; asm(\"\"); char c = 'a';", "// \\\n\n__asm__(\"nop\");",
                     "auto q = u8'\"'; asm(\"nop\");", "as\\\nm(\"nop\");", "/* */ asm volatile(\"\");",
                     "#define A asm\n", "_Pragma(\"weak f\")", "auto s = \"\\\\\"; asm(\"\");"):
            self.assertRegex(self.refusal(text), "uses (_Pragma|asm|__asm__)", text)

    def test_what_a_compiler_reads_otherwise_hides_nothing(self):
        assembly = 'asm("nop");'
        for text in (f"#if 0\n' /*\n#endif\n{assembly}\n// */\n", f"#warning it's /*\n{assembly}\n// */\n",
                     f'#if 0\n#include <x\'/*>\n#endif\n{assembly}\n// */\n', "// \\\u00a0\n" + assembly,
                     "// \\\x1c\n" + assembly, "// \\\r \n" + assembly, "// a\r" + assembly,
                     f'#define X /*\n" */ {assembly} //"\nX\n', f"#if __has_include(<a/*b>)\n#endif\n{assembly}\n// */",
                     f"#if 0\n1$'a'/*'\n#endif\n{assembly}\n// */'", f"#if 0\n1\u00e4'a'/*'\n#endif\n{assembly}\n// */'",
                     f"/* {assembly}", '\\u0061sm("nop");', "as\0m(1);"):
            self.assertNotEqual(self.refusal(text), "", text)
        for text in ("\ufeff#define x y\n", "\0#define x y\n", "\v#define x y\n", "/*\n*/#define x y\n"):
            self.assertNotEqual(self.refusal(text, True), "", text)
        self.assertEqual(self.refusal("\ufeff#pragma once\r\n// gr\u00f6\u00dfe\n", True), "")

    def test_macros_of_the_systems_headers_make_no_words(self):
        for text in ("__REDIRECT(long f, (int), write);", "#define f __CONCAT(as, m)\n", "ITT_JOIN(as, m)",
                     "_IO_x y;", "TORCH_SDT(a, b)"):
            self.assertRegex(self.refusal(text), "could make any word|belong to the compiler", text)
        self.assertIn("would write into another file", self.refusal("stdout->_fileno = 5;"))
        for text in ("__builtin_expect(x, 1);", "#ifdef __clang__\n", "throw __func__;", "__FILE__, __LINE__",
                     "_x = y_; __int128 z;", "#if __cplusplus > 1 && defined(__cpp_lib_format)\n"):
            self.assertEqual(self.refusal(text), "", text)

    def test_only_a_comma_may_be_pasted_with_what_follows(self):
        for text in ("#define LOG(f, ...) printf(f, ##__VA_ARGS__)", "#define LOG(f, a...) printf(f, ## a)",
                     "#define LOG(f, ...) printf(f __VA_OPT__(,) __VA_ARGS__)"):
            self.assertEqual(self.refusal(text), "", text)
        for text in ("#define A(x) as ## x", "#define A(x, y) f(, ## x ## y)", "#define A(x, y) x ##, y", "%:%: m"):
            self.assertIn("pastes tokens", self.refusal(text), text)

    def test_words_that_only_look_so_are_not(self):
        for text in ("// asm here\nint x;", "/* asm ## */", 'auto s = "asm ## \\"asm\\"";', "int plasm = 0x1'asmu;",
                     "char c = '\"'; // asm", "#include <x.h> // #define\n", "  # pragma once\n", "#\n",
                     "int located = concatenated();", '#pragma GCC diagnostic ignored "-Wx"\n', "",
                     "// really??) or ??/\nint x;", "#pragma region helpers\n#pragma endregion\n", "#ifdef _OPENMP\n"):
            self.assertEqual(self.refusal(text), "", text)

    def test_a_header_is_the_same_for_all_that_include_it(self):
        for text in ("#define x y\n", " #ifdef x\n", "int a;\n%: undef x\n", "#if 0\n"):
            self.assertIn("in a header", self.refusal(text, True))
            self.assertEqual(self.refusal(text), "", text)
        self.assertEqual(self.refusal("#pragma once\n#include <vector>\n", True), "")

    def guarded(self, text, name="task2_flat_parameter/flat_parameter.h"):
        return source_text.wrong_in({name: text.encode()}, [name])

    def test_a_header_may_have_an_include_guard_around_all_of_it(self):
        for macro in ("FLAT_PARAMETER_H", "FSDP_TASK2_FLAT_PARAMETER_H_", "FLATPARAMETER_HPP"):
            guard = f"#ifndef {macro}\n#define {macro}\n"
            for text in (f"// mine\n{guard}#include <vector>\nint f();\n#endif  // {macro}\n\n",
                         f"#pragma once\n\n{guard}int f();\n#endif\n", f"{guard}#pragma once\nint f();\n# endif\n"):
                self.assertEqual(self.guarded(text), "", text)

    def test_a_guard_hides_nothing_from_some_and_is_no_word_of_others(self):
        guard = "#ifndef FLAT_PARAMETER_H\n#define FLAT_PARAMETER_H\n"
        for text in (f"int a;\n{guard}#endif\n", f"{guard}#endif\nint a;\n", f"{guard}int a;\n",
                     "#ifndef A_H\n#endif\n",
                     f"{guard}#else\nint a;\n#endif\n", f"{guard}#endif\n#ifndef B\nint a;\n#endif\n",
                     f"{guard}#define x y\n#endif\n", guard.replace("_H\n", "_H x\n") + "#endif\n",
                     "#ifdef FLAT_PARAMETER_H\n#define FLAT_PARAMETER_H\n#endif\n",
                     "#ifndef FLAT_PARAMETER_H\n#define PREFETCH_H\n#endif\n", f"#if 0\n{guard}#endif\n#endif\n",
                     *(guard.replace("FLAT_PARAMETER_H", macro) + "#endif\n" for macro in (
                         "PREFETCH_H", "EXPECT_EQ", "FLAT_PARAMETER", "GTEST_INCLUDE_GTEST_GTEST_H_",
                         "flat_parameter_h"))):
            self.assertIn("in a header, which must say the same everywhere", self.guarded(text), text)
        for text in (f"{guard}struct FLAT_PARAMETER_H HeldMemory {{}};\n#endif\n",
                     "struct PREFETCH_H HeldMemory {};\n"):
            self.assertIn("the macro of an include guard", self.guarded(text), text)

    def test_the_guards_that_headers_may_have_are_words_of_nobody(self):
        words = header_text.words_of_others()
        self.assertEqual([word for word in words if source_text.GUARD.fullmatch(word)], [])

    def test_directives_that_rename_or_read_are_refused_with_their_name(self):
        for text, name in (("#line 1 \"a\"\n", "line"), ("# 1 \"a\"\n", "1"), ("#include_next <a>\n", "include_next"),
                           ("#embed <a>\n", "embed"), ("#pragma weak f = g\n", "pragma weak"),
                           ("#/**/line 7\n", "line"), ("#pragma GCC poison x\n", "pragma GCC poison"),
                           ("#pragma redefine_extname a b\n", "pragma redefine_extname")):
            self.assertIn(f"has #{name}", self.refusal(text))
        for text in ("a ## b", "%:%:", "#define f(x) x ## y\n", "C10_CONCATENATE(as, m)", "auto s = R\"(asm)\";"):
            self.assertNotEqual(self.refusal(text), "", text)

    def test_an_include_names_a_file_as_everybody_sees_it(self):
        for text in ('#include "/proc/self/cwd/x.cpp"\n', "#include </dev/ptmx>\n", "#include FILE\n",
                     '#include "../../../../proc/self/cwd/x.h"\n', '#include/**/"/etc/passwd"\n',
                     '#include "../x.h"\n', "#include <a/../../x.h>\n"):
            self.assertIn("has #include of", self.refusal(text), text)
        self.assertIn("name a header of the course without a path, as <meta_init.h>",
                      self.refusal('#include "../task1_meta_init/meta_init.h"\n'))
        for text in ("#include <sys/process.h>\n", "#include<vector>// all\n", "#include <sys/..x.h>\n"):
            self.assertEqual(self.refusal(text), "", text)

    def test_a_large_text_is_read_in_one_pass(self):  # in two, each of these would take hours
        for text in ("/* " * 300_000, "/* */ " * 100_000 + "/*", "' " * 300_001, "#if 0\n" + "\"a" * 300_001):
            self.assertIn("where it is no part of a text", self.refusal(text))
        for text in ("; " * 400_000, "int a; " * 100_000, "\\\n" * 300_000, "a" * 900_000, "1" * 900_000):
            self.assertEqual(self.refusal(text), "", text[:20])

    def test_a_header_includes_no_source(self):
        self.assertIn("in a header: the tests would be", self.refusal('#include "flat_parameter.cpp"\n', True))
        self.assertEqual(self.refusal('#include "flat_parameter.cpp"\n'), "")

    def test_attributes_that_speak_to_the_linker_are_refused(self):
        for text in ("[[__gnu__::__section__(\"a\")]] int x;", "[[__gnu__::section(\"a\")]] int x;",
                     "[[clang::section(\"a\")]] int x;", "#define N __gnu__\n[[N::__alias__(\"f\")]] int g();",
                     "int __section__;", "[[using __gnu__: symver(\"f@g\")]] int g();", "__attribute__((section(\".text\"))) const char c[] = {15, 5};", "[[gnu::alias(\"f\")]] int g();",
                     "[[using gnu: __ifunc__(\"f\")]] int g();", "__attribute((weakref(\"f\"))) static int g();"):
            self.assertIn("beside attributes", self.refusal(text), text)
        for text in ("int section(int alias);", "[[gnu::weak]] int g();", "[[nodiscard]] int f(int section);",
                     "// gnu\nint section, alias;", 'auto s = "gnu"; int section;'):
            self.assertEqual(self.refusal(text), "", text)

    def test_a_macro_is_no_word_of_cpp(self):
        for text in ("#define private public\n", "#  define class struct\n", "#define /**/ if(x) while (x)\n"):
            self.assertIn("a word of C++ keeps its meaning", self.refusal(text), text)
        self.assertEqual(self.refusal("#define PRIVATE public\n#ifdef private_\n#endif\n"), "")

    def test_a_standard_stream_is_passed_on_and_never_opened(self):
        for text in ("auto& [a, b] = *stdout;", "auto* f = stderr;", "stdout[0];", "f(&*stderr);", "FILE* f;",
                     "std::FILE* f;", "f((stdout)[0])", "f(x, stderr->y)", "stdout\n"):
            self.assertRegex(self.refusal(text), "than the argument of a call|into another file", text)
        for text in ("fprintf(stderr, \"x\");", "std::fputs(\"x\",\n    stderr);", "fflush(stdout)", "// stdout",
                     "#define SAY(x) fprintf(stderr, \"%d\", x)\n", 'auto s = "stdout";', "std::cerr << 1;"):
            self.assertEqual(self.refusal(text), "", text)

    def test_nothing_tells_a_header_where_it_is_included(self):
        for word in ("__BASE_FILE__", "__INCLUDE_LEVEL__", "__COUNTER__"):
            self.assertIn("says the same to all that include it", self.refusal(f"int f() {{ return {word}; }}", True))

    def test_the_line_is_told(self):
        for text in ("int a;\n\nasm(1);", "/*\n*/\nasm(1);", "#define a \\\n b\nasm(1);", "int \\\n\\\n asm;"):
            self.assertEqual(source_text.wrong("a.cpp", text.encode())[0], 3, text)

    def test_exploits_are_refused_with_the_words_that_their_bank_has(self):
        found = 0
        for exploit in exploits.load():
            files = exploits.submission(exploit).files
            if why := source_text.wrong_in(files, files):
                self.assertTrue(any(words in why for words in exploit["refused"].split(" | ")), f"{exploit['name']}: {why}")
                found += 1
        self.assertGreater(found, 10)  # the others are refused when they are compiled

    def test_every_solution_passes(self):
        for folder in ("tasks", "solutions", "grading/second_solution", "grading/unsharded"):
            for path in (course.ROOT / folder).rglob("*.[hc]*"):
                if path.suffix in (".h", ".cpp"):
                    self.assertIsNone(source_text.wrong(path.name, path.read_bytes()), path)


class HeaderText(unittest.TestCase):
    NAME = "task2_flat_parameter/flat_parameter.h"
    LAYOUT = "task2_flat_parameter/flat_layout.h"
    END = "}  // namespace fsdp"

    def refusal(self, text, name=NAME):
        return (header_text.wrong(name, text.encode()) or (0, ""))[1]

    def with_(self, text):
        """Why the header is refused with this at the end of its namespace."""
        given = course.blank()[self.NAME].decode()
        return self.refusal(given.replace(self.END, f"{text}\n{self.END}"))

    def changed(self, old, new, name=NAME):
        given = course.blank()[name].decode()
        self.assertIn(old, given)
        return self.refusal(given.replace(old, new), name)

    def test_names_that_the_tests_use_are_refused(self):
        for text in ("inline void expect_on_all_ranks(const std::string&, int) {}", "struct HeldMemory {};",
                     "template <class... A> int run_ranks(A&&...) { return 0; }", "using std::vector;",
                     "namespace live_bytes { int now(); }", "namespace std { struct vector; }",
                     "bool operator==(const std::vector<int>&, const std::vector<int>&);",
                     "struct My { friend void run_ranks(My) {} };", "enum My { HeldMemory };",
                     "enum alignas(sizeof(struct Mine)) My { HeldMemory };", "enum { run_ranks };",
                     "inline void TestRank::observe(int) {}", "namespace mine { int run_ranks(int); }",
                     "struct Held\\\nMemory {};", "}\ntemplate <> struct testing::internal::X<int> {};\nnamespace fsdp {",
                     "}\ntemplate <> struct ::std::equal_to<long> {};\nnamespace fsdp {"):
            self.assertIn("means something else in the tests", self.with_(text), text)

    def test_what_changes_a_measurement_is_refused(self):
        for body, word in (("comm->take_log();", "take_log"), ("live_bytes::reset();", "live_bytes::reset"),
                           ("namespace l = live_bytes; l::on_free({});", "live_bytes::reset"), ("poison::enable();", "poison::enable"),
                           ("device_blocks::freed(this);", "device_blocks"), ("testing::Test::SetUp();", "testing")):
            self.assertEqual(self.with_(f"struct My {{\n  ~My() {{ {body} }}\n}};"),
                             f"uses {word} in a header, which is for the tests alone")
        line, _ = header_text.wrong(self.NAME, course.blank()[self.NAME].replace(self.END.encode(), b"struct My {\n  int f() { limit_memory(); }\n};\n"
                                    + self.END.encode()))
        self.assertEqual(line, 1 + course.blank()[self.NAME].decode().partition(self.END)[0].count("\n") + 1)
        for text in ("struct My { void reset(); void enter() { reset(); } };", "// take_log()", "struct My { int enable; };"):
            self.assertEqual(self.with_(text), "", text)

    def test_what_brings_names_into_the_tests_is_refused(self):
        for text, why in (("namespace { struct Mine {}; }", "namespace without a name"),
                          ("inline namespace mine {}", "inline namespace"), ("using namespace std;", "using namespace"),
                          ("namespace mine = std;", "the name mine"), ("namespace <% %>", "hard to read"),
                          ("TORCH_LIBRARY(mine, m) {}", "could be a macro"), ("constexpr MINE x = 3;", "could be a macro"), ("MINE = 3;", "could be a macro"),
                          ("constexpr MINE = 3;", "could be a macro"), ("static const MINE{3};", "could be a macro"), ("typedef int Mine;", "typedef"),
                          ("extern \"C\" { }", "extern of a language"), ("namespace mine {", "ends inside a namespace")):
            self.assertIn(why, self.with_(text), text)

    def test_variables_are_refused(self):
        for text in ("static const int my_x = [] { return 1; }();", "inline std::string my_x{\"a\"};", "int my_x;",
                     "static Mine my_x(1);", "const Mine my_x(1);", "template <class T> int My<T>::my_v(1);",
                     "struct My { inline static int my_v = make(); };", "struct My {} my_x;",
                     "struct My { static inline std::string my_v{}; };", "inline Mine my_x = default;"):
            self.assertIn("has a variable", self.with_(text), text)

    def test_constants_may_have_names_in_capitals(self):
        for text in ("constexpr int64_t MY_ALIGNMENT = 16;", "constexpr int MY_SIZES[] = {1, 2};", "struct My { static constexpr int MY_LIMIT = 3; };",
                     "inline constexpr double MY_SHARE{0.5};"):
            self.assertEqual(self.with_(text), "", text)
        self.assertIn("means something else in the tests", self.with_("constexpr int EXPECT_EQ = 3;"))

    def test_a_member_may_be_defaulted_behind_its_class(self):
        self.assertEqual(self.with_("struct My { ~My(); My(const My&); };\ninline My::~My() = default;\n"
                                    "inline My::My(const My&) = default;"), "")

    def test_tensor_may_be_brought_in_and_means_nothing_else(self):
        for text in ("using at::Tensor;", "using torch::Tensor;", "using Tensor = at::Tensor;", "namespace my_own { using at::Tensor; }"):
            self.assertEqual(self.with_(text), "", text)
        for text in ("struct Tensor {};", "using Tensor = mine::Tensor;", "using mine::Tensor;", "class Tensor;", "int Tensor();",
                     "namespace my_own { using at::Tensor; }\nenum My { Tensor };", "using at::Tensor;\nnamespace at { struct Tensor; }"):
            self.assertIn("means something else in the tests", self.with_(text), text)

    def test_a_hash_for_std_is_told_where_it_belongs(self):
        self.assertIn("in place of specializing a template of std", self.with_("}\ntemplate <> struct std::hash<My> {};\nnamespace fsdp {"))

    def test_what_the_header_only_names_may_be_left_out(self):
        name = "task1_meta_init/meta_init.h"
        given = course.blank()[name].decode()
        self.assertEqual(self.refusal(given.replace("class Tape;", "class MyTape;").replace("Tape>", "MyTape>"), name), "")
        self.assertIn("lacks `DeferredInit::~DeferredInit`, which the course's header has",
                      self.refusal(given.replace("  ~DeferredInit();\n", ""), name))

    def test_what_the_header_declares_for_the_tests_stays(self):
        for name, old, new in ((self.LAYOUT, "std::vector<int64_t> offsets", "Mine offsets"),
                               (self.LAYOUT, "struct FlatLayout {", "struct FlatLayout : Mine {}; struct Mine {"),
                               (self.LAYOUT, "FlatLayout flat_layout(", "Mine flat_layout("),
                               (self.NAME, "enum class UnitState { sharded, gathering, unsharded };",
                                "struct UnitState {};"),
                               (self.NAME, "const at::Tensor& shard() const {",
                                "Mine shard() { return {}; }\n  const at::Tensor& shard() const {"),
                               (self.NAME, " public:\n", " public:\n  bool operator==(const FlatParameter&) const;\n"),
                               (self.NAME, " private:\n", " private:\n  struct at {};\n")):
            self.assertRegex(self.changed(old, new, name), "the course's header|the tests would use", new)

    def test_members_and_helpers_with_names_of_their_own_are_not(self):
        self.assertEqual(self.with_(
            "struct MyThing { int a{}; std::vector<int> b; MyThing(int) : a{1}, b(2) {} bool f() const { return a < 1; } };"
            "inline int my_helper(const std::vector<int>& v) { return v.size() > 1 ? 1 : 2; }"
            "constexpr int kMyOwn = 3; template <class T> T my_t(T t); namespace my_own { inline int my_f() { return 1; } }"
            "int my_x(const at::Tensor& x, int = 3); enum class MyEnum : uint8_t { a, b }; class FlatParameter;"), "")
        self.assertEqual(self.changed(
            " private:\n", " private:\n static at::Tensor helper(int x); struct Mine { int x;"
            " bool operator==(const Mine&) const = default; }; static constexpr int kX = 1; std::array<int, 3> a_{};"
            " int b_[3]{}; std::function<void(int)> f_ = [](int) {}; ~FlatParameter();\n"), "")

    def test_types_in_classes_may_have_any_form_and_no_name(self):
        for text in ("struct P { int a; } p_, *q_; struct { int a; } s_{};",
                     "enum { kA = 3, kB, }; enum class E { x } e_{E::x};",
                     "union { int a_; float b_; };", "typedef std::map<std::string, std::vector<int>> Map; Map map_;",
                     "struct Order { int a; }; using Unit = int;", "struct P; std::unique_ptr<P> p_; struct P* q_;",
                     "struct [[nodiscard]] P { int a; }; struct alignas(16) Q final { int b; };",
                     "friend class FullySharded;"):
            self.assertEqual(self.with_(f"class My {{ {text} }};"), "", text)
            self.assertEqual(self.changed(" private:\n", f" private:\n {text}\n"), "", text)
        self.assertEqual(self.with_("enum { kMyA, kMyB }; enum class MyEnum : std::uint8_t { a, b, };"
                                    "template <class T> concept MyConcept = requires(T t) { t.x; } && true;"), "")

    def test_types_in_classes_hide_no_name_of_the_courses_headers(self):
        for text in ("struct at {} x_;", "typedef int at;", "using at = int;", "struct Communicator { int a; } c_;",
                     "enum class Communicator { a } c_;", "struct [[nodiscard]] at {};"):
            why = self.changed(" private:\n", f" private:\n {text}\n")
            self.assertIn("where the course's headers mean another", why, text)

    def test_no_type_is_declared_where_it_is_not_looked_for(self):
        for text in ("using MyA = struct RankRun {};", "using MyA = enum { run_ranks };",
                     "struct My { using A = struct at {}; };",
                     "constexpr struct RankRun {} kMine{};", "constexpr enum { run_ranks } kMine{};",
                     "struct My { const struct at {} x; };", "struct My { static struct at {} x; };",
                     "struct My { typedef struct at {} x; };", "struct My { struct P {} static inline x = make(); };"):
            self.assertRegex(self.with_(text), "declare the type before|makes a type within another|hard to read", text)

    def test_one_declaration_has_one_name_outside_of_classes(self):
        for text in ("int my_f(), my_x = make();", "int my_f(int), run_ranks(int);",
                     "constexpr int kMine = 1, run_ranks = 2;",
                     "constexpr My kMine, run_ranks;", "auto my_f() -> int, my_x = 3;",
                     "const int kMine = {1}, run_ranks{2};", "constexpr int kMine = true ? 1 : 2, run_ranks = 2;",
                     "constexpr int kMine = 1, (run_ranks) = 2;", "constexpr int kMine = 1, (run_ranks)(2);",
                     "constexpr int kMine = 1, run_ranks('a');", "constexpr int kMine = 1, run_ranks(+2);",
                     "constexpr int kMine = 1, *const run_ranks = nullptr;", "constexpr int kMine{1}, My::* run_ranks = nullptr;",
                     "constexpr int kMine = 1, (*run_ranks)(int) = nullptr;"):
            self.assertIn("declares several names at once", self.with_(text), text)
        self.assertEqual(self.with_("struct My { My(int a) : a_{a}, b_(2) {} int a_, b_{}; };"
                                    "std::map<int, int> my_f(int, int); auto my_g() -> std::map<int, int>;"
                                    "constexpr std::pair<int, int> kMine{1, 2};"
                                    "constexpr auto kMax = std::max<int>(1, 2);"), "")

    def test_constants_of_literals_may_be_const(self):
        self.assertTrue({"std", "size_t", "int64_t"} <= header_text.words_of_tests())  # or a header could have its own
        for text in ("const int kMine = 4;", "static const int64_t kMine = -1;", "const double kMine{1e-3};",
                     "const int k_(3);",
                     "inline const bool kMine = true;", "const std::size_t kMine = 2 * 0x10u;",
                     "const float kMine[2] = {1.f, 2};"):
            self.assertEqual(self.with_(text), "", text)
        for text in ("const Mine kMine = 4;", "const int kMine = f();", "const int kMine = 4_mine;",
                     "const int kMine(f());",
                     "const int64_t& kMine = 4;", "const std::string kMine = \"a\";", "const auto kMine = 4;",
                     "const int kMine = 1 / 0;", "const uint8_t kMine = 4;", "thread_local const int kMine = 4;"):
            self.assertIn("has a variable", self.with_(text), text)

    def test_a_variable_is_found_in_whatever_way_it_is_written(self):
        for text in ("struct Mine my_x;", "Mine (my_x);", "Mine (my_x){};", "inline Mine (my_x){};",
                     "your::Mine (my_x){};",
                     "enum MyEnum my_x;", "enum { kMyA } my_x;"):
            self.assertIn("has a variable", self.with_(f"struct Mine {{ Mine(); }}; {text}"), text)

    def test_a_class_of_the_course_may_be_declared_before_it_is_there(self):
        names = "class FullySharded; struct Prefetcher; class Communicator; class FlatParameter;"
        self.assertEqual(self.with_(names), "")
        self.assertEqual(self.changed("struct Tape;", "struct Tape { int a; };", "task1_meta_init/meta_init.h"), "")
        for text in ("class HeldMemory;", "class vector;", "template <class T> class FullySharded;",
                     "struct UnitState;",
                     "}\nclass FullySharded;\nnamespace fsdp {", "namespace my_own { class FullySharded; }",
                     "class FullySharded; class FullySharded {};"):
            self.assertRegex(self.with_(text), "means something else in the tests|another `UnitState`", text)

    def test_a_class_that_a_student_adds_may_have_operators_as_friends(self):
        stream = "friend std::ostream& operator<<(std::ostream& out, const My& x) { return out << x.a; }"
        equal = "friend bool operator==(const My&, const My&) = default;"
        self.assertEqual(self.with_(f"struct My {{ int a; {stream} {equal} }};"), "")
        self.assertEqual(self.changed(" private:\n", f" private:\n struct My {{ int a; {stream} }};\n"), "")
        pointer = "const std::shared_ptr<FlatParameter>&"
        for text in (f"friend bool operator==({pointer}, {pointer});",
                     "friend std::ostream& operator<<(std::ostream& out, const FlatParameter& x) { return out; }"):
            self.assertIn("which the tests would use", self.changed(" private:\n", f" private:\n {text}\n"), text)
        self.assertIn("make it a friend in a class that you add", self.with_("bool operator==(const My&, const My&);"))

    def test_a_class_of_the_course_gets_no_base_whose_friends_the_tests_would_find(self):
        class_ = "class FlatParameter {"
        for bases in ("public Mine", "std::enable_shared_from_this<FlatParameter>, Mine", "std::vector<Mine>"):
            why = self.changed(class_, f"class FlatParameter : {bases} {{")
            self.assertIn("the course's header does not", why, bases)
        for new in ("class FlatParameter final {",
                    "class FlatParameter : public std::enable_shared_from_this<FlatParameter> {"):
            self.assertEqual(self.changed(class_, new), "", new)

    def test_other_spellings_of_a_type_are_no_other_type(self):
        for name, old, new in ((self.NAME, "int64_t shard_numel()", "std::int64_t shard_numel()"),
                               (self.LAYOUT, "std::vector<int64_t> offsets", "std::vector<std::int64_t> offsets"),
                               (self.NAME, "const at::Tensor& shard()", "at::Tensor const& shard()"),
                               (self.NAME, "const at::Tensor& shard()", "const torch::Tensor& shard()"),
                               (self.NAME, "const std::vector<NamedParameter>& parameters()",
                                "std::vector<NamedParameter> const& parameters()"),
                               (self.NAME, "gathering, unsharded }", "gathering, unsharded, }"),
                               (self.NAME, "using Materialize = std::function<at::Tensor(const at::Tensor& parameter)>",
                                "typedef std::function<torch::Tensor(at::Tensor const& parameter)> Materialize")):
            self.assertEqual(self.changed(old, new, name), "", new)
        for new in ("at::Tensor& shard()", "const mine::torch::Tensor& shard()", "const at::Tensor* shard()"):
            self.assertIn("has another `FlatParameter::shard`", self.changed("const at::Tensor& shard()", new), new)

    def test_default_arguments_stay_as_they_are(self):
        for name, old, new in ((self.NAME, "void unshard();", "void unshard(bool mine = false);"),
                               (self.LAYOUT, "int world_size);", "int world_size = 1);"),
                               (self.NAME, "materialize = nullptr", "materialize = mine()"),
                               (self.NAME, self.END, "inline void FlatParameter::reshard(int x = 1) {}\n" + self.END)):
            self.assertIn("than the course's header", self.changed(old, new, name), new)
        self.assertIn("lacks `FlatParameter::FlatParameter`", self.changed("& materialize = nullptr", "& materialize"))
        self.assertEqual(self.with_("inline void FlatParameter::mine(int x) {} int my_f(int a = 1);"), "")

    def test_any_text_is_read_or_refused(self):
        generator = random.Random(0)
        pieces = re.findall(r"\w+|\s+|[^\w\s]", course.blank()[self.NAME].decode())
        for _ in range(300):
            text = pieces[:]
            for _ in range(generator.choice((1, 3, 30))):
                at, end = sorted(generator.choices(range(len(text) + 1), k=2))
                text[at:at + 9] = generator.choice((text[end:end + 9], [], list("{}()<>[]:;=,~"), text[at:at + 9] * 2))
            self.refusal("".join(text))
        for text in ("struct A {" * 5000, "(" * 5000, "a<" * 5000, "template <> " * 5000, "namespace a {" * 5000,
                     "int operator(", "int operator()", "~", "int a::operator", "struct", "int a,", "class A : ", "typedef"):
            self.assertNotEqual(self.refusal(text), "", text[:20])

    def test_a_large_header_is_read_in_one_pass(self):  # in two, each of these would take hours
        for text in ("; " * 400_000, "\n;" * 400_000, "".join(f"int mine_{i}();\n" for i in range(60_000)),
                     "enum My { " + ", ".join(f"mine_{i}" for i in range(60_000)) + "};",
                     "struct My {" + "int f(int (*)(int)) const; " * 20_000 + "};",
                     "struct My {" + "struct A { int a; } a_; " * 20_000 + "};",
                     "std::vector<int>" + " const" * 90_000 + " my_f();",
                     "std::vector<" * 20_000 + "int" + " const>" * 20_000 + " my_f();",
                     "".join(f"class Mine{i}; " for i in range(20_000)),
                     "constexpr int kMine = my_f<" + "1, " * 200_000 + "1>();"):
            self.assertEqual(self.with_(text), "", text[:20])
        self.assertIn("could be a macro", self.with_("const int" + " MINE[1]" * 90_000 + ";"))

    def test_a_mark_of_utf_8_at_the_beginning_is_no_code(self):
        for name, content in course.blank().items():
            if name.endswith(".h"):
                self.assertIsNone(header_text.wrong(name, b"\xef\xbb\xbf" + content), name)
        self.assertEqual(header_text.wrong(self.NAME, b"\xef\xbb\xbf\n\nint x;\n")[0], 3)

    def test_the_line_is_told(self):
        self.assertEqual(header_text.wrong(self.NAME, b"#pragma once\n\nint x;\n")[0], 3)
        for text in ("// \\\n \\ \n\nint x;", "namespace \\\nfsdp {}\n\nint x;", "/* \\\n\\\n */\nint x;"):
            self.assertEqual(header_text.wrong(self.NAME, text.encode())[0], 4, text)
        given = course.blank()[self.NAME].decode()
        for old, new in (("int64_t shard_numel()", "int shard_numel()"), ("void unshard();", "void unshard(int = 1);")):
            line = given[:given.index(old)].count("\n") + 1
            self.assertEqual(header_text.wrong(self.NAME, given.replace(old, new).encode())[0], line, new)
        line = given[:given.index("class FlatParameter {")].count("\n") + 1
        self.assertEqual(header_text.wrong(self.NAME, given.replace("  void unshard();", "").encode())[0], line)
        self.assertEqual(header_text.wrong_in({self.NAME: b"int x;", LISTED: b"int x;"}, [LISTED, self.NAME])[:50],
                         f"tasks/{self.NAME}:1 has a variable"[:50])

    def test_every_solution_passes(self):
        for folder in ("tasks", "solutions", *(f"grading/{name}_solution" for name in course.OTHERS)):
            for path in (course.ROOT / folder).rglob("*.h"):
                name = path.relative_to(course.ROOT / folder).as_posix()
                self.assertIsNone(header_text.wrong(name, path.read_bytes()), path)


class Assembling(unittest.TestCase):
    """grading/grader/assembler/as, on what g++ could give it."""

    def assembled(self, text):
        """The exit status and what it says."""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "x.s").write_text(text)
            done = subprocess.run([course.ROOT / "grading/grader/assembler/as", "x.s", "-o", "x.o"], cwd=folder,
                                  capture_output=True, text=True)
        return done.returncode, done.stderr

    def test_what_gpp_writes_passes(self):
        text = ('\t.file\t"x.cpp"\n\t.text\n\t.section\t.rodata.str1.1,"aMS",@progbits,1\n.LC0:\n'
                '\t.string\t"; .incbin \\"f\\" /* */"\n\t.section\t.text._ZN1aD2Ev,"axG",@progbits,_ZN1aD5Ev,comdat\n'
                '\t.weak\t_ZN1aD2Ev\n_ZN1aD2Ev:\n.LFB0:\n\t.cfi_startproc\n\tmovq\t%fs:40, %rax\n\tret\n'
                '\t.cfi_endproc\n.LFE0:\n\t.size\t_ZN1aD2Ev, .-_ZN1aD2Ev\n\t.section\t.note.GNU-stack,"",@progbits\n')
        self.assertEqual(self.assembled(text), (0, ""))

    def test_directives_that_no_cpp_makes_are_refused(self):
        for line in ('.incbin "/etc/passwd"', 'x: .incbin "f"', '"x": .incbin "f"', 'x : .incbin "f"', 'nop; .include "f"',
                     '/* */ .incbin "f"', '.string "a"; .incbin "f"', "\t.macro m", "\t.symver f,g@h", "\t.rept 9"):
            status, said = self.assembled(f"\t.text\n{line}\n")
            self.assertEqual(status, 1, line)
            self.assertIn("g++ does not write", said, line)

    def test_a_section_that_an_attribute_names_is_refused(self):
        for line in ('\t.section\t.deplibs,"MS",@0x6fff4c04,1#,"a"', '.section .rodata.x,"a",@progbits',
                     '\t.section\t.rodata.x,"a",@progbits#,"a"'):
            status, said = self.assembled(f"\t.text\n{line}\n")
            self.assertEqual((status, said), (1, "error: an attribute names a section: no solution needs that\n"))


class Looks(unittest.TestCase):
    def test_an_object_has_the_sections_that_cpp_makes(self):
        def wrong(row):
            rows = ["Section Headers:", "  [Nr] Name Type Address", "  [ 0]   NULL 0", f"  [ 1] {row} 0000", ""]
            with mock.patch.object(objects, "output", lambda *_: "\n".join(rows)):
                return list(objects.wrong_sections("x.o"))

        for row in (".text PROGBITS", ".rela.text._ZN1aEv RELA", ".bss NOBITS", ".init_array.00100 INIT_ARRAY",
                    ".note.GNU-stack PROGBITS", ".data.rel.ro.local PROGBITS", ".group GROUP"):
            self.assertEqual(wrong(row), [], row)
        for row in (".deplibs LLVM_DEPENDENT_LIBRARIES", ".deplibs PROGBITS", ".text LLVM_DEPENDENT_LIBRARIES",
                    "mine PROGBITS", ".rodata x PROGBITS", ".gnu.lto_.x PROGBITS", ".ctors PROGBITS", ".text 6fff4c04:",
                    ".textual PROGBITS", ""):
            self.assertEqual(len(wrong(row)), 1, row)
        with mock.patch.object(objects, "output", lambda *_: ""):
            self.assertEqual(len(list(objects.wrong_sections("x.o"))), 1)

    def test_what_a_solution_may_not_use_is_named_with_the_reason(self):
        names = {"_exit", "memcpy", "_ZN4fsdp12Communicator8take_logEv", "_ZN4c10d5StoreD2Ev", "_Znwm",
                 "_ZTVN10__cxxabiv117__class_type_infoE", "_ZN4fsdp3badIiEEvT_"}
        with mock.patch.object(objects, "names_of_others", lambda: {
                "_ZN4fsdp3badIiEEvT_": ("common/testing", True)}):
            found = sorted(objects.wrong_uses(names))
        self.assertEqual(len(found), 4)
        self.assertIn("uses _exit: a solution computes", found[0])
        self.assertIn("uses c10d::Store::~Store, which is nothing of std", found[1])
        self.assertIn("uses fsdp::bad<int> of common/testing/, on which no task stands", found[3])
        self.assertIn("uses fsdp::Communicator::take_log: the log of its collectives", found[2])

    def test_a_long_name_is_looked_at_and_shown_in_part(self):
        name = "_Z" + "3mineIS" * 100
        with (mock.patch.object(objects, "output", lambda *_, **__: "mine::" + "x" * 1_000_000),
              mock.patch.object(objects, "names_of_others", dict)):
            (told,) = objects.wrong_uses([name])
        self.assertIn("which is nothing of std", told)
        self.assertLess(len(told), 400)

    def test_what_the_tests_define_is_neither_defined_nor_used(self):
        if not list(objects.folder_of("mine_task2_tests").rglob("*.o")):
            self.skipTest("no tests are built")
        named = dict(zip(objects.demangled(sorted(objects.names_of_tests())), sorted(objects.names_of_tests())))
        self.assertFalse([name for name in named if name.startswith(("fsdp::FlatParameter::", "fsdp::ShardedOptimizer::"))])
        helper = named["fsdp::make_large_units"]
        with (mock.patch.object(objects, "wrong_sections", lambda path: []),
              mock.patch.object(objects, "output", lambda *_, **__: "fsdp::make_large_units")):
            for kind, refused in (("T", True), ("W", True), ("u", True)):
                defined = {"--defined-only": [(helper, kind)], "-u": []}
                with mock.patch.object(objects, "symbols", lambda *how: defined[how[-2] if "-u" not in how else "-u"]):
                    told = list(objects.wrong_symbols("x.o"))
                self.assertEqual([why for why in told if "as the tests do" in why] != [], refused, kind)
            self.assertEqual(list(objects.wrong_uses([helper])), ["uses fsdp::make_large_units, which the tests define"])
        self.assertFalse(objects.is_of_tests_alone("fsdp::NamedParameter::operator="))  # which common/ may make anywhere
        self.assertFalse(objects.is_of_tests_alone("void (*)(fsdp::Module&)"))

    def test_no_solution_defines_or_uses_what_the_tests_define(self):
        stacks = {path.name for path in objects.BUILD.glob("CMakeFiles/*_task*.dir")
                  if re.fullmatch(r"(reference|second)_task\d\.dir", path.name)}
        found = [(path.name, why) for stack in sorted(stacks)
                 for path in sorted((objects.BUILD / "CMakeFiles" / stack).rglob("*.o"))
                 for why in objects.wrong_symbols(path) if "the tests" in why]
        self.assertEqual(found, [])
        if not stacks:
            self.skipTest("no solutions are built")

    def test_what_computes_is_allowed_in_all_its_forms_and_what_reaches_out_is_not(self):
        for name in ("log1p log1pf log1pl hypotf asinh fdiml ldiv cabs cexpf __muldc3 __divsc3 strtok strncat "
                     "strcoll wcslen wmemcpy vswprintf __fixunsdfti strtold perror strerror getpid __strcpy_chk "
                     "pthread_cond_clockwait pthread_mutex_timedlock sched_yield __addtf3 __netf2 __extenddftf2 "
                     "__trunctfdf2 __floatunditf __fixtfdi __aarch64_ldadd4_acq_rel __aarch64_cas16_relax "
                     "__aarch64_swp1_sync").split():
            self.assertEqual(list(objects.wrong_uses({name})), [], name)
        for name in ("open openat dlopen fopen fdopen freopen dup2 pipe fork execve kill system popen mmap ptrace "
                     "syscall setvbuf setbuf setlinebuf setenv getenv vdprintf dprintf fileno pthread_kill "
                     "pthread_cancel catopen setlocale wcsftime __aarch64_system __aarch64_ldadd4_acq_rel_x x__addtf3 "
                     "__open_tf3").split():
            self.assertEqual(len(list(objects.wrong_uses({name}))), 1, name)

    def test_a_solution_may_ask_whether_there_is_a_gpu_and_do_no_more_with_it(self):
        with mock.patch.object(objects, "names_of_others", lambda: {}):
            for name, refusals in (("_ZN5torch4cuda12is_availableEv", 0), ("_ZN5torch4cuda12device_countEv", 0),
                                   ("_ZN5torch4cuda11synchronizeEl", 1)):
                self.assertEqual(len(list(objects.wrong_uses({name}))), refusals, name)

    def test_numbers_and_texts_may_be_thrown_caught_and_kept_in_any(self):
        for name in ("_ZTIPKc", "_ZTIPc", "_ZTIi", "_ZTIf", "_ZTSd", "_ZTIv", "_ZTIPv", "_ZTIDn", "_ZTIDs", "_ZTIPKDi"):
            self.assertEqual(list(objects.wrong_uses({name})), [], name)
        for name in ("_ZTI4Mine", "_ZTIPPKc", "_ZTVi", "_ZTIN7testing4TestE", "_ZTIFvvE"):
            self.assertEqual(len(list(objects.wrong_uses({name}))), 1, name)

    def test_what_reaches_files_the_environment_and_the_tests_own_memory_is_refused(self):
        names = {"_ZN2at4_ops9from_file4callEN3c1017basic_string_viewIcEE": "reads or writes files",
                 "_ZN2at12MapAllocatorD1Ev": "reads or writes files",
                 "_ZNSt12__basic_fileIcE8sys_openEiSt13_Ios_Openmode": "reads or writes files",
                 "_ZN5torch8autograd8profiler14ProfilerResult4saveERKSs": "reads or writes files",
                 "_ZN3c105utils7set_envEPKcS2_b": "reads or changes the environment",
                 "_ZN3c1018FatalSignalHandler11getInstanceEv": "handles signals",
                 "_ZN5torch7Library5_implEPKcONS_11CppFunctionENS_18_RegisterOrVerifyE": "registers operators",
                 "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE": "watches LibTorch's operators",
                 "_ZNK3c1010Dispatcher17findSchemaOrThrowEPKcS2_": "looks up operators by name",
                 "_ZN2at20enableRecordFunctionEb": "watches LibTorch's operators",
                 "_ZN2at24get_record_function_tls_Ev": "watches LibTorch's operators",
                 "_ZN3c1010Dispatcher23addRegistrationListenerESt10unique_ptrINS_22OpRegistrationListenerEE":
                 "watches LibTorch's operators",
                 "_ZN4fsdp9StateFileC1ERKSsll": "is the trainer's to make",
                 "_ZN4fsdp13device_blocks9allocatedEPKvl": "live bytes are counted where memory is taken",
                 "_ZN4fsdp12Communicator6createERKNS_11RankContextE": "connects ranks",
                 "_ZN2at4impl16SetVariableHooksEPNS0_22VariableHooksInterfaceE": "is not a solution's to change",
                 "_ZN3c104impl22SetAutogradMetaFactoryEPNS0_19AutogradMetaFactoryE": "is not a solution's to change",
                 "_ZN2at15set_num_threadsEi": "how many threads compute",
                 "_ZN3c104impl13OperatorEntry14registerKernelEv": "registers operators",
                 "_ZN3c1020SetStorageImplCreateENS_10DeviceTypeEPFvvE": "is not a solution's to change",
                 "_ZN5torch8inductor9loadModelEv": "nothing of std, of LibTorch or of the course",
                 "_ZN4fsdp7MappingC1EiRKNS_8OpenFileE": "of common/comm/, on which no task stands",
                 "_ZN4fsdp12Communicator4rankEv": "", "_ZN2at4_ops4view4callERKNS_6TensorE": "",
                 "_ZN5torch7Library9_fallbackEONS_11CppFunctionE": ""}
        rooms = {name: ("common/comm", True) for name in names if name.startswith("_ZN4fsdp")}
        with mock.patch.object(objects, "names_of_others", lambda: rooms):
            for name, why in names.items():
                found = list(objects.wrong_uses({name}))
                self.assertEqual(len(found), 1 if why else 0, f"{name}: {found}")
                self.assertIn(why, "".join(found))

    def test_not_even_a_template_may_be_another_in_the_libraries_of_the_tests(self):
        defined = [("_ZN8nlohmann6detail5writeEv", "W"), ("_ZN7testing14TestPartResultD1Ev", "W"), ("_ZN3CLI3AppD2Ev", "V"),
                   ("_ZNSt6vectorIiE4sizeEv", "W"), ("_ZN4fsdp4mineEv", "W"), ("_ZNK2at6Tensor3cpuEv", "W"),
                   ("_ZN2at6Tensor3cpuEv", "T")]
        with (mock.patch.object(objects, "symbols", lambda *how: defined if "--defined-only" in how else []),
              mock.patch.object(objects, "wrong_sections", lambda _: []),
              mock.patch.object(objects, "names_of_others", lambda: {})):
            found = sorted(why.split(":")[0] for why in objects.wrong_symbols("/bin/true"))
        self.assertEqual(found, ["defines CLI", "defines at", "defines nlohmann", "defines testing"])

    def test_files_of_a_submission_may_use_one_another(self):
        kinds = {"a.o": [("_ZN4util3padEi", "T"), ("counted", "B"), ("_ZN2at6Tensor3cpuEv", "T")], "b.o": []}
        paths = [(pathlib.Path(name), f"task1/{name}pp") for name in kinds]
        used = {("_ZN4util3padEi", "U"), ("counted", "U"), ("_ZN2at6Tensor3cpuEv", "U"), ("_ZN4util4lessEv", "U")}
        with (mock.patch.object(objects, "objects", lambda _, task: paths if task.number == 1 else []),
              mock.patch.object(objects, "symbols", lambda *how: kinds[how[-1].name] if "-g" in how else used),
              mock.patch.object(objects, "wrong_sections", lambda _: []),
              mock.patch.object(objects, "output", lambda *how, given="": given),
              mock.patch.object(objects, "demangled", list),
              mock.patch.object(objects, "names_of_others", lambda: {"_ZN2at6Tensor3cpuEv": ("libtorch_cpu.so", True)})):
            own = objects.own_names("graded", course.tasks()[0])
            found = [why.split(",")[0].split(":")[0] for why in objects.wrong_symbols(paths[1][0], own)]
        self.assertEqual(own, {"_ZN4util3padEi", "counted"})
        self.assertEqual(sorted(found), ["uses _ZN2at6Tensor3cpuEv", "uses _ZN4util4lessEv"])

    def test_a_name_of_c_is_refused_if_it_is_somebody_elses(self):
        def wrong(*defined):
            with (mock.patch.object(objects, "symbols", lambda *how: defined if "-g" in how else []),
                  mock.patch.object(objects, "wrong_sections", lambda _: []),
                  mock.patch.object(objects, "names_of_others", lambda: {"write": ("libc.so.6", True)})):
                return list(objects.wrong_symbols("/bin/true"))

        self.assertEqual(wrong(("counted", "B"), ("helper", "T")), [])
        for name, kind in (("write", "T"), ("memcpy", "T"), ("mine", "i"), ("mine", "W"), ("mine", "C")):
            self.assertEqual(len(wrong((name, kind))), 1, name)

    def test_every_solution_that_is_built_passes(self):
        found = [(path, source) for stack in ("reference", *course.OTHERS) for task in course.tasks()
                 for path, source in objects.objects(stack, task)]
        if not found:
            self.skipTest("no solution is built")
        for path, source in found:
            self.assertEqual(list(objects.wrong_symbols(path)), [], f"{path.parts[-4:]} of {source}")

    def test_a_tool_that_fails_or_prints_too_much_is_a_refusal(self):
        for command in (["false"], ["yes"]):
            with (self.assertRaises(course.Refused) as caught,
                  mock.patch.object(objects, "LIMITS", ("prlimit", "--fsize=10000", "--cpu=60"))):
                objects.output(*command)
            self.assertIn(f"{command[0]} fails on its object, or prints too much", str(caught.exception))

    def test_what_a_tool_prints_may_be_any_bytes(self):
        self.assertEqual(objects.output("printf", r"_Z1f\377"), "_Z1f\\xff")
        self.assertIn("a\\xff", objects.output("c++filt", given="a\udcff"))

    def test_what_a_header_adds_to_the_tests_is_looked_at(self):
        uses = {"over mine": {"_exit", "memcpy", "_ZN4fsdp8TestRank7observeEv"},
                "over blank": {"_ZN4fsdp8TestRank7observeEv"}}
        files = {"over mine": ["/etc/passwd", "/usr/include/x.h"], "over blank": ["/usr/include/x.h"]}
        with (mock.patch.object(objects, "over_headers", lambda *_: [("over mine", "over blank")]),
              mock.patch.object(objects, "symbols", lambda _, path: [(name, "U") for name in uses[path]]),
              mock.patch.object(objects, "own_names", lambda *_: frozenset()),
              mock.patch.object(objects, "strong_names", lambda *_: {"_ZN4fsdp6reduceEv", "_ZN4fsdp4mineEv"}),
              mock.patch.object(objects, "defined_in", lambda _: {"_ZN4fsdp6reduceEv": "W", "_ZN4fsdp5otherEv": "W"}),
              mock.patch.object(objects, "included", lambda path: list(map(pathlib.Path, files[path]))),
              mock.patch.object(objects, "given_folders", lambda: (pathlib.Path("/usr"),))):
            found = list(objects.added("graded", "task2_tests", objects.BUILD / "graded"))
        self.assertEqual(len(found), 3)
        self.assertIn("includes /etc/passwd, which is no header", found[0])
        self.assertIn("uses _exit: a solution computes", found[1])
        self.assertIn("lets the tests define fsdp::reduce, as a .cpp file does", found[2])

    def test_what_the_tests_use_and_a_solution_must_not_is_looked_for_in_the_text_of_headers(self):
        used = set()
        for task in course.tasks():
            for path in objects.folder_of(f"mine_task{task.number}_tests").rglob("*.o"):
                used.update(name.partition("@")[0] for name, _ in objects.symbols("-u", path))
        if not used:
            self.skipTest("no tests are built")
        unseen = []
        for why in objects.wrong_uses(used):
            if not re.match(r"uses (testing::|nlohmann::|CLI::|__cxa_demangle\b)|.* on which no task stands|.*, which the tests define", why):
                class_and_name = why.removeprefix("uses ").split(": ")[0].partition("[")[0].split("::")[-2:]
                if not any(set(class_and_name).issuperset(words) for words in header_text.measures()):
                    unseen.append(why)
        self.assertEqual(unseen, [])

    def test_an_object_that_the_grader_cannot_compare_is_a_refusal(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ("graded_train.dir/train.cpp.o", "graded_task1_tests.dir/a.o", "mine_task1_tests.dir/a.o"):
                (pathlib.Path(folder) / "CMakeFiles" / path).parent.mkdir(parents=True)
                (pathlib.Path(folder) / "CMakeFiles" / path).touch()
            with mock.patch.object(objects, "BUILD", pathlib.Path(folder)):
                self.assertEqual(len(list(objects.over_headers("graded", "task1_tests"))), 1)
                self.assertIn("no train.cpp.o of mine_train", objects.wrong_over_headers("graded", "train", None))

    def test_nothing_is_looked_at_that_the_program_is_not_linked_from(self):
        looked = []
        with (mock.patch.object(objects, "wrong", lambda stack, task, _: looked.append((stack, task.number)) or ""),
              mock.patch.object(objects, "wrong_over_headers", lambda stack, what, _: looked.append((stack, what)) or "")):
            for program in programs.all_programs()[:3]:
                programs.refused_object(program, {})
            self.assertEqual(looked, [("graded", 1), ("graded", "task1_tests"), ("graded", 1), ("graded", 2),
                                      ("graded", "task2_tests"), ("graded_on_1", 2), ("graded_on_1", "task2_tests")])
            looked.clear()
            programs.refused_object(programs.training_program(), {})
            self.assertEqual(looked[-3:], [("graded", 7), ("graded", "strategy"), ("graded", "train")])
        last = next(p for p in programs.all_programs() if p.target == "graded_task7_tests")
        self.assertEqual(last.over_headers, ["strategy", "task7_tests"])

    def test_only_the_courses_headers_and_those_of_the_system_may_be_included(self):
        def included(name):
            with (mock.patch.object(objects, "output", lambda *_: f"x.o: #deps 1\n    {name}\n"),
                  mock.patch.object(objects, "given_folders", lambda: (pathlib.Path("/usr"),))):
                files = objects.included(objects.BUILD / "x.o")
                return list(objects.wrong_includes(files, "graded", objects.BUILD / "graded"))

        for name in ("/usr/include/stdio.h", "../../common/comm/call.h", "graded/task1/x.h"):
            self.assertEqual(included(name), [], name)
        for name in ("/proc/solutions/task2/x.cpp", "/dev/ptmx", "/etc/passwd", "../../solutions/task1/x.h",
                     "../../common/testing/multi_rank.h", "../../tests/x.h", "../../../seed"):
            self.assertEqual(len(included(name)), 1, name)


    def test_the_compiler_s_own_headers_may_be_included_wherever_it_lies(self):
        with tempfile.TemporaryDirectory() as folder:
            compiler = pathlib.Path(folder) / "c++"
            compiler.write_text("#!/bin/sh\necho 'text\n#include <...> search starts here:\n"
                                f" {folder}/include\n {course.ROOT}/..\n /\n End of search list.\n /etc' >&2; echo \" $CPATH\" >&2\n")
            compiler.chmod(0o755)
            found = objects.folders_of_compiler(compiler)
        self.assertEqual(found, [pathlib.Path(folder).resolve() / "include"])
        with mock.patch.dict(os.environ, CPATH="/etc"):
            found = objects.folders_of_compiler("c++")
        self.assertTrue(any((path / "stddef.h").exists() for path in found), found)
        self.assertNotIn(pathlib.Path("/etc"), found)


class Sandbox(unittest.TestCase):
    def test_what_tries_to_break_out_does_not(self):
        if sandbox.best_mode() == "limits":
            self.skipTest("this machine has neither namespaces nor another user")
        self.assertTrue(sandbox.works(["/bin/sh", "-c", sandbox.TRIES_TO_BREAK_OUT], sandbox.best_mode()))

    def test_what_runs_there_is_ended_first_if_memory_runs_out(self):
        done = subprocess.run([sandbox.SCRIPT, "/bin/cat", "/proc/self/oom_score_adj"], env=sandbox.environment(),
                              capture_output=True, text=True)
        self.assertEqual(done.stdout, "1000\n", done.stderr)

    def test_a_program_that_does_not_start_there_is_refused_with_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:  # only its owner may enter it
            program = pathlib.Path(folder) / "tests"
            program.write_text("no program")
            program.chmod(0o755)
            with self.assertRaises(course.Refused) as caught:
                sandbox.require_that_tests_run(program)
        self.assertIn(f"other users may not enter {folder}", str(caught.exception))

    def test_what_runs_there_has_lost_system_calls(self):
        if not sandbox.filters_calls():
            self.skipTest("confine is not built, or the kernel filters no calls")
        tries = "setsid true; unshare --user true && exit 1; exit 0"
        done = subprocess.run([sandbox.SCRIPT, "/bin/sh", "-c", tries], env=sandbox.environment(),
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        self.assertIn("setsid: setsid failed: Operation not permitted", done.stderr)

    def test_what_runs_there_is_the_first_to_end_when_memory_is_short(self):
        done = subprocess.run([sandbox.SCRIPT, "/bin/cat", "/proc/self/oom_score_adj"], capture_output=True,
                              env=sandbox.environment(), text=True)
        self.assertEqual(done.stdout, "1000\n")

    def test_all_processes_together_have_a_limit_of_memory(self):
        if not memory_group.place() or sandbox.best_mode() != "namespaces":
            self.skipTest("no control group can be made here, or no scratch folder in memory")
        # Files in memory are in no limit of a process.
        takes = "head -c 60000000 /dev/zero > /tmp/a && head -c 60000000 /dev/zero > /dev/shm/a && echo all"
        for megabytes, printed in ((90, ""), (1024, "all\n")):
            with mock.patch.dict(course.rubric()["limits"], all_memory_bytes=megabytes << 20):
                environment = sandbox.environment(job=901)
            done = subprocess.run([sandbox.SCRIPT, "/bin/sh", "-c", takes], env=environment, text=True,
                                  capture_output=True)
            self.assertEqual(done.stdout, printed, done.stderr)

    def test_groups_of_graders_that_were_killed_are_removed(self):
        ended = subprocess.Popen(["true"])
        ended.wait()
        with tempfile.TemporaryDirectory() as folder:
            for name in (f"{memory_group.prefix()}{ended.pid}_0", f"{memory_group.prefix()}{os.getpid()}_0",
                         f"fsdp_graded_0_{ended.pid}_0"):
                (pathlib.Path(folder) / name).mkdir()
            memory_group.remove_left(pathlib.Path(folder))
            left = [path.name for path in pathlib.Path(folder).iterdir()]
        self.assertCountEqual(left, [f"{memory_group.prefix()}{os.getpid()}_0", f"fsdp_graded_0_{ended.pid}_0"])

    def test_compilers_see_neither_solutions_nor_results_nor_devices(self):
        if sandbox.best_mode() != "namespaces" or not (course.BUILD / "build.ninja").exists():
            self.skipTest("this machine has no namespaces, or nothing is built")
        for seen, path in ((True, "common/comm/call.h"), (True, "solutions/task2_flat_parameter/flat_parameter.h"),
                           (False, "solutions/task2_flat_parameter/flat_parameter.cpp"),
                           (False, "grading/rubric.toml"), (False, f"{programs.KEPT}/lock"),
                           (False, f"/proc/1/root{course.ROOT}/grading/rubric.toml"), (False, "/dev/ptmx"), (False, "/dev/kmsg")):
            command = [sandbox.SCRIPT, "/usr/bin/test", "-e", course.ROOT / path]
            done = subprocess.run(command, env=sandbox.compiler_environment())
            self.assertEqual(done.returncode == 0, seen, path)

    def test_assembly_is_refused_whatever_made_the_word_but_not_that_of_headers(self):
        if not (course.BUILD / "build.ninja").exists() or "clang" in sandbox.compiler():
            self.skipTest("nothing is built, or not by g++, which has an assembler of its own")
        with tempfile.TemporaryDirectory(dir=course.BUILD, prefix="trial.") as folder:
            os.chmod(folder, 0o755)
            graded = pathlib.Path(folder) / "graded"
            graded.mkdir()
            (pathlib.Path(folder) / "given.h").write_text(
                '#define MAKES(a, b) a##b\ninline void wait_a_little() { asm volatile("nop"); }\n')
            for made, text in ((True, "void f() { wait_a_little(); }"), (False, 'void f() { MAKES(as, m)("nop"); }'),
                               (False, 'MAKES(as, m)("nop");')):
                (graded / "mine.cpp").write_text(f'#include <given.h>\n{text}\n')
                command = [sandbox.COMPILE, sandbox.compiler(), f"-I{folder}", "-c", graded / "mine.cpp", "-o", "mine.o"]
                done = subprocess.run(command, cwd=folder, env=sandbox.compiler_environment(), capture_output=True,
                                      text=True)
                self.assertEqual(done.returncode == 0, made, text + done.stderr)
                self.assertEqual("error: uses assembly" in done.stderr, not made, text)

    def test_what_a_program_leaves_running_as_its_user_is_ended(self):
        if os.geteuid() != 0:
            self.skipTest("only root changes the user")
        job = 900
        left = subprocess.Popen(["setpriv", "--reuid", str(sandbox.users(job)[1]), "--clear-groups", "setsid",
                                 "sleep", "600"])
        while text_of(pathlib.Path(f"/proc/{left.pid}/cmdline")) != "sleep\x00600\x00":
            time.sleep(0.01)
        sandbox.clean_up(job)
        self.assertEqual(left.wait(20), -9)


class Sessions(unittest.TestCase):
    def test_end_with_what_left_its_group(self):
        started = subprocess.Popen(["bash", "-mc", "sleep 600 & echo $!; wait"], start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        with started:
            number = int(started.stdout.readline())
            session.end(started)
        self.assertNotIn(number, list(session.members(started.pid)))
        self.assertNotEqual(text_of(pathlib.Path(f"/proc/{number}/cmdline")), "sleep\x00600\x00")


    def test_what_a_grader_runs_ends_with_it_when_it_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            told = pathlib.Path(folder) / "number"
            command = ["sh", "-c", f"echo $$ > {told}; exec sleep 600"]
            code = f"import sys; sys.path.append({str(GRADING)!r}); from grader import run; run.run({command}, {{}}, 600)"
            grader = subprocess.Popen([sys.executable, "-c", code])
            while not text_of(told).endswith("\n"):
                time.sleep(0.01)
            grader.kill()
            grader.wait()
            left = pathlib.Path(f"/proc/{text_of(told).strip()}/cmdline")
            deadline = time.monotonic() + 20
            while (running := text_of(left)) and time.monotonic() < deadline:
                time.sleep(0.01)
        self.assertEqual(running, "")


class Files(unittest.TestCase):
    def test_a_text_with_any_characters_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page"
            whole_file.write(path, "m\udcfcll")
            self.assertEqual(path.read_text(), "m\\udcfcll")

    def test_several_threads_write_one_file(self):
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(4) as pool:
            path = pathlib.Path(folder) / "page"
            list(pool.map(lambda _: whole_file.write(path, "text"), range(2000)))
            self.assertEqual([*path.parent.iterdir()], [path])


def text_of(path):
    """Empty if the process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    unittest.main()
