"""Tests how bench.py reads and summarizes runs. Needs no torch."""

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
    def test_the_json_of_a_run_without_a_final_line_is_refused(self):
        with self.assertRaisesRegex(bench.Failure, "final"):
            bench.read_run(lines([1.0])[:-1])

    def test_the_json_of_a_run_that_lacks_a_step_is_refused(self):
        with self.assertRaisesRegex(bench.Failure, "every step"):
            bench.read_run(lines([1.0, 2.0, 3.0])[1:])


class Command(unittest.TestCase):
    def words(self, program):
        args = types.SimpleNamespace(
            recipe="published", rows=1, seq=16, steps=8, torch_allocator=False
        )
        return bench.command(program, args, "gpt2-36m", 2, "out")

    def test_our_fsdp_runs_with_wrap_block_as_fsdp2_does_and_with_wrap_auto(self):
        for program, wrap in ((bench.OURS, "block"), (bench.AUTO, "auto")):
            words = self.words(program)
            self.assertEqual(words[words.index("--wrap") + 1], wrap)
            self.assertEqual(words[words.index("--mode") + 1], "fsdp")
        self.assertNotIn("--wrap", self.words(bench.OUR_DDP))


class Summary(unittest.TestCase):
    def test_a_ratio_of_speeds_compares_two_runs_of_the_same_round(self):
        runs = {"fsdp": rounds(20.0, 40.0, 60.0), "fsdp2": rounds(10.0, 10.0, 20.0)}
        self.assertEqual(bench.summarize(runs)["fsdp2"]["ratio"], {"median": 3, "min": 2, "max": 4})

    def test_the_ratio_of_pytorchs_ddp_compares_it_with_our_ddp_and_not_our_fsdp(self):
        runs = {"fsdp": rounds(90.0), bench.OUR_DDP: rounds(30.0), "ddp": rounds(10.0)}
        self.assertEqual(bench.summarize(runs)["ddp"]["ratio"]["median"], 3)

    def test_the_speed_of_a_run_does_not_count_its_warm_up_steps(self):
        slow = bench.read_run(lines([3.0, 2.5, 2.25, 2.0], 10.0))
        slow["tokens_per_s"][: bench.WARMUP] = [1.0] * bench.WARMUP
        summary = bench.summarize({"fsdp": [slow]})
        self.assertEqual(summary["fsdp"]["tokens_per_s"]["median"], 10)

    def test_the_peak_of_a_program_is_the_highest_peak_of_its_ranks(self):
        self.assertEqual(bench.summarize({"fsdp": rounds(1.0)})["fsdp"]["peak_bytes"], 8)

    def test_the_loss_difference_is_the_largest_relative_difference_of_any_step(self):
        runs = {"fsdp": rounds(1.0), "ddp": rounds(1.0, losses=(3.0, 2.5, 2.25, 2.5))}
        self.assertAlmostEqual(bench.summarize(runs)["ddp"]["loss_difference"], 0.25)

    def test_a_nan_loss_exceeds_the_loss_tolerance(self):
        runs = {"fsdp": rounds(1.0), "ddp": rounds(1.0, losses=(3.0, "NaN", 2.25, 2.0))}
        self.assertGreater(bench.summarize(runs)["ddp"]["loss_difference"], bench.LOSS_TOLERANCE)

    def test_only_the_losses_of_the_first_100_steps_are_compared(self):
        losses = [3.0] * bench.COMPARED
        runs = {
            "fsdp": rounds(1.0, losses=[*losses, 2.0]),
            "fsdp2": rounds(1.0, losses=[*losses, 2.1]),
        }
        self.assertEqual(bench.summarize(runs)["fsdp2"]["loss_difference"], 0)
        runs["fsdp2"] = rounds(1.0, losses=[*losses[1:], 3.1, 2.0])
        self.assertGreater(bench.summarize(runs)["fsdp2"]["loss_difference"], 0.03)

    def test_the_text_of_learned_has_the_number_of_steps_until_the_held_out_accuracy_was_1(self):
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

    def test_the_speed_of_independent_processes_is_the_sum_of_their_speeds(self):
        alone = [bench.together(rounds(10.0, 30.0, losses=(9.0, 8.0, 7.0, 6.0)))]
        summary = bench.summarize({"fsdp": rounds(20.0), "alone": alone})["alone"]
        self.assertEqual(summary["ratio"]["median"], 0.5)
        self.assertEqual(summary["loss_difference"], 0)
        self.assertIsNone(summary["peak_bytes"])

    def test_the_share_of_waiting_for_a_collective_is_a_median_over_the_steps_after_warm_up(self):
        def step(seconds):
            return bench.waiting({"seconds": {"step": 2.0},
                                  "operations": {"all_gather": {"seconds_waiting": seconds}}})

        warmup = [step(9.0)] * bench.WARMUP
        runs = [{"waiting": [*warmup, step(0.1), step(0.2)]}, {"waiting": [*warmup, step(1.0)]}]
        self.assertEqual(bench.waiting_share(runs), {"all_gather": 0.1})

    def test_a_peer_whose_model_has_another_number_of_parameters_is_refused(self):
        with self.assertRaisesRegex(bench.Failure, "parameters"):
            bench.summarize({"fsdp": rounds(1.0), "ddp": rounds(1.0, params=4)})
