"""What a student's copy does when the next release is unpacked over it: python3 -m unittest discover
grading. The real ./fsdp, cmake/stacks.cmake and `check` work on seven tasks of a few lines."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest
import unittest.mock

import handout
import skeletons

ROOT = skeletons.ROOT

CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(fsdp CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(LibTorch_ROOT / CACHE PATH "A folder that is there, for scripts/build.sh")
list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)
foreach(library fsdp_given fsdp_testing fsdp_prediction fsdp_train fsdp_options)
  add_library(${library} INTERFACE)
endforeach()
add_library(fsdp_pch STATIC cmake/pch.cpp)
foreach(library base comm memory nn optim)
  add_library(fsdp_${library} STATIC cmake/pch.cpp)
endforeach()
target_precompile_headers(fsdp_pch PRIVATE cmake/pch.h)
include(stacks)
add_stack(reference fsdp_given "${tasks}" ${PROJECT_SOURCE_DIR}/solutions)
add_own_stacks(mine ${PROJECT_SOURCE_DIR}/tasks)
file(COPY CHECK DESTINATION ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
add_custom_target(check)
"""

# The program of a task's tests: each of the suites has the one test, which says what `own` returns.
TESTS = """
#include <task%(task)d.h>
#include <more%(task)d.h>
#include <cstdlib>
#include <unistd.h>

int main(int count, char** arguments) {
  int file = 1;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument.rfind("--results_to=", 0) == 0) file = std::atoi(argument.c_str() + 13);
  }
  const std::string needs = more%(task)d() == %(task)d ? task%(task)d() : "", own = "OWN";
  std::string text = R"(%(results)s)";
  for (size_t at; (at = text.find(own)) != std::string::npos;) text.replace(at, own.size(), needs);
  for (size_t at; !needs.empty() && (at = text.find("passed")) != std::string::npos;) text.replace(at, 6, "not started");
  return write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
}
"""


def text_of(first, last):
    """As `check` names tasks."""
    if first == last:
        return f"task {first}"
    return f"tasks {first} {'and' if first + 1 == last else 'to'} {last}"


def sentence(task, solutions):
    """What `check` says if the first `solutions` tasks under `task` are solutions."""
    plural = "s" if solutions > 1 else ""
    parts = [f"the reference solution{plural} of {text_of(1, solutions)}"] if solutions else []
    parts += [f"your own {text_of(solutions + 1, task - 1)}"] if solutions < task - 1 else []
    return f"Task {task} was tested over {' and '.join(parts)}."


