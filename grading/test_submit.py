"""The zip of ./fsdp submit: what is in it, and what is refused."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import submit  # noqa: E402
from course import handout  # noqa: E402
from grader import submission  # noqa: E402

OWN = {f"tasks/{name}": b"// mine\n" for name in (
    "task2_flat_parameter/flat_parameter.cpp", "task2_flat_parameter/my own.hpp", "task2_flat_parameter/detail/x.inl",
    "task7_integration/more.cpp", "extensions/task4_backward_hooks/y.cpp", "WRITEUP.md")}


class Submit(unittest.TestCase):
    """In a student's copy: a handout."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.out = pathlib.Path(folder.name) / "a copy", pathlib.Path(folder.name) / "mine.zip"
        for name, (content, _) in handout.contents().items():
            if name.startswith(("grading/", "tasks/", ".pristine/", "course.toml")):
                self.put(name, content)
        for name in OWN:
            self.put(name)

    def put(self, name, content=b"// mine\n"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def submit(self, *arguments):
        command = [sys.executable, self.root / "grading/submit.py", self.out, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_the_grader_finds_every_file_in_the_zip_and_unpacked(self):
        files, remarks = submit.collect(self.root)
        self.assertEqual((remarks, {name: files[name] for name in OWN}), ([], OWN))
        submit.write(self.out, files)
        first = self.out.read_bytes()
        submit.check_place(self.out, self.root)
        submit.write(self.out, files)
        self.assertEqual(self.out.read_bytes(), first)
        with zipfile.ZipFile(self.out) as archive:
            archive.extractall(self.root / "unpacked")
        for where in (self.out, self.root / "unpacked"):
            read = submission.read(where)
            self.assertEqual({f"tasks/{name}": content for name, content in read.files.items()},
                             {name: content for name, content in files.items() if name != submit.WRITEUP})
            self.assertEqual((read.missing, read.ignored, read.changed), ((), (), ()))

    def test_replaces_no_other_file_and_writes_none_into_tasks(self):
        for make in (lambda: self.out.write_text("thesis"), self.out.mkdir, lambda: self.out.symlink_to("nothing"),
                     lambda: zipfile.ZipFile(self.out, "w").close()):
            make()
            self.assertIn("choose another name", self.submit()[1])
            self.out.rmdir() if self.out.is_dir() else self.out.unlink()
        for self.out in (self.root / "tasks/mine.zip", self.root / "mine.tar", self.root / "none/mine.zip"):
            self.assertIn("name a file OUT.zip", self.submit()[1])

    def test_names_what_the_grader_does_not_take(self):
        for name in ("deep/x.cpp", "../mine.h", "x.cc", "notes.txt", ".#x.cpp", "forward_hooks.h"):
            self.put(f"tasks/task3_forward_hooks/{name}")
        (self.root / "tasks/task3_forward_hooks/forward_hooks.cpp").unlink()
        files, remarks = submit.collect(self.root)
        self.assertEqual([remark.split(":")[0].removeprefix("tasks/").removeprefix("task3_forward_hooks/") for remark in remarks],
                         ["mine.h is not taken", "deep/x.cpp is not taken", "x.cc is not taken",
                          "forward_hooks.cpp is missing", "forward_hooks.h is changed"])
        self.assertFalse([name for name in files if "task3" in name or "mine.h" in name])

    def test_says_the_points_and_what_costs_points_or_is_refused(self):
        results, refused = self.root / "results", self.root / "refused"
        results.write_text(json.dumps({"points": 20.5, "possible": 120, "extensions": {"points": 0, "possible": 39}}))
        for lines, status, end in (("", 0, "The grader takes all of it.\n"),
                                   ("task 3 does not compile\n", 1, "wrong here:\n  task 3 does not compile\n")):
            refused.write_text(lines)
            result, said = self.submit(results, refused)
            self.assertIn("files; points 20.5 of 120, extensions 0.0 of 39, by the tests of ./fsdp check\n", said)
            self.assertEqual((result, said[-len(end):]), (status, end))
        (self.root / "tasks/task1_meta_init/link.h").symlink_to("/etc/passwd")
        self.assertEqual(self.submit(), (1, "fsdp submit: tasks/task1_meta_init/link.h is not a regular file\n"))


if __name__ == "__main__":
    unittest.main()
