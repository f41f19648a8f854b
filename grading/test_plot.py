"""Tests what ./fsdp plot reads, rejects and draws."""

import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plot  # noqa: E402


def log(steps, first=0):
    return "".join(
        json.dumps(
            {
                "step": step,
                "loss": 9 if step == 701 else None if step == 801 else 1,
                "tokens_per_s": step,
                **({"held_out": {"accuracy": 0.5, "loss": 2}} if step % 10 == 9 else {}),
            }
        )
        + "\n"
        for step in range(first, first + steps)
    )


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def plot(self, text, out, *python):
        """Plots two logs: one with a single step, and one with the lines `text`. Returns what plot
        prints."""
        for name, steps in (("a.jsonl", log(1)), ("b.jsonl", text)):
            (self.folder / name).write_text(steps)
        command = [sys.executable, *(python or [plot.__file__]), "a.jsonl", "b.jsonl", "--out", out]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.path.dirname(plot.__file__)})
        return done.stdout + done.stderr

    def test_plot_reads_the_log_of_a_resumed_run_with_an_incomplete_last_line(self):
        (self.folder / "x").write_text(
            log(30) + '{"failure":"rank 1"}\n' + log(980, first=20) + '{"step":1000,"lo'
        )
        steps = plot.read(self.folder / "x")
        self.assertEqual(list(steps), list(range(1000)))
        self.assertEqual(
            plot.points(steps, "held-out accuracy, %"), [(step, 50) for step in range(10, 1001, 10)]
        )
        drawn = plot.points(steps, "loss")
        # A curve with many steps has the lowest and the highest value of each group, and a gap at a
        # loss that is not finite.
        self.assertIn((701, 9), drawn)
        self.assertTrue(
            len(drawn) <= plot.MOST_POINTS and any(value != value for _, value in drawn)
        )

    def test_plot_draws_an_evaluation_before_training_at_step_0_and_others_after_their_step(self):
        first = {"step": 0, "loss": 3, "held_out_before": {"loss": 4, "accuracy": 0.25}}
        second = {"step": 1, "loss": 2, "held_out": {"loss": 2, "accuracy": 0.5}}
        (self.folder / "x").write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
        steps = plot.read(self.folder / "x")
        self.assertEqual(plot.points(steps, plot.HELD_OUT_LOSS), [(0, 4), (2, 2)])
        self.assertEqual(plot.points(steps, plot.HELD_OUT_ACCURACY), [(0, 25), (2, 50)])
        self.assertEqual(plot.points(steps, "loss"), [(0, 3), (1, 2)])

    def test_plot_draws_the_running_median_of_the_tokens_per_second(self):
        (self.folder / "x").write_text(
            "".join(
                json.dumps({"step": step, "loss": 1, "tokens_per_s": speed}) + "\n"
                for step, speed in enumerate((10, 10, 900, 10, 20, 20, 1, 20, 20))
            )
        )
        drawn = plot.points(plot.read(self.folder / "x"), plot.SPEED)
        self.assertEqual(drawn[:4], [(0, 10), (1, 10), (2, 10), (3, 20)])
        self.assertNotIn(900, [speed for _, speed in drawn])

    def test_plot_prints_one_line_with_the_reason_if_a_file_is_not_a_log_of_a_training(self):
        for text, reason in (
            ("step 1\n", ":1: is no line that"),
            (log(3) + '{"step":3,"lo\n' + log(1), ":4: is no line that"),
            (log(1) + "[1]\n", ":2: is no line that"),
            (log(1) + '{"a":1}\n', ":2: is no line that"),
            ('{"step":0,"loss":"low"}\n', ":1: is no line that"),
            ("", ": has no step"),
        ):
            self.assertRegex(self.plot(text, "x.svg"), f"^fsdp plot: b.jsonl{reason}.*\n$")
        self.assertIn("must end in .svg, .png or .csv", self.plot(log(1), "x.pdf"))
        missing = "import sys; sys.modules['matplotlib'] = None; import plot; plot.main()"
        self.assertEqual(
            self.plot(log(1), "x.svg", "-c", missing),
            "fsdp plot: matplotlib is missing: run ./fsdp setup --plots\n",
        )

    def test_plot_refuses_to_replace_a_log_by_the_file_of_out(self):
        (self.folder / "link.csv").symlink_to("b.jsonl")
        printed = self.plot(log(2), "link.csv")
        self.assertIn("--out link.csv: is the log b.jsonl, which would be replaced; give another "
                      "file", printed)
        self.assertEqual((self.folder / "b.jsonl").read_text(), log(2))

    def test_plot_writes_a_csv_with_a_row_for_each_step_without_matplotlib(self):
        step = {"step": 1, "loss": None, "seconds": {"step": 0.25}, "held_out": {"loss": 2.5}}
        text = log(2) + '{"resumed_after": 1}\n' + json.dumps(step) + "\n"
        missing = "import sys; sys.modules['matplotlib'] = None; import plot; plot.main()"
        printed = self.plot(text, "x.csv", "-c", missing)
        self.assertEqual(printed, "x.csv: 1 steps of a.jsonl, 2 steps of b.jsonl\n")
        rows = list(csv.DictReader((self.folder / "x.csv").read_text().splitlines()))
        self.assertEqual([(row["run"], row["step"]) for row in rows],
                         [("a.jsonl", "0"), ("b.jsonl", "0"), ("b.jsonl", "1")])
        self.assertEqual(
            rows[2],
            {"run": "b.jsonl", "step": "1", "loss": "", "tokens_per_s": "", "seconds.step": "0.25",
             "held_out.loss": "2.5"},
        )

    def test_plot_draws_equal_svgs_for_equal_runs_with_colours_that_follow_light_or_dark_mode(self):
        first, second, png = (
            self.plot(log(1000), name) and (self.folder / name).read_bytes()
            for name in ("1.svg", "2.svg", "3.png")
        )
        self.assertEqual((first, png[:4]), (second, b"\x89PNG"))
        e_squared = "7.39"  # the perplexity of a loss of 2
        for word in ("a.jsonl", "b.jsonl", *plot.PANELS, plot.X_LABEL, e_squared):
            self.assertIn(f">{word}</text>", first.decode())
        self.assertLessEqual(
            set(re.findall(r"#[0-9a-f]{6}\b", first.decode().partition("</style>")[2])),
            set(plot.COLORS),
        )


if __name__ == "__main__":
    unittest.main()
