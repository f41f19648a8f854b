"""What a student's copy does when the next release is unpacked over it: python3 -m unittest discover
grading. The real ./fsdp, cmake/stacks.cmake and `check` work on seven tasks of a few lines."""

import json
import os
import pathlib
import re
import shutil
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

# Writes the results that a test program writes: each test says what task() needs.
TESTS_H = """
#pragma once
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

inline int run(int argc, char** argv, const std::vector<std::string>& suites, const std::string& test,
               const std::string& needs) {
  int file = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--results_to=", 0) == 0) file = std::atoi(argument.c_str() + 13);
  }
  std::string plan, results;
  for (const std::string& suite : suites) {
    const std::string name = "\\"suite\\":\\"" + suite + "\\",\\"name\\":\\"" + test + "\\"";
    plan += (plan.empty() ? "\\"" : ",\\"") + suite + '.' + test + '"';
    results += "{\\"event\\":\\"start\\"," + name + "}\\n{\\"event\\":\\"end\\"," + name + ",\\"outcome\\":\\"" +
               (needs.empty() ? "passed" : "not started") + "\\",\\"text\\":\\"" + needs +
               "\\",\\"milliseconds\\":0,\\"printed\\":0}\\n";
  }
  const std::string all = "{\\"event\\":\\"plan\\",\\"tests\\":[" + plan + "]}\\n" + results;
  return write(file, all.data(), all.size()) == static_cast<ssize_t>(all.size()) ? 0 : 1;
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
        suites = "{" + ", ".join(f'"{suite}"' for suite in self.suites(task)) + "}"
        text = "".join(f"#include <more{i}.h>\n" for i in range(1, task + 1))
        text += f"#include <task{task}.h>\n#include <tests.h>\n"
        own = f"more{task}() == {task} ? task{task}() : std::string()"
        text += f'int main(int n, char** a) {{ return run(n, a, {suites}, "{name}", {own}); }}\n'
        return f"tests/{self.folder(task)}/test.cpp", text.encode()

    def contents(self, release):
        texts = {
            "CMakeLists.txt": CMAKE.replace("CHECK", str(ROOT / "build/default/bin/check")),
            "cmake/pch.cpp": "",
            "cmake/pch.h": "",
            "trainer/strategies/fsdp/fsdp_strategy.cpp": "",
            "programs/train.cpp": "int main() {}\n",
            "scripts/setup.sh": "#!/bin/sh\n",
            "tasks/WRITEUP.md": "",
            "tests/tests.h": TESTS_H,
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


class Copy:
    """A student's copy, and what is wrong with it."""

    def __init__(self, folder):
        self.course, self.folder = SmallCourse(), folder
        self.root = folder / handout.FOLDER
        self.wrong = []

    def release(self, number):
        """Unpacks it, into the copy if there is one. The archives are all older than anything that was
        built. Each has another file of task 1's tests."""
        files = self.course.contents(number)
        name, content = self.course.tests(1, f"is_of_release_{number}")
        files[name] = (content, False)
        archive = self.folder / f"release{number}.tar.gz"
        handout.write(archive, files, 1_600_000_000 + number)
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

    def check(self, what, points, bases):
        """`what`: the arguments; `points`: those that it should show; `bases`: (task, solutions)."""
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        command = [self.root / "fsdp", "check", *what.split(), "--json", result]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        found = json.loads(result.read_text()) if result.exists() else {"points": None, "tests": []}
        said = re.findall(r"^Task \d was tested over .*$", done.stdout, re.MULTILINE)
        marks = {t["name"].partition("/")[0] for t in found["tests"] if "is_of_release" in t["name"]}
        wrong = []
        if found["points"] != points:
            wrong.append(f"{found['points']} points, not {points}")
        if said != [sentence(*base) for base in bases if base[0] > 1]:
            wrong.append(f"says {said}")
        if marks - {f"is_of_release_{self.number}"}:
            wrong.append(f"runs {marks}")
        if wrong:
            self.wrong.append(f"release {self.number}, check {what}: {wrong}\n{done.stdout}{done.stderr}")


def play(copy):
    """Task K is written when release K is there, task 5 when release 4 is."""
    course = copy.course
    copy.release(1)
    copy.check("", 0, [])
    for number in range(1, 8):
        if number > 1:
            copy.release(number)
            written = [task for task in range(1, 8) if task < number or (task == 5 and number == 5)]
            bases = [(task, min(task, number) - 1) for task in written]
            copy.check("", sum(map(course.points, written)), bases)
            copy.spoil(number - 1)  # it must not matter any more
        copy.write(number)
        copy.check(str(number), course.points(number), [(number, number - 1)])
        if number == 4:
            copy.write(5)
            copy.check("5", course.points(5), [(5, 3)])
        if number > 1:
            copy.write(number - 1)
    copy.check("7 --base mine", course.points(7), [(7, 0)])


