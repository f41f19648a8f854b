"""Tests how the grader compiles, inspects and links a submission."""

import fcntl
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import submissions
from grader import compiling, course, programs, run, score, submission
from grader.compiling import Compiled
from grader.programs import Built, Program
from grader.run import Result

OF_TASK = {task.number: task.files[0] for task in course.tasks()}
EXTENSION = next(name for name in course.tasks()[4].files if name.startswith("extensions/"))


class Errors(unittest.TestCase):
    def test_first_errors_shows_errors_in_the_students_files_and_lack_of_disk_or_memory(self):
        long = "tasks/a.cpp:1: error: " + "x" * 500
        full = (
            "mktemp: failed to create directory: No space left on device",
            "vfork: Resource temporarily unavailable",
            "collect2: fatal error: ld terminated with signal 9 [Killed]",
        )
        for log, shown in (
            (f"/usr/include/x.h:1: error: y\n/jobs/1/{long}\n    12 | // error: no\n", long),
            (
                "tasks/a.cpp:1:2: error: x\n    12 | // out of memory\n      | signal 9\n",
                "tasks/a.cpp:1:2: error: x",
            ),
            (
                "/tmp/c.s: Assembler messages:\n/tmp/c.s:3: Error: not found: x\n",
                "/tmp/c.s:3: Error: not found: x",
            ),
            *(
                (f"tasks/a.cpp:1: error: mine\n{words}\n", f"tasks/a.cpp:1: error: mine\n{words}")
                for words in full
            ),
        ):
            self.assertEqual(compiling.first_errors(log, [("/jobs/1/tasks", "tasks")]), shown)


class Commands(unittest.TestCase):
    def test_a_file_that_a_student_adds_is_compiled_with_the_command_of_its_tasks_other_file(self):
        known = {
            name: [
                "c++",
                "-Werror",
                f"-I{course.ROOT}/tasks/task2_x",
                "-o",
                "x.o",
                "-c",
                f"{course.ROOT}/tasks/{name}",
            ]
            for name in ("task2_x/a.cpp", "task3_y/b.cpp")
        }
        with mock.patch.object(compiling, "commands", lambda: known):
            for name in ("task2_x/a.cpp", "task2_x/own.cpp", "extensions/task2_x/own.cpp"):
                self.assertEqual(
                    compiling.command_of(name, "/job/tasks", "made.o"),
                    ["c++", "-I/job/tasks/task2_x", "-o", "made.o", "-c", f"/job/tasks/{name}"],
                )
            with self.assertRaises(course.Refused):
                compiling.command_of("task4_z/own.cpp", "/job/tasks", "made.o")


class LimitedRuns(unittest.TestCase):
    def test_run_limited_ends_a_command_that_prints_too_much_or_takes_too_long(self):
        limits = {**course.rubric()["limits"], "log_characters": 5000}
        self.assertEqual(
            compiling.run_limited(["sh", "-c", "echo a; echo b >&2; exit 3"], 60), (3, "a\nb\n")
        )
        with mock.patch.object(course, "rubric", lambda: {"limits": limits}):
            for words, seconds, why in ((["yes"], 60, compiling.TOO_MUCH),
                                        (["sh", "-c", "sleep 607 & wait"], 0.2, compiling.NO_TIME)):
                status, log = compiling.run_limited(words, seconds)
                self.assertEqual((status, why in log, len(log) < 6000), (None, True, True))