class SmallCourse:
    """Of the form of this one. Task N is the function taskN(), which returns what is still to be written, of
    the tasks before it or of its own. Its extension is moreN()."""

    def __init__(self):
        self.tasks = skeletons.tomllib.loads((ROOT / "course.toml").read_text())["task"]

    def folder(self, task):
        return f"task{task}_{self.tasks[task - 1]['name']}"

    def points(self, task):
        problems = self.tasks[task - 1]["problem"]
        return sum(problem["points"] for problem in problems if not problem.get("extension"))

    def suites(self, task):
        return [suite for p in self.tasks[task - 1]["problem"] for suite in p["suites"]]

    def sources(self, task, returned):
        folder, extensions = skeletons.folders_of(self.folder(task))
        return {
            f"{extensions}/more{task}.cpp": f"#include <more{task}.h>\nint more{task}() {{ return {task}; }}\n",
            f"{folder}/task{task}.cpp": f"#include <task{max(task - 1, 1)}.h>\n#include <task{task}.h>\n"
            f"std::string task{task}() {{ return {returned}; }}\n",
        }

    def skeleton(self, task):
        folder, extensions = skeletons.folders_of(self.folder(task))
        return {f"{extensions}/more{task}.h": f"#pragma once\nint more{task}();\n",
                f"{folder}/task{task}.h": f"#pragma once\n#include <string>\nstd::string task{task}();\n",
                **self.sources(task, f'"task{task} (problem {task}.1)"')}

    def own(self, task):
        return self.sources(task, f"task{task - 1}()" if task > 1 else '""')

    def tests(self, task, name):
        tests = [{"suite": suite, "name": name} for suite in self.suites(task)]
        lines = [{"event": "plan", "tests": [f"{test['suite']}.{name}" for test in tests]}]
        for test in tests:
            end = {"outcome": "passed", "text": "OWN", "milliseconds": 0, "printed": 0}
            lines += [{"event": "start", **test}, {"event": "end", **test, **end}]
        results = "".join(f"{json.dumps(line)}\n" for line in lines)
        return f"tests/{self.folder(task)}/test.cpp", (TESTS % {"task": task, "results": results}).encode()

    def contents(self, release):
        texts = {
            "CMakeLists.txt": CMAKE.replace("CHECK", str(ROOT / "build/default/bin/check")),
            "cmake/pch.cpp": "",
            "cmake/pch.h": "",
            "trainer/strategies/fsdp/fsdp_strategy.cpp": "",
            "programs/train.cpp": "int main() {}\n",
            "scripts/setup.sh": "#!/bin/sh\n",
            "tasks/WRITEUP.md": "",
        }
        for task in range(1, 8):
            for name, text in self.skeleton(task).items():
                texts[f"tasks/{name}"] = text
                texts[f".pristine/{name}"] = text
            if task < release:
                for name, text in self.own(task).items():
                    texts[f"solutions/{name}"] = text
        files = {name: (text.encode(), name.endswith(".sh")) for name, text in texts.items()}
        for name in ("fsdp", "course.toml", "CMakePresets.json", "cmake/isolate.sh", "cmake/stacks.cmake",
                     "scripts/build.sh", "scripts/look.sh"):
            files[name] = ((ROOT / name).read_bytes(), not name.startswith(("C", "cmake/stacks", "course")))
        files |= {name: (content, False) for name, content in (self.tests(task, "works") for task in range(1, 8))}
        return handout.with_list(files)


