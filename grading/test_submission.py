"""Tests which files of a submission the grader uses, and which submissions it rejects."""

import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tracemalloc
import unittest
import zipfile

import submit
from course import handout
from grader import course, leaderboard, report, submission
from grader.grade import Grade

LISTED = "task2_flat_parameter/flat_parameter.cpp"
EXTENSION = "extensions/task4_backward_hooks/checkpoint_activations.cpp"


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

    def test_a_submission_has_its_own_zip_and_the_files_in_its_folder_tasks(self):
        file, out, zipped = self.put(f"tasks/{LISTED}"), self.put("out.json"), self.zipped(LISTED)
        link = self.folder / "link"
        link.symlink_to(file)
        for path, named, expected in ((self.folder, file, True), (self.folder, link, True),
                                      (self.folder, out, False), (zipped, zipped, True),
                                      (zipped, out, False), (zipped, self.folder / "new", False)):
            self.assertEqual(submission.has(path, named), expected, (path, named))

    def test_from_a_whole_copy_of_the_course_only_source_files_in_tasks_are_taken(self):
        for folder in ("", "group7/course/"):
            with self.subTest(folder=folder):
                self.setUp()
                self.put(f"{folder}tasks/{LISTED}")
                self.put(f"{folder}solutions/{LISTED}", "// theirs\n")
                self.put(f"{folder}tests/task2_flat_parameter/test_flat_parameter.cpp")
                self.put(f"{folder}tasks/task2_flat_parameter/CMakeLists.txt")
                read = submission.read(self.folder)
                self.assertEqual(read.files, {**course.blank(), LISTED: b"// mine\n"})
                self.assertEqual(len(read.missing), len(course.blank()) - 1)

    def test_sources_and_headers_that_a_student_adds_in_a_tasks_folder_are_taken(self):
        own = (
            "task2_flat_parameter/recorder.h",
            "task2_flat_parameter/recorder.cpp",
            "extensions/task4_backward_hooks/x.hpp",
            "task2_flat_parameter/detail/y.inl",
        )
        for name in (
            LISTED,
            *own,
            "task2_flat_parameter/notes.txt",
            "mine/elsewhere.cpp",
            "task2_flat_parameter/detail/z.cpp",
        ):
            self.put(f"tasks/{name}")
        for read in (
            submission.read(self.folder),
            submission.read(self.zipped(*(f"tasks/{name}" for name in (LISTED, *own)))),
        ):
            self.assertEqual(set(read.files) - set(course.blank()), set(own))
            self.assertIn(own[1], read.sources(course.tasks()[2]))
        self.assertEqual(
            submission.read(self.folder).ignored, ("task2_flat_parameter/detail/z.cpp",)
        )

    def test_a_changed_header_of_the_course_is_not_taken_and_is_reported(self):
        changed, same = list(course.headers())[:2]
        self.put(f"tasks/{LISTED}")
        self.put(f"tasks/{changed}")
        self.put(f"tasks/{same}", course.headers()[same].decode())
        read = submission.read(self.folder)
        self.assertEqual(read.changed, (changed,))
        self.assertNotIn(changed, read.files)
        self.assertIn(changed, report.student_page(Grade("ada", changed=read.changed)))

    def test_a_submissions_digest_depends_on_sources_of_given_tasks_and_on_all_own_headers(self):
        tasks = course.tasks()
        digest = submission.completed({}).digest(tasks[1:3])
        for name, changes in (
            (LISTED, True),
            (tasks[4].files[0], False),
            ("task4_backward_hooks/own.h", True),
            ("task4_backward_hooks/own.cpp", False),
            ("task2_flat_parameter/own.cpp", True),
        ):
            self.assertEqual(
                submission.completed({name: b"x"}).digest(tasks[1:3]) != digest, changes, name
            )

    def test_files_of_tasks_are_found_in_a_zip_however_its_tool_writes_paths(self):
        for name in (
            f"./tasks/{LISTED}",
            f".//x/./tasks/{LISTED}",
            "tasks\\" + LISTED.replace("/", "\\"),
            ".\\x\\tasks/" + LISTED.replace("/", "\\"),
            f"/x/tasks/{LISTED}",
            "C:\\" + LISTED.replace("/", "\\"),
        ):
            with self.subTest(name=name):
                archive = self.zipped("./", name, f"__MACOSX/x/tasks/{LISTED}", "../../evil.cpp")
                self.assertEqual(submission.read(archive).files[LISTED], b"// mine\n")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["handed_in.zip"])

    def test_members_of_a_zip_with_hidden_paths_or_paths_that_lead_out_are_not_taken(self):
        for before in (
            "../",
            "..\\",
            "./../",
            ".\\..\\",
            "x\\..\\..\\",
            "/../",
            "C:\\..\\",
            ".git\\",
            "./.git/",
            "__MACOSX\\",
            ".\\__MACOSX\\",
        ):
            with self.subTest(before=before):
                self.assertIn(
                    "no file of tasks/", self.refused(self.zipped(f"{before}tasks/{LISTED}"))
                )
        for other in (
            f"./tasks/{LISTED}",
            "tasks\\" + LISTED.replace("/", "\\"),
            f"/tasks/{LISTED}",
        ):
            self.assertIn(
                "is in the submission twice",
                self.refused(self.zipped(f"tasks/{LISTED}", other)),
                other,
            )

    def test_a_member_of_a_zip_compressed_with_bzip2_or_lzma_is_refused_unread(self):
        for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            path = self.folder / f"{method}.zip"
            with zipfile.ZipFile(path, "w", method) as archive:
                archive.writestr(f"tasks/{LISTED}", b"\0" * 50_000_000)
            tracemalloc.start()
            self.assertIn("is compressed in an unusual way", self.refused(path))
            self.assertLess(tracemalloc.get_traced_memory()[1], 1_000_000)
            tracemalloc.stop()

    def test_a_zip_above_the_size_limit_is_refused_unread(self):
        path = self.zipped(f"tasks/{LISTED}")
        os.truncate(path, submission.MOST_ZIPPED + 1)
        self.assertIn("hand in a zip of the folder tasks/ alone", self.refused(path))

    def test_duplicate_files_links_too_large_files_and_too_many_files_are_refused(self):
        path = self.put(f"tasks/{LISTED}")
        self.put(f"old/tasks/{LISTED}")
        self.assertIn("is in the submission twice", self.refused(self.folder))
        (self.folder / "old" / "tasks" / LISTED).unlink()
        path.write_text("x" * (submission.MOST_BYTES + 1))
        self.assertIn("more than", self.refused(self.folder))
        path.unlink()
        path.symlink_to("/etc/passwd")
        self.assertIn("not a regular file", self.refused(self.folder))
        for number in range(submission.MOST_FILES):
            self.put(f"tasks/task2_flat_parameter/x{number}.h")
        self.assertIn("are allowed", self.refused(self.folder))

    def test_a_submission_without_files_of_tasks_or_that_does_not_exist_is_refused(self):
        self.assertIn("no file of tasks/", self.refused(self.folder))
        self.assertIn("can't be read as a zip", self.refused(self.put("broken.zip")))
        self.assertIn("neither a folder nor a zip", self.refused(self.folder / "none"))


