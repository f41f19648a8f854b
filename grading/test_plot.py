"""What ./fsdp plot reads, refuses and draws."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plot  # noqa: E402


def log(steps, first=0):
    return "".join(json.dumps({"step": step, "loss": 9 if step == 701 else None if step == 801 else 1, "tokens_per_s": step,
                               **({"held_out": {"accuracy": 0.5}} if step % 10 == 9 else {})}) + "\n"
                   for step in range(first, first + steps))


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def put(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def plot(self, *arguments, before=""):
        script = f"import sys; sys.path.insert(0, {str(pathlib.Path(plot.__file__).parent)!r}); {before}import plot; plot.main()"
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_reads_a_file_that_is_still_written_and_a_run_that_was_resumed(self):
        steps = plot.read(self.put("x", log(30) + '{"failure":"rank 1"}\n' + log(20, first=20) + '{"step":40,"lo'))
        self.assertEqual(list(steps), list(range(40)))
        self.assertEqual(plot.points(steps, "held-out accuracy, %"), [(9, 50), (19, 50), (29, 50), (39, 50)])
        drawn = plot.points(plot.read(self.put("x", log(1000))), "loss")
        self.assertIn((701, 9), drawn)  # of many steps the lowest and the highest are drawn, and a gap
        self.assertTrue(len(drawn) <= plot.MOST_POINTS and any(value != value for _, value in drawn))

    def test_refuses_in_one_line_what_is_no_log(self):
        for text, reason in (("step 1\n", ":1: is no line that"), (log(3) + '{"step":3,"lo\n' + log(1), ":4: is no line that"),
                             (log(1) + "[1]\n", ":2: is no line that"), (log(1) + '{"a":1}\n', ":2: is no line that"),
                             ('{"step":0,"loss":"low"}\n', ":1: is no line that"), ("", ": has no step")):
            path = self.put("x", text)
            status, said = self.plot(path, "--out", "x.svg")
            self.assertEqual((status, said.count("\n")), (1, 1), said)
            self.assertIn(f"fsdp plot: {path}{reason}", said)
        self.assertIn("none: No such file or directory\n", self.plot("none", "--out", "x.svg")[1])
        self.assertIn("must end in .svg or .png", self.plot(path, "--out", "x.pdf")[1])
        said = self.plot(self.put("x", log(1)), "--out", "x.svg", before="sys.modules['matplotlib'] = None; ")
        self.assertEqual(said, (1, "fsdp plot: matplotlib is missing: run ./fsdp setup --plots\n"))

    def test_draws_the_same_svg_for_the_same_runs_that_follows_the_scheme(self):
        runs = [self.put("a.jsonl", log(1000)), self.put("b.jsonl", log(1))]
        for name in ("1.svg", "2.svg", "3.png"):
            self.assertEqual(self.plot(*runs, "--out", self.folder / name)[0], 0)
        text = (self.folder / "1.svg").read_text()
        self.assertEqual(text, (self.folder / "2.svg").read_text())
        self.assertTrue((self.folder / "3.png").read_bytes().startswith(b"\x89PNG"))
        xml.fromstring(text)
        for word in ("a.jsonl", "b.jsonl", "loss", "held-out accuracy, %", "tokens/s", "step"):
            self.assertIn(f">{word}</text>", text)
        self.assertLessEqual(set(re.findall(r"#[0-9a-f]{6}\b", text.partition("</style>")[2])), set(plot.COLORS))


if __name__ == "__main__":
    unittest.main()