class StagedRelease(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([ROOT / "fsdp", "build", "check"], check=True, capture_output=True)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="a term ")
        self.addCleanup(folder.cleanup)
        self.course, self.folder = SmallCourse(), pathlib.Path(folder.name)
        self.root = self.folder / handout.FOLDER  # a student's copy

    def release(self, number, more=()):
        """Unpacks it, into the copy if there is one. The archives are all older than anything that was
        built. Each has another file of task 1's tests. `more`: names of files that it has besides."""
        name, content = self.course.tests(1, f"is_of_release_{number}")
        files = {**self.course.contents(number), name: (content, False), **dict.fromkeys(more, (b"", False))}
        archive = self.folder / f"release{number}.tar.gz"
        handout.write(archive, handout.with_list(files), 1_600_000_000 + number)
        if self.root.exists():
            subprocess.run([self.root / "fsdp", "update", archive], check=True)
        else:
            subprocess.run(["tar", "-xzf", archive, "-C", self.folder], check=True)
        self.number = number

    def write(self, task):
        for name, text in self.course.own(task).items():
            (self.root / "tasks" / name).write_text(text)

    def spoil(self, task):
        """From now on no program that contains the student's task compiles."""
        for folder in skeletons.folders_of(self.course.folder(task)):
            for path in (self.root / "tasks" / folder).glob("*.cpp"):
                path.write_text("#error this is the student's own task\n")

    def fsdp(self, *arguments):
        done = subprocess.run([self.root / "fsdp", *arguments], capture_output=True, text=True, cwd=self.folder)
        return done.returncode, done.stdout + done.stderr

    def check(self, what, points, bases):
        """`what`: the arguments; `points`: those that it should show; `bases`: (task, solutions)."""
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        _, text = self.fsdp("check", *what.split(), "--json", result)
        with self.subTest(release=self.number, check=what, said=text):
            found = json.loads(result.read_text())
            self.assertEqual(found["points"], points)
            self.assertEqual(re.findall(r"^Task \d was tested over .*$", text, re.MULTILINE),
                             [sentence(*base) for base in bases if base[0] > 1])
            marks = {t["name"].partition("/")[0] for t in found["tests"] if "is_of_release" in t["name"]}
            self.assertLessEqual(marks, {f"is_of_release_{self.number}"})

    def test_a_term_gives_the_right_points_over_the_right_base_at_every_step(self):
        """Task K is written when release K is there, task 5 when release 4 is."""
        points = self.course.points
        self.release(1)
        self.check("", 0, [])
        for number in range(1, 8):
            if number > 1:
                self.release(number)
                written = [task for task in range(1, 8) if task < number or (task == 5 and number == 5)]
                self.check("", sum(map(points, written)), [(task, min(task, number) - 1) for task in written])
                self.spoil(number - 1)  # it must not matter any more
            self.write(number)
            self.check(str(number), points(number), [(number, number - 1)])
            if number == 4:
                self.write(5)
                self.check("5", points(5), [(5, 3)])
            if number > 1:
                self.write(number - 1)
        self.check("7 --base mine", points(7), [(7, 0)])

    def test_submit_leaves_a_zip_and_nothing_else(self):
        self.release(1)
        for name, (content, _) in handout.contents().items():
            if name.startswith("grading/"):
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                (self.root / name).write_bytes(content)
        (self.root / ".venv").symlink_to(ROOT / ".venv")
        temporary, out = self.folder / "temporary", self.folder / "mine.zip"
        temporary.mkdir()
        done = subprocess.run(["env", f"TMPDIR={temporary}", self.root / "fsdp", "submit", out], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr, list(temporary.iterdir())), (0, "", []))
        self.assertTrue(out.is_file())

    def test_a_base_that_cannot_hold_is_refused_before_anything_is_built(self):
        self.release(4)
        for arguments, said in ((("5", "--base", "reference"), "no solution of task 4, on which task 5"),
                                (("--base=reference",), "no solution of task 4, on which task 5"),
                                (("4", "--solutions"), "no solution of task 4\n")):
            status, text = self.fsdp("check", *arguments)
            self.assertEqual(status, 2, text)
            self.assertIn(said, text)
        self.assertFalse((self.root / "build").exists())

    def files(self):
        paths = self.root.rglob("*")
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in paths if path.is_file()}

    def test_update_keeps_what_is_begun_and_the_student_s_and_brings_and_removes_the_rest(self):
        gone = {"common/comm/a name.cpp", "tests/task3_forward_hooks/test_old.cpp"}
        self.release(1, gone)
        self.write(2)
        for name in ("tests/task3_forward_hooks/test_mine.cpp", "common/comm/mine.h", "solutions.txt", "tasks/WRITEUP.md",
                     "tasks/task3_forward_hooks/notes.md", "tasks/task2_flat_parameter/helper.h"):
            (self.root / name).write_text("mine\n")
        before = self.files()
        brought = {f"tasks/{name}": b"3" for name in ("task2_flat_parameter/task2.h", "task3_forward_hooks/task3.h",
                                                      "extensions/task3_forward_hooks/more3.cpp")}
        begun = {"task2_flat_parameter/task2.cpp", "extensions/task2_flat_parameter/more2.cpp"}
        skeleton = {**{name.removeprefix("tasks/"): "3" for name in brought}, **dict.fromkeys(begun, "3")}
        with unittest.mock.patch.object(SmallCourse, "skeleton", lambda course, task: skeleton if task in (2, 3) else {}):
            self.release(3)
        after = self.files()
        kept = {name for name in before if name not in gone and not name.startswith((".pristine", "tests/task1", "tasks/task", "tasks/ext"))}
        own = {name for name in before if b"mine" in before[name]} | {f"tasks/{name}" for name in begun}
        self.assertEqual({name: after.get(name) for name in kept | own}, {name: before[name] for name in kept | own})
        self.assertEqual({name: after[name] for name in brought}, brought)
        self.assertEqual(gone & after.keys(), set())
        self.assertNotIn("tasks/task3_forward_hooks/task3.cpp", after)  # nobody has begun it
        self.assertEqual(self.fsdp("update"), (2, "fsdp: update wants the archive of a later release\n"))