class AsPeopleMakeThem(unittest.TestCase):
    """Tests the reference solutions packed in ten ways. Each of the ten must be read like the
    unpacked folder of the solutions."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.expected = submission.read(course.ROOT / "solutions")
        self.files = {
            f"tasks/{name}": content
            for name, content in {**self.expected.files, **course.headers()}.items()
        }

    def zip_of(self, files, name="mine.zip"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in files.items():
                archive.writestr(member, content)
        return path

    def read(self, path, same=lambda content: content):
        got = submission.read(path)
        self.assertEqual((got.missing, got.ignored, got.changed), ((), (), ()), path)
        self.assertEqual(
            {name: same(content) for name, content in got.files.items()}, self.expected.files, path
        )

    def test_ten_kinds_of_zips_are_read_like_the_unpacked_folder(self):
        of_windows = {
            name: b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
            for name, content in self.files.items()
        }
        inner = self.zip_of(self.files, "inner.zip").read_bytes()
        mac = {
            **self.files,
            **{f"__MACOSX/{name}": b"\0" for name in self.files},
            "tasks/.DS_Store": b"\0",
            **{f"tasks/._{name.rpartition('/')[2]}": b"\0" for name in self.files},
        }
        for name, files in (
            (
                "of_submit.zip",
                {
                    name: content
                    for name, content in self.files.items()
                    if name[6:] not in course.headers()
                },
            ),
            (
                "nested.zip",
                {
                    f"fsdp-course-main/fsdp-course/{name}": content
                    for name, content in self.files.items()
                },
            ),
            (
                "backslashes.zip",
                {name.replace("/", "\\"): content for name, content in self.files.items()},
            ),
            ("mac.zip", mac),
            (
                "without_tasks.zip",
                {name.removeprefix("tasks/"): content for name, content in self.files.items()},
            ),
            (
                "whole_copy.zip",
                {
                    **self.files,
                    "solutions/task2_flat_parameter/flat_parameter.cpp": b"x",
                    "README.md": b"x",
                },
            ),
            ("M\u00fcller, J\u00f6rg (1).zip", self.files),
            ("zip_in_zip.zip", {"mine.zip": inner}),
            ("UPPER.ZIP", self.files),
        ):
            self.read(self.zip_of(files, name))
        self.read(self.zip_of(of_windows, "windows.zip"), submission.plain)

    def test_the_only_zip_in_a_folder_as_moodle_makes_it_is_read(self):
        for name in (
            "J\u00fcrgen M\u00fcller_1234_assignsubmission_file_",
            "Ada Lovelace_77_assignsubmission_file_",
        ):
            self.read(self.zip_of(self.files, f"{name}/my work.zip").parent)
        folder = self.zip_of(self.files, "twice/one.zip").parent
        self.zip_of(self.files, "twice/two.zip")
        with self.assertRaisesRegex(
            course.Refused, "it holds one.zip and two.zip, and only one zip can be graded"
        ):
            submission.read(folder)

    def test_an_archive_that_is_not_a_zip_is_refused_and_the_message_asks_for_a_zip(self):
        for suffix in (".tar.gz", ".tgz", ".7z", ".rar", ".TAR"):
            for path in (
                self.folder / f"mine{suffix}",
                self.folder / f"folder{suffix[1:]}" / f"mine{suffix}",
            ):
                path.parent.mkdir(exist_ok=True)
                path.touch()
            for where in (
                self.folder / f"mine{suffix}",
                path.parent,
                self.zip_of({f"mine{suffix}": b""}, f"of{suffix}.zip"),
            ):
                with self.assertRaisesRegex(
                    course.Refused, f"mine{suffix} is a {suffix.lower()} archive: hand in a zip"
                ):
                    submission.read(where)

    def test_a_zip_in_a_zip_in_a_zip_is_refused(self):
        inner = self.zip_of(self.files).read_bytes()
        middle = self.zip_of({"a.zip": inner}).read_bytes()
        with self.assertRaisesRegex(course.Refused, "no file of tasks/"):
            submission.read(self.zip_of({"b.zip": middle}))


class NotBegun(unittest.TestCase):
    def test_an_extension_counts_as_begun_if_a_todo_of_its_skeleton_was_replaced(self):
        by_task = {task.number: task for task in course.tasks()}
        blank = submission.completed({})
        self.assertEqual(blank.not_begun(by_task[7]), {"7.6", "7.8", "7.9"})
        self.assertEqual(blank.not_begun(by_task[2]), {"2.6"})
        solved = submission.read(course.ROOT / "solutions")
        self.assertEqual(
            [solved.not_begun(task) for task in course.tasks()], [set()] * len(by_task)
        )
        path = "extensions/task7_integration/keep_fp32.cpp"
        begun = course.blank()[path].replace(b'todo("keep_in_fp32", "7.9");', b"plan.clear();")
        self.assertEqual(submission.completed({path: begun}).not_begun(by_task[7]), {"7.6", "7.8"})


class HostileSubmissions(unittest.TestCase):
    """Tests that a hostile submission is either read or rejected with a printable text."""

    def read(self, path):
        try:
            self.assertLessEqual(set(course.blank()), set(submission.read(path).files))
        except course.Refused as refused:
            self.assertTrue(str(refused).isprintable())
            str(refused).encode()

    def test_a_fifo_folder_or_link_in_the_place_of_a_file_is_read_or_refused_in_one_line(self):
        for make in (
            os.mkfifo,
            os.mkdir,
            lambda file: file.symlink_to("/dev/zero"),
            lambda file: file.symlink_to(file),
            lambda file: file.symlink_to(file.parent),
        ):
            with tempfile.TemporaryDirectory() as folder:
                for name in ("tasks", "m\udcfcll\n\x1b]0;title\x07/tasks"):
                    file = pathlib.Path(folder) / name / LISTED
                    file.parent.mkdir(parents=True)
                    make(file)
                    self.read(pathlib.Path(folder) / name.partition("/")[0])

    def test_a_damaged_zip_is_read_or_refused_in_one_line(self):
        raw = io.BytesIO()
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in (f"tasks/{LISTED}", f"a\nb/tasks/{LISTED}", "C:\\x", "x" * 300):
                archive.writestr(name, b"// mine\n" * 100)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m\udcfcll.zip"
            for at in range(0, len(raw.getvalue()), 3):  # sizes, offsets, methods, names, content
                data = bytearray(raw.getvalue())
                data[at] ^= 255
                path.write_bytes(data)
                self.read(path)
                path.write_bytes(data[:at])
                self.read(path)

    def test_a_thousand_nested_folders_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["bash", "-c", "for ((i = 0; i < 1200; ++i)); do mkdir d && cd d; done"],
                cwd=folder,
                check=True,
            )
            with self.assertRaises(course.Refused):
                submission.read(folder)
            subprocess.run(["rm", "-rf", os.path.join(folder, "d")], check=True)


class Submit(unittest.TestCase):
    """Tests ./fsdp submit in a copy of the course such as a student has."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.out = (
            pathlib.Path(folder.name) / "a copy",
            pathlib.Path(folder.name) / "mine.zip",
        )
        for name, (content, _) in handout.contents().items():
            if name.startswith(("grading/", "tasks/", ".pristine/", "course.toml")):
                self.put(name, content)

    def put(self, name, content=b"// mine\n"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def submit(self, *arguments):
        done = subprocess.run(
            [sys.executable, self.root / "grading/submit.py", self.out, *arguments],
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    def test_the_grader_reads_every_file_of_a_zip_that_submit_made(self):
        own = {
            f"tasks/{name}"
            for name in (
                LISTED,
                EXTENSION,
                "task7_integration/more.cpp",
                "task2_flat_parameter/detail/x.inl",
            )
        }
        for name in own:
            self.put(name)
        files, remarks = submit.collect(self.root)
        self.assertEqual((remarks, own - files.keys()), ([], set()))
        zips = []
        for _ in range(2):
            submit.check_place(self.out, self.root)
            submit.write(self.out, files)
            zips.append(self.out.read_bytes())
        self.assertEqual(*zips)
        with zipfile.ZipFile(self.out) as archive:
            archive.extractall(self.root / "unpacked")
        for where in (self.out, self.root / "unpacked"):
            read = submission.read(where)
            self.assertEqual(
                {
                    submit.WRITEUP: files[submit.WRITEUP],
                    f"tasks/{leaderboard.FILE}": read.choices,
                    **{f"tasks/{name}": read.files[name] for name in read.files},
                },
                files,
            )
            self.assertEqual((read.missing, read.ignored, read.changed), ((), (), ()))

    def test_submit_replaces_only_its_own_zip_and_writes_none_into_tasks(self):
        for make in (
            lambda: self.out.mkdir(),
            lambda: self.out.symlink_to("none"),
            lambda: zipfile.ZipFile(self.out, "w").close(),
        ):
            make()
            self.assertIn("choose another name", self.submit()[1])
            self.out.rmdir() if self.out.is_dir() else self.out.unlink()
        for self.out in (
            self.root / "tasks/mine.zip",
            self.root / "mine.tar",
            self.root / "none/mine.zip",
        ):
            self.assertIn("name a file OUT.zip", self.submit()[1])

    def test_submit_names_the_files_that_the_grader_does_not_take_and_what_costs_points(self):
        for name in ("deep/x.cpp", "x.cc", "notes.txt", ".#x.cpp", "forward_hooks.h"):
            self.put(f"tasks/task3_forward_hooks/{name}")
        (self.root / "tasks/task3_forward_hooks/forward_hooks.cpp").unlink()
        self.put(
            "results",
            json.dumps(
                {"points": 20.5, "possible": 120, "extensions": {"points": 0, "possible": 55}}
            ).encode(),
        )
        for refused, status, end in (
            (b"", 0, "takes all of it.\n"),
            (b"task 3: x\n", 1, "wrong here:\n  task 3: x\n"),
        ):
            self.put("refused", refused)
            result, said = self.submit(self.root / "results", self.root / "refused")
            self.assertEqual(
                re.findall("^tasks/task3_forward_hooks/(.*):", said, re.MULTILINE),
                [
                    "deep/x.cpp is not taken",
                    "x.cc is not taken",
                    "forward_hooks.cpp is missing",
                    "forward_hooks.h is changed",
                ],
            )
            self.assertIn(
                "files; points 20.5 of 120, extensions 0.0 of 55, by the tests of ./fsdp check\n",
                said,
            )
            self.assertEqual((result, said[-len(end):]), (status, end))
        (self.root / "tasks/task1_meta_init/link.h").symlink_to("/etc/passwd")
        self.assertEqual(
            self.submit(), (1, "fsdp submit: tasks/task1_meta_init/link.h is not a regular file\n")
        )