class StagedRelease(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([ROOT / "fsdp", "build", "check"], check=True, capture_output=True)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="a term ")
        self.addCleanup(folder.cleanup)
        self.copy = Copy(pathlib.Path(folder.name))

    def check(self, *arguments):
        command = [self.copy.root / "fsdp", "check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_a_term_gives_the_right_points_over_the_right_base_at_every_step(self):
        play(self.copy)
        self.assertEqual(self.copy.wrong, [])

    def test_a_task_stands_on_the_nearest_solutions_and_own_tasks_after_them(self):
        self.copy.release(1)
        self.copy.release(4)
        self.copy.write(5)
        status, text = self.check("5")
        self.assertIn("solutions of tasks 1 to 3 and your own task 4.\n", text)
        self.assertIn("needs task4 (problem 4.1)\n", text)
        self.assertIn("Next: problem 4.1 pre_backward, in tasks/task4_*/; then ./fsdp check 5.1\n", text)
        self.copy.write(4)
        self.copy.check("5", 15, [(5, 3)])
        self.copy.check("5 --base mine", 0, [(5, 0)])
        self.assertEqual(self.copy.wrong, [])

    def test_a_student_may_begin_with_task_2_and_write_task_1_last(self):
        self.copy.release(2)
        self.assertIn("Next: problem 2.1 layout, in tasks/task2_*/; ", self.check()[1])
        for task in range(2, 8):
            self.copy.write(task)
            self.copy.check(str(task), self.copy.course.points(task), [(task, 1)])
        self.assertIn("Next: problem 1.1 redirect, in tasks/task1_*/; ", self.check()[1])
        self.copy.write(1)
        self.copy.check("", 120, [(1, 0), *((task, 1) for task in range(2, 8))])
        self.copy.check("7 --base mine", 25, [(7, 0)])
        self.assertEqual(self.copy.wrong, [])

    def test_submit_leaves_a_zip_and_nothing_else(self):
        self.copy.release(1)
        for name, (content, _) in handout.contents().items():
            if name.startswith("grading/"):
                path = self.copy.root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        (self.copy.root / ".venv").symlink_to(ROOT / ".venv")
        temporary = self.copy.folder / "temporary"
        temporary.mkdir()
        command = ["env", f"TMPDIR={temporary}", self.copy.root / "fsdp", "submit", self.copy.folder / "mine.zip"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr, list(temporary.iterdir())), (0, "", []))
        self.assertTrue((self.copy.folder / "mine.zip").is_file())

    def test_a_base_that_cannot_hold_is_refused_before_anything_is_built(self):
        self.copy.release(4)
        for arguments, said in ((("5", "--base", "reference"), "no solution of task 4, on which task 5"),
                                (("--base=reference",), "no solution of task 4, on which task 5"),
                                (("4", "--solutions"), "no solution of task 4\n")):
            status, text = self.check(*arguments)
            self.assertEqual(status, 2, text)
            self.assertIn(said, text)
        self.assertFalse((self.copy.root / "build").exists())

    def test_update_keeps_what_is_begun_and_brings_the_rest(self):
        self.copy.release(1)
        self.copy.write(2)
        tasks = self.copy.root / "tasks"
        begun = ["WRITEUP.md", "task2_flat_parameter/task2.cpp", "extensions/task2_flat_parameter/more2.cpp"]
        (tasks / begun[0]).write_text("mine\n")
        kept = [(tasks / name).read_text() for name in begun]
        brought = ["task2_flat_parameter/task2.h", "task3_forward_hooks/task3.h",
                   "extensions/task3_forward_hooks/more3.cpp"]
        changed = {name: "3" for name in [*begun[1:], *brought]}
        with unittest.mock.patch.object(SmallCourse, "skeleton", lambda *_: changed):
            self.copy.release(3)
        self.assertEqual([(tasks / name).read_text() for name in begun + brought], kept + ["3"] * 3)
        self.assertFalse((tasks / "task3_forward_hooks/task3.cpp").exists())  # what a release has no more is gone
        done = subprocess.run([self.copy.root / "fsdp", "update"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "fsdp: update wants the archive of a later release\n"))

    def test_update_removes_what_the_later_release_has_no_more_and_nothing_of_the_student(self):
        renamed = {"common/comm/a name.cpp", "tests/task3_forward_hooks/test_old.cpp", "tests/task1_meta_init/test.cpp"}
        plain = SmallCourse.contents
        with_more = lambda course, release: handout.with_list(
            {**plain(course, release), **{name: (b"", False) for name in renamed}})
        with unittest.mock.patch.object(SmallCourse, "contents", with_more):
            self.copy.release(1)
        self.copy.write(2)
        own = {"tests/task3_forward_hooks/test_mine.cpp", "common/comm/mine.h", "tasks/task3_forward_hooks/notes.md",
               "tasks/task2_flat_parameter/helper.h", "solutions.txt"}
        for name in own:
            (self.copy.root / name).write_text("mine\n")
        begun = self.files()
        self.copy.release(2)
        solutions = {name for name in self.files() if name.startswith("solutions/")}
        self.assertEqual(self.files() - solutions, begun - renamed | {"tests/task1_meta_init/test.cpp"})
        self.assertEqual({(self.copy.root / name).read_text() for name in own}, {"mine\n"})

    def files(self):
        paths = self.copy.root.rglob("*")
        return {path.relative_to(self.copy.root).as_posix() for path in paths if path.is_file()}

    def test_a_file_that_comes_back_with_an_old_time_is_built(self):
        self.copy.release(1)
        self.copy.write(1)
        own = self.copy.root / "tasks/task1_meta_init/task1.cpp"
        shutil.copy2(own, self.copy.folder / "kept.cpp")
        os.utime(self.copy.folder / "kept.cpp", (1_600_000_000, 1_600_000_000))
        own.write_text(own.read_text().replace('""', '"task1 (problem 1.2)"'))
        self.copy.check("1", 0, [])
        os.replace(self.copy.folder / "kept.cpp", own)
        self.copy.check("1", 15, [])
        self.assertEqual(self.copy.wrong, [])
