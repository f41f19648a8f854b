"""Tests the code that reads and summarizes the runs. Needs no torch."""

import types
import unittest

import bench


def lines(losses, speed=100.0, **final):
    steps = [f'{{"step": {i}, "loss": {loss}, "tokens_per_s": {speed}}}'
             for i, loss in enumerate(losses)]
    params = final.get("params", 3)
    return [*steps, f'{{"final": true, "params": {params}, "peak_bytes": [4, 8]}}']


def rounds(*speeds, losses=(3.0, 2.5, 2.25, 2.0), **final):
    return [bench.read_run(lines(losses, speed, **final)) for speed in speeds]


class ReadRun(unittest.TestCase):
    def test_a_run_that_wrote_no_final_line_is_refused(self):
        with self.assertRaisesRegex(bench.Failure, "final"):
            bench.read_run(lines([1.0])[:-1])

    def test_a_missing_step_is_refused(self):
        with self.assertRaisesRegex(bench.Failure, "every step"):
            bench.read_run(lines([1.0, 2.0, 3.0])[1:])


class Command(unittest.TestCase):
    def words(self, program):
        args = types.SimpleNamespace(
            recipe="published", rows=1, seq=16, steps=8, torch_allocator=False
        )
        return bench.command(program, args, "gpt2-36m", 2, "out")

    def test_our_fsdp_runs_with_the_units_of_fsdp2_and_with_those_of_the_default(self):
        for program, wrap in ((bench.OURS, "block"), (bench.AUTO, "auto")):
            words = self.words(program)
            self.assertEqual(words[words.index("--wrap") + 1], wrap)
            self.assertEqual(words[words.index("--mode") + 1], "fsdp")
        self.assertNotIn("--wrap", self.words(bench.OUR_DDP))


class Summary(unittest.TestCase):
    def test_ratios_are_taken_within_a_round(self):
        runs = {"fsdp": rounds(20.0, 40.0, 60.0), "fsdp2": rounds(10.0, 10.0, 20.0)}
        self.assertEqual(bench.summarize(runs)["fsdp2"]["ratio"], {"median": 3, "min": 2, "max": 4})

    def test_ddp_is_compared_with_our_ddp(self):
        runs = {"fsdp": rounds(90.0), bench.OUR_DDP: rounds(30.0), "ddp": rounds(10.0)}
        self.assertEqual(bench.summarize(runs)["ddp"]["ratio"]["median"], 3)

    def test_steps_before_the_warm_up_ends_do_not_count(self):
        slow = bench.read_run(lines([3.0, 2.5, 2.25, 2.0], 10.0))
        slow["tokens_per_s"][: bench.WARMUP] = [1.0] * bench.WARMUP
        summary = bench.summarize({"fsdp": [slow]})
        self.assertEqual(summary["fsdp"]["tokens_per_s"]["median"], 10)

    def test_the_peak_is_that_of_the_rank_with_most(self):
        self.assertEqual(bench.summarize({"fsdp": rounds(1.0)})["fsdp"]["peak_bytes"], 8)

    def test_a_loss_that_differs_at_one_step_is_reported(self):
        runs = {"fsdp": rounds(1.0), "ddp": rounds(1.0, losses=(3.0, 2.5, 2.25, 2.5))}
        self.assertAlmostEqual(bench.summarize(runs)["ddp"]["loss_difference"], 0.25)

    def test_a_loss_that_is_no_number_does_not_pass(self):
        runs = {"fsdp": rounds(1.0), "ddp": rounds(1.0, losses=(3.0, "NaN", 2.25, 2.0))}
        self.assertGreater(bench.summarize(runs)["ddp"]["loss_difference"], bench.LOSS_TOLERANCE)

    def test_losses_are_compared_while_roundings_are_small(self):
        losses = [3.0] * bench.COMPARED
        runs = {
            "fsdp": rounds(1.0, losses=[*losses, 2.0]),
            "fsdp2": rounds(1.0, losses=[*losses, 2.1]),
        }
        self.assertEqual(bench.summarize(runs)["fsdp2"]["loss_difference"], 0)
        runs["fsdp2"] = rounds(1.0, losses=[*losses[1:], 3.1, 2.0])
        self.assertGreater(bench.summarize(runs)["fsdp2"]["loss_difference"], 0.03)

    def test_a_model_has_learned_when_it_makes_no_mistake(self):
        run = {
            "accuracy": {19: 0.5, 39: 1.0, 59: 1.0},
            "losses": [3.0, 0.25],
            "final": {"peak_bytes": [1, 2_000_000]},
        }
        self.assertEqual(
            bench.learned(run), "all right after 40 steps with loss 0.2500 and peak 2.0 MB"
        )
        run["accuracy"] = {19: 0.5}
        self.assertTrue(bench.learned(run).startswith("all right after no steps"))

    def test_processes_alone_are_as_fast_as_all_of_them_together(self):
        alone = [bench.together(rounds(10.0, 30.0, losses=(9.0, 8.0, 7.0, 6.0)))]
        summary = bench.summarize({"fsdp": rounds(20.0), "alone": alone})["alone"]
        self.assertEqual(summary["ratio"]["median"], 0.5)
        self.assertEqual(summary["loss_difference"], 0)
        self.assertIsNone(summary["peak_bytes"])

    def test_the_share_of_waiting_is_the_median_after_the_warm_up(self):
        def step(seconds):
            return bench.waiting({"seconds": {"step": 2.0},
                                  "operations": {"all_gather": {"seconds_waiting": seconds}}})

        warmup = [step(9.0)] * bench.WARMUP
        runs = [{"waiting": [*warmup, step(0.1), step(0.2)]}, {"waiting": [*warmup, step(1.0)]}]
        self.assertEqual(bench.waiting_share(runs), {"all_gather": 0.1})

    def test_a_peer_with_another_number_of_parameters_is_refused(self):
        with self.assertRaisesRegex(bench.Failure, "parameters"):
            bench.summarize({"fsdp": rounds(1.0), "ddp": rounds(1.0, params=4)})