class Looks(unittest.TestCase):
    """Tests scripts/look.sh on objects that the C++ compiler makes from small sources without
    LibTorch."""

    def looked_at(self, code, *more):
        """Compiles each source, and returns the lines that look.sh prints about the objects."""
        with tempfile.TemporaryDirectory() as folder:
            objects = []
            for number, text in enumerate((code, *more)):
                source = pathlib.Path(folder) / "tasks" / f"{number}.cpp"
                source.parent.mkdir(exist_ok=True)
                source.write_text(text)
                objects.append(f"{source}.o")
                subprocess.run(
                    ["c++", "-std=c++20", "-O1", "-c", source, "-o", objects[-1]], check=True
                )
            done = subprocess.run(
                [compiling.LOOK, *objects], capture_output=True, text=True, check=True
            )
        return done.stdout.splitlines()

    def test_look_names_each_use_of_files_processes_sockets_and_unknown_functions(self):
        c = 'extern "C" __attribute__((weak))'
        remark = (
            "getenv",
            "fsdp::live_bytes::reset",
            "fsdp::live_bytes::ScopedPeaks",
            "other::g",
            "exit",
            "raise",
            "c10::Dispatcher::findSchemaOrThrow",
        )
        for code, names, why in (
            (
                '#include <fstream>\nvoid f() { std::ofstream("a") << 3; }',
                "std::ofstream",
                "uses no files",
            ),
            (
                '#include <fstream>\nvoid f(int& a) { std::ifstream("a") >> a; }',
                "std::ifstream",
                "uses no files",
            ),
            (
                '#include <fstream>\nvoid f(int& a) { std::fstream file("a"); file >> a; }',
                "std::fstream",
                "uses no files",
            ),
            (
                '#include <fstream>\nvoid f() { std::filebuf().open("a", std::ios::in); }',
                "std::filebuf",
                "uses no files",
            ),
            (
                f'{c} int __open64_2(const char*, int);\nint f() {{ return __open64_2("a", 0); }}',
                "open",
                "uses no files",
            ),
            (
                f"{c} long __read_chk(int, void*, long, long);\nlong f() {{ return __read_chk(0, "
                f"0, 1, 1); }}",
                "read",
                "uses no files",
            ),
            (
                '#include <cstdio>\nFILE* f() { return fopen64("a", "r"); }',
                "fopen",
                "uses no files",
            ),
            (
                "namespace at::_ops { struct from_file { static void call(); }; }\nvoid f() { "
                "at::_ops::from_file::call(); }",
                "torch::from_file",
                "uses no files",
            ),
            (
                "namespace torch::serialize { struct OutputArchive { OutputArchive(); }; }\nvoid "
                "f() { torch::serialize::OutputArchive(); }",
                "torch::save or torch::load",
                "uses no files",
            ),
            (
                '#include <filesystem>\nbool f() { return std::filesystem::exists("a"); }',
                "std::filesystem",
                "uses no files",
            ),
            ('#include <unistd.h>\nvoid f() { write(3, "a", 1); }', "write", "uses no files"),
            ("#include <unistd.h>\nvoid f() { fork(); }", "fork", "starts, ends and watches"),
            ('#include <stdio.h>\nvoid f() { dprintf(3, "x"); }', "dprintf", "uses no files"),
            (f"{c} long __write(int);\nvoid f() {{ __write(3); }}", "write", "uses no files"),
            ("#include <cstdlib>\nvoid f() { std::exit(1); }", "exit", "it ends the rank"),
            ("#include <csignal>\nvoid f() { std::raise(6); }", "raise", "it ends the rank"),
            (
                "namespace c10 { struct Dispatcher { void findSchemaOrThrow(); }; }\n"
                "void f(c10::Dispatcher& d) { d.findSchemaOrThrow(); }",
                "c10::Dispatcher::findSchemaOrThrow",
                "",
            ),
            (
                "namespace fsdp { bool hidden_cases(); }\nbool f() { return fsdp::hidden_cases(); "
                "}",
                "fsdp::hidden_cases",
                "for the tests",
            ),
            (
                f'{c} int system(const char*);\nvoid f() {{ if (system) system(""); }}',
                "system",
                "starts, ends and watches",
            ),
            (
                "#include <sys/socket.h>\nint f() { return socket(1, 2, 3); }",
                "socket",
                "by the communicator alone",
            ),
            ('#include <dlfcn.h>\nvoid* f() { return dlopen("a", 1); }', "dlopen", "by its name"),
            (
                "namespace fsdp { void launch(int); }\nvoid f() { fsdp::launch(3); }",
                "fsdp::launch",
                "for the tests",
            ),
            (
                'void f() { asm volatile("syscall"); }',
                "an instruction of the kernel",
                "leaves the kernel alone",
            ),
            ('#include <cstdlib>\nchar* f() { return std::getenv("A"); }', "getenv", ""),
            (
                "namespace fsdp::live_bytes { void reset(); }\nvoid f() { "
                "fsdp::live_bytes::reset(); }",
                "fsdp::live_bytes::reset",
                "",
            ),
            (
                "namespace fsdp::live_bytes { struct ScopedPeaks { ScopedPeaks(); }; }\n"
                "void f() { fsdp::live_bytes::ScopedPeaks peaks; }",
                "fsdp::live_bytes::ScopedPeaks",
                "it changes what is measured",
            ),
            ("namespace other { void g(); }\nvoid f() { other::g(); }", "other::g", ""),
        ):
            (line,) = self.looked_at(code)
            kind, file, text = line.split("\t")
            expected = (
                "rejected" if "instruction" in names else "remark" if names in remark else "stopped"
            )
            self.assertEqual((kind, file), (expected, "tasks/0.cpp"))
            self.assertIn(f"uses {names}:", text)
            self.assertIn(why, text)

    def test_look_ignores_functions_of_the_student_even_if_their_names_resemble_refused_ones(self):
        uses = (
            "namespace fsdp { void launch_all(); void collect(); }\nnamespace mine { void g(); "
            "}\nint helper(int);\n"
            'extern "C" int open_it(int);\nvoid f() { fsdp::launch_all(); mine::g(); '
            'helper(open_it(1)); }'
        )
        defines = (
            "namespace fsdp { void launch_all() {} }\nnamespace mine { void g() {} }\nint "
            "helper(int x) { return x; }\n"
            'extern "C" int open_it(int x) { return x; }'
        )
        self.assertEqual(self.looked_at(uses, defines), [])

    def test_look_ignores_calls_that_the_standard_librarys_headers_make(self):
        shared = "#include <memory>\n#include <iostream>\nstd::shared_ptr<int> kept;\n" \
                 "void f(std::shared_ptr<int> x) { kept = x; std::cout << *x << std::flush; }"
        self.assertEqual(self.looked_at(shared), [])

    def test_look_fails_on_a_file_that_is_not_an_object(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("no object")
            file.flush()
            self.assertNotEqual(
                subprocess.run([compiling.LOOK, file.name], capture_output=True).returncode, 0
            )


class Isolation(unittest.TestCase):
    """Tests cmake/isolate.sh with three files that define the same names: a caller, a library, and
    a student's file."""

    CALLER = """
        #include <vector>
        namespace fsdp {
        inline std::vector<int> kOffsets{1, 2, 3};
        int contract();
        int helper(int x) { return x; }
        inline int other() { return 1; }
        struct Entry { virtual ~Entry() = default; virtual int get() { return 2; } };
        }
        int main() {
          fsdp::Entry entry;
          return fsdp::contract() == 42 && fsdp::kOffsets.size() == 3 && fsdp::helper(3) == 3 &&
            fsdp::other() == 1 &&
                 entry.get() == 2 ? 0 : 1;
        }"""
    HEADER = (
        "#include <vector>\nnamespace fsdp { inline std::vector<int> observed; void note(); }\n"
    )
    LIBRARY = HEADER + "namespace fsdp { void note() { observed.push_back(1); } }\n"
    OWN = (
        HEADER
        + """
        namespace fsdp {
        inline std::vector<char> kOffsets{97};
        int helper(int x) { return x + 100; }
        inline int other() { return 7; }
        struct Entry { virtual ~Entry() = default; virtual int get() { return 8; } };
        int contract() {
          Entry entry;
          note();
          const bool own = kOffsets.size() == 1 && helper(1) == 101 && other() == 7;
          return own && entry.get() == 8 && observed.size() == 1 ? 42 : 0;
        }
        }"""
    )

    def test_isolate_sh_keeps_equal_names_in_two_files_apart_but_shares_a_librarys_variables(self):
        with tempfile.TemporaryDirectory() as folder:
            def run(*words):
                subprocess.run(words, cwd=folder, check=True)

            for name, text in (
                ("caller", self.CALLER),
                ("library", self.LIBRARY),
                ("own", self.OWN),
            ):
                (pathlib.Path(folder) / f"{name}.cpp").write_text(text)
                run("c++", "-std=c++20", "-O1", "-c", f"{name}.cpp")
            run("ar", "rcs", "library.a", "library.o")
            run(
                programs.ISOLATE,
                f"{folder}/made/own.o",
                "caller.o",
                "--",
                "own.o",
                "--",
                "library.a",
            )
            run("c++", "caller.o", "made/own.o", "library.a", "-o", "program")
            run("./program")


class IsolationOfTasks(unittest.TestCase):
    """Tests cmake/isolate.sh with the student's files of several tasks."""

    HEADERS = {"task2_a": "int second();", "task3_b": "int third();"}

    def run_program(self, callers, files):
        """Compiles the sources, isolates those of tasks/, and links and runs the program. Returns
        the exit status and the output of isolate.sh, if it fails, or of the program. `callers`: C++
        sources outside of tasks/. `files`: path in tasks/ -> C++ source."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for script in ("cmake/isolate.sh", "scripts/look.sh"):
                (root / script).parent.mkdir(exist_ok=True)
                shutil.copy(course.ROOT / script, root / script)
            for task, text in self.HEADERS.items():
                (root / "tasks" / task).mkdir(parents=True)
                (root / "tasks" / task / "contract.h").write_text(text)
            objects = {}
            for name, text in {
                **{f"caller{i}.cpp": text for i, text in enumerate(callers)},
                **files,
            }.items():
                source = root / ("tasks" if name in files else ".") / name
                source.write_text(text)
                objects[name] = f"{source}.o"
                subprocess.run(
                    ["c++", "-std=c++20", "-O1", "-c", source, "-o", objects[name]], check=True
                )
            own = [objects[name] for name in files]
            outside = [objects[name] for name in objects if name not in files]
            subprocess.run(["ar", "rcs", root / "empty.a"], check=True)
            isolate = [
                root / "cmake/isolate.sh",
                root / "made/own.o",
                *outside,
                "--",
                *own,
                "--",
                root / "empty.a",
            ]
            done = subprocess.run(isolate, capture_output=True, text=True)
            if done.returncode:
                return done.returncode, done.stderr
            subprocess.run(
                ["c++", *outside, root / "made/own.o", "-o", root / "program"], check=True
            )
            done = subprocess.run([root / "program"], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    HELPERS = """
        #include <array>
        #include <string>
        struct State { std::array<std::string, N> names; virtual int get() { return N; } };
        inline State& state() { static State the_one; return the_one; }
        template <typename T> struct Box { static inline T made = N; };
        inline std::array<int, N> table{};
        int helper() { return N; }
        static int sum() {
          return state().get() + int(state().names.size()) + Box<int>::made + int(table.size()) +
                 helper();
        }
    """

    def test_helpers_of_the_same_name_in_two_tasks_stay_two_functions(self):
        caller = (
            "int second(), third(); int main() { return second() == 10 && third() == 45 ? 0 : 1; }"
        )
        files = {
            "task2_a/x.cpp": f"#define N 2\n{self.HELPERS}\nint second() {{ return sum(); }}",
            "task3_b/y.cpp": f"#define N 7\n{self.HELPERS}\nint second();\n"
            "int third() { return sum() + second(); }",
        }
        self.assertEqual(self.run_program([caller], files)[0], 0)

    def test_a_students_helper_may_have_the_name_of_a_function_that_test_files_share(self):
        callers = [
            "int second(), shared(); int main() { return second() == 5 && shared() == 1 ? 0 : 1; }",
            "int shared() { return 1; }",
        ]
        files = {"task2_a/x.cpp": "int shared() { return 5; } int second() { return shared(); }"}
        self.assertEqual(self.run_program(callers, files)[0], 0)

    def test_a_helper_may_have_the_name_of_a_function_in_another_tasks_header(self):
        caller = (
            "int second(), third(); int main() { return second() == 3 && third() == 4 ? 0 : 1; }"
        )
        files = {"task2_a/x.cpp": "int third() { return 1; } int second() { return third() + 2; }",
                 "task3_b/y.cpp": "int third() { return 4; }"}
        self.assertEqual(self.run_program([caller], files)[0], 0)

    def test_isolate_fails_and_names_both_files_if_a_third_task_uses_their_common_name(self):
        caller = "int second(); int main() { return second(); }"
        files = {"task2_a/x.cpp": "int note(int x) { return x; } int second() { return 0; }",
                 "task3_b/y.cpp": "int note(int x) { return x; }",
                 "task4_c/z.cpp": "int note(int); int fourth() { return note(1); }"}
        self.HEADERS = {**self.HEADERS, "task4_c": ""}
        status, said = self.run_program([caller], files)
        self.assertEqual(status, 1)
        self.assertIn("multiple definition of note(int)", said)
        self.assertIn(
            "tasks/task2_a/x.cpp and in tasks/task3_b/y.cpp; rename one of them, or make it static",
            said,
        )

    def test_a_call_to_a_refused_function_ends_the_program_only_if_it_runs(
        self,
    ):
        stops = """
            #include <cstdio>
            #include <cstdlib>
            extern "C" void fsdp_refused_call(const char* name) {
              std::printf("refused %s", name);
              std::fflush(stdout);
              _Exit(9);
            }
            extern "C" long fsdp_futex_alone(long number, ...) {
              std::printf("kernel %ld", number);
              return 0;
            }
            int second(int); int main(int, char**) { return second(COUNT); }"""
        files = {"task2_a/x.cpp":
        """
            #include <fstream>
            #include <unistd.h>
            extern "C" long another(long, ...) asm("syscall");
            int second(int count) {
              if (count == 2) write(1, "written", 7);
              if (count == 3) std::ofstream("/dev/stdout") << "written";
              if (count == 4) another(1, 1, "written", 7);
              return 0;
            }"""}
        for count, expected in ((1, (0, "")), (2, (9, "refused write")), (4, (0, "kernel 1"))):
            self.assertEqual(
                self.run_program([stops.replace("COUNT", str(count))], files), expected
            )
        status, said = self.run_program([stops.replace("COUNT", "3")], files)
        self.assertEqual(
            (status, said.startswith("refused std::basic_"), "written" in said), (9, True, False)
        )


class Jobs(unittest.TestCase):
    def test_new_job_removes_its_folder_at_its_end_and_folders_that_killed_graders_left(self):
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(programs, "JOBS", pathlib.Path(folder)),
        ):
            left, running = pathlib.Path(folder) / "left", pathlib.Path(folder) / "running"
            for job in (left, running):
                job.mkdir()
                (job / "lock").touch()
            with open(running / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                with programs.new_job() as first, programs.new_job() as second:
                    self.assertFalse(left.exists())
                    self.assertTrue(running.exists() and first.exists() and second.exists())
            self.assertFalse(first.exists() or second.exists())

    def test_kept_results_objects_and_jobs_are_outside_of_build_and_ignored_by_git(self):
        for folder in (
            compiling.KEPT,
            compiling.OBJECTS,
            programs.JOBS,
            run.result_file("key", "").parent,
        ):
            self.assertNotIn(course.ROOT / "build", folder.parents)
        asked = ["git", "-C", course.ROOT, "check-ignore", "-q", compiling.OBJECTS]
        ignored = subprocess.run(asked)
        self.assertIn(ignored.returncode, (0, 128))  # 128: this copy is not a git repository


class Programs(unittest.TestCase):
    def test_the_hash_key_of_a_program_depends_on_its_sources_and_all_headers_of_the_student(self):
        blank = submission.completed({})
        for name, numbers in (
            (OF_TASK[2], {2}),
            ("task2_flat_parameter/own.cpp", {2}),
            ("task2_flat_parameter/own.h", range(8)),
        ):
            changed = submission.completed({name: b"// mine\n"})
            for program in (*programs.all_programs(), programs.training_program()):
                holds_it = any(task.number in numbers for task in program.tasks)
                self.assertEqual(
                    program.key(changed) != program.key(blank), holds_it, (name, program.target)
                )

    def builder(self, files=(), why=(), rejected=()):
        """Returns a Builder whose files count as compiled. Its link() links nothing but returns the
        next of the builder's `answers`. `files`: files that the student has changed; `why`: file ->
        why it does not compile; `rejected`: file -> why look.sh rejects it."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        made = programs.Builder(
            submission.completed(dict.fromkeys(files, b"// mine\n")), folder.name
        )
        made.compiler.made = {
            name: Compiled(None if name in why else pathlib.Path(name), dict(why).get(name, ""))
            for name in made.submission.files
        }
        made.compiler.rejected = {name: [text] for name, text in dict(rejected).items()}
        made.without_extensions.made = {
            name: Compiled(pathlib.Path("blank") / name) for name in course.blank()
        }
        made.linked = []

        def link(program, objects):
            made.linked.append([str(path) for path in objects.values()])
            return made.answers.pop(0)

        made.link, made.answers = link, [Built(pathlib.Path("program"))] * 2
        return made

    def test_a_file_that_cannot_be_used_prevents_only_the_programs_that_contain_it(
        self,
    ):
        for how in (
            {"why": {OF_TASK[3]: "does not compile:\nx"}},
            {"rejected": {OF_TASK[3]: "tasks/x uses fopen"}},
        ):
            for program in programs.all_programs():
                built = self.builder(**how).build(program)
                holds_it = 3 in [task.number for task in program.tasks]
                earlier = holds_it and program.task.number != 3
                self.assertEqual(
                    (built.path is None, "an earlier task" in built.why),
                    (holds_it, earlier),
                    program.target,
                )
        builder = self.builder(
            rejected={OF_TASK[4]: "tasks/4 uses fopen", OF_TASK[6]: "tasks/6 uses fork"}
        )
        # If files of a task and of an earlier task are rejected, the reason names the task's own
        # file.
        self.assertEqual(
            {builder.build(Program(course.tasks()[6], base)).why for base in programs.BASES},
            {"is not run: tasks/6 uses fork"},
        )

    def test_if_a_task_linked_with_neither_own_nor_reference_tasks_both_reasons_are_returned(self):
        task = course.tasks()[6]
        found = [
            score.score_task(
                task,
                base,
                dict.fromkeys(("tests", "hidden"), Result([], f"does not link:\n{base}")),
            )
            for base in programs.BASES
        ]
        self.assertEqual(
            score.better(found).reasons, ("does not link:\nown", "does not link:\nreference")
        )

    def test_a_bad_extension_is_replaced_by_the_blank_one_so_that_its_task_is_graded(self):
        program = Program(course.tasks()[4], "own")
        made, twice, full = (
            Built(pathlib.Path("program")),
            "does not link:\ntwice",
            "does not link:\nNo space left on device",
        )
        for files, how, answers, links, told in (
            (
                [EXTENSION],
                {"why": {EXTENSION: "does not compile:\nx"}},
                [made],
                1,
                "does not compile:\nx",
            ),
            (
                [EXTENSION],
                {"rejected": {EXTENSION: "uses fopen"}},
                [made],
                1,
                "is not run: uses fopen",
            ),
            ([EXTENSION], {}, [Built(None, twice), made], 2, twice),
            ([], {}, [Built(None, twice)], 1, twice),
            ([EXTENSION], {}, [Built(None, full)], 1, full),
        ):
            builder = self.builder(files, **how)
            builder.answers = list(answers)
            built = builder.build(program)
            self.assertEqual((len(builder.linked), built.left_out or built.why), (links, told))
            self.assertEqual(built.path is not None, answers[-1] is made)
            if built.left_out:
                self.assertIn(f"blank/{EXTENSION}", builder.linked[-1])
                self.assertNotIn(EXTENSION, builder.linked[-1])


class Lists(unittest.TestCase):
    def test_a_submission_can_be_made_of_every_entry_of_honest_submissions_and_exploits(self):
        for entry in submissions.load():
            self.assertLessEqual(set(course.blank()), set(submissions.handed_in(entry).files))
