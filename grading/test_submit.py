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
from course import handout, skeletons  # noqa: E402
from grader import course, submission  # noqa: E402

OWN = {"tasks/task2_flat_parameter/flat_parameter.cpp": b"// mine\n", "tasks/task2_flat_parameter/my own.hpp": b"// mine\n",
       "tasks/task2_flat_parameter/detail/x.inl": b"// mine\n", "tasks/task7_integration/more.cpp": b"// mine\n",
       "tasks/extensions/task4_backward_hooks/y.cpp": b"// mine\n", "tasks/WRITEUP.md": "Größe\n".encode()}


class Submit(unittest.TestCase):
    """In a student's copy: a handout."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "a copy"
        for name, (content, _) in handout.contents().items():
            if name.startswith(("grading/", "tasks/", ".pristine/", "course.toml")):
                self.put(name, content)
        for name, content in OWN.items():
            self.put(name, content)
        self.out = pathlib.Path(folder.name) / "mine.zip"

    def put(self, name, content=b"// mine\n"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def refused(self, out):
        with self.assertRaises(course.Refused) as caught:
            submit.check_place(out, self.root)
        return str(caught.exception)

    def test_the_grader_finds_every_file_in_the_zip_and_unpacked(self):
        files, remarks = submit.submit(self.out, self.root)
        self.assertEqual(remarks, [])
        self.assertEqual({name: files[name] for name in OWN}, OWN)
        with zipfile.ZipFile(self.out) as archive:
            archive.extractall(self.root / "unpacked")
        for where in (self.out, self.root / "unpacked"):
            read = submission.read(where)
            self.assertEqual({f"tasks/{name}": content for name, content in read.files.items()},
                             {name: content for name, content in files.items() if name != submit.WRITEUP})
            self.assertEqual((read.missing, read.ignored, read.changed), ((), (), ()))

    def test_the_same_files_give_the_same_zip(self):
        submit.submit(self.out, self.root)
        first = self.out.read_bytes()
        for name in OWN:
            self.put(name, OWN[name])
        submit.check_place(self.out, self.root)
        submit.submit(self.out, self.root)
        self.assertEqual(self.out.read_bytes(), first)
        self.assertEqual(sorted(self.out.parent.iterdir()), [self.root, self.out])

    def test_replaces_no_other_file_and_writes_none_into_tasks(self):
        self.assertIn("is in tasks/", self.refused(self.root / "tasks/mine.zip"))
        self.assertIn("must end in .zip", self.refused(self.root / "mine.tar"))
        self.assertIn("is no folder", self.refused(self.root / "none/mine.zip"))
        for make in (lambda: self.out.write_text("thesis"), self.out.mkdir,
                     lambda: zipfile.ZipFile(self.out, "w").close(), lambda: self.out.symlink_to("nothing")):
            make()
            self.assertIn("choose another name", self.refused(self.out))
            self.out.rmdir() if self.out.is_dir() else self.out.unlink()

    def test_names_what_the_grader_does_not_take(self):
        header = next(name for name in skeletons.delivered(self.root) if name.endswith("flat_parameter.h"))
        self.put(header)
        (self.root / "tasks/task3_forward_hooks/forward_hooks.cpp").unlink()
        for name in ("tasks/task3_forward_hooks/deep/x.cpp", "tasks/mine.h", "tasks/task3_forward_hooks/x.cc",
                     "tasks/task3_forward_hooks/notes.txt", "tasks/task3_forward_hooks/.#x.cpp"):
            self.put(name)
        files, remarks = submit.submit(self.out, self.root)
        self.assertEqual([remark.split(":")[0] for remark in remarks],
                         ["tasks/mine.h is not in the zip", "tasks/task3_forward_hooks/deep/x.cpp is not in the zip",
                          "tasks/task3_forward_hooks/x.cc is not in the zip",
                          "tasks/task3_forward_hooks/forward_hooks.cpp is missing", f"{header} is changed"])
        self.assertFalse({header, "tasks/mine.h"} & files.keys())

    def test_what_the_grader_refuses_is_refused_before_anything_is_built(self):
        for name, make, why in (
            ("link.h", lambda path: path.symlink_to("/etc/passwd"), "is not a regular file"),
            ("large.cpp", lambda path: path.write_bytes(b"x" * (submission.MOST_BYTES + 1)), "has more than"),
        ):
            path = self.root / "tasks/task1_meta_init" / name
            make(path)
            status, said = self.run_submit()
            self.assertEqual((status, said.count("\n"), self.out.exists()), (1, 1, False), said)
            self.assertIn(f"fsdp submit: tasks/task1_meta_init/{name} {why}", said)
            path.unlink()

    def run_submit(self, *arguments):
        done = subprocess.run([sys.executable, self.root / "grading/submit.py", self.out, *arguments],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_says_the_points_and_what_the_grader_will_refuse(self):
        results, refused = self.root / "results", self.root / "refused"
        results.write_text(json.dumps({"points": 20.5, "possible": 120, "extensions": {"points": 0, "possible": 39}}))
        for lines, status, end in (("", 0, "The grader takes all of it.\n"), ("task 3 does not compile\n", 1,
                                   "The grader gives no points for what is wrong here:\n  task 3 does not compile\n")):
            refused.write_text(lines)
            count = len(submit.collect(self.root)[0])
            self.assertEqual(self.run_submit("--checked", results, refused), (
                status, f"\n{self.out}: {count} files; points 20.5 of 120, extensions 0.0 of 39, "
                        f"by the tests of ./fsdp check\n{end}"))


if __name__ == "__main__":
    unittest.main()
