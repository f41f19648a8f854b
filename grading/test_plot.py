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
    return "".join(json.dumps({"step": step, "loss": 4 / (1 + step), "tokens_per_s": 1000 + step % 7,
                               **({"held_out": {"accuracy": 0.5}} if step % 10 == 9 else {})}) + "\n"
                   for step in range(first, first + steps))


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def put(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def plot(self, *arguments):
        done = subprocess.run([sys.executable, plot.__file__, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_reads_a_file_that_is_still_written_and_a_run_that_was_resumed(self):
        path = self.put("x.jsonl", log(30) + '{"failure":"rank 1"}\n' + log(20, first=20) + '{"step":40,"lo')
        steps = plot.read(path)
        self.assertEqual(list(steps), list(range(40)))
        self.assertEqual(plot.points(steps, plot.PANELS["held-out accuracy, %"]), [(9, 50), (19, 50), (29, 50), (39, 50)])

    def test_refuses_what_is_no_log_by_file_and_line(self):
        for text, reason in (("step 1\n", ":1: is no line that"), (log(3) + '{"step":3,"lo\n' + log(1), ":4: is no line that"),
                             (log(1) + "[1]\n", ":2: is no line that"), (log(1) + '{"a":1}\n', ":2: is no line that"),
                             ('{"step":0,"loss":"low"}\n', ":1: is no line that"), ("", ": has no step"),
                             ('{"step":', ": has no step")):
            path = self.put("x.jsonl", text)
            status, said = self.plot(path, "--out", self.folder / "x.svg")
            self.assertEqual((status, said.count("\n")), (1, 1), said)
            self.assertTrue(said.startswith(f"fsdp plot: {path}{reason}"), said)
        self.assertIn("No such file", self.plot(self.folder / "none", "--out", "x.svg")[1])
        self.assertIn("must end in .svg or .png", self.plot(path, "--out", "x.pdf")[1])

    def test_says_what_to_run_where_matplotlib_is_missing(self):
        script = f"import sys; sys.path.insert(0, {str(pathlib.Path(plot.__file__).parent)!r}); " \
                 "sys.modules['matplotlib'] = None; import plot; plot.main()"
        path = self.put("x.jsonl", log(3))
        done = subprocess.run([sys.executable, "-c", script, path, "--out", self.folder / "x.svg"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (1, "fsdp plot: matplotlib is missing: run ./fsdp setup --plots\n"))

    def test_of_many_steps_the_lowest_and_the_highest_are_drawn(self):
        steps = {step: {"step": step, "loss": 9 if step == 7001 else None if step == 8001 else 1} for step in range(10_000)}
        drawn = plot.points(steps, plot.PANELS["loss"])
        self.assertLessEqual(len(drawn), plot.MOST_POINTS + 2)
        self.assertIn((7001, 9), drawn)
        self.assertTrue(any(value != value for _, value in drawn))  # a gap

    def test_draws_the_same_svg_for_the_same_runs_that_follows_the_scheme(self):
        runs = [self.put("a/x.jsonl", log(100)), self.put("b/x.jsonl", log(50)), self.put("c/one.jsonl", log(1))]
        pictures = []
        for name in ("1.svg", "2.svg", "3.png"):
            status, said = self.plot(*runs, "--out", self.folder / name)
            self.assertEqual(status, 0, said)
            pictures.append((self.folder / name).read_bytes())
        self.assertEqual(pictures[0], pictures[1])
        self.assertTrue(pictures[2].startswith(b"\x89PNG"))
        text = pictures[0].decode()
        xml.fromstring(text)
        for word in (*map(str, runs), "loss", "held-out accuracy, %", "tokens/s", "step"):
            self.assertIn(f">{word}</text>", text)
        self.assertIn("prefers-color-scheme: dark", text)
        fixed = set(re.findall(r"#[0-9a-f]{6}\b", text.partition("</style>")[2]))
        self.assertLessEqual(fixed, set(plot.COLORS))


if __name__ == "__main__":
    unittest.main()
