"""Tests what one_gpu.py reads from profiles and runs. Needs neither torch nor a GPU."""

import unittest

import bench
import one_gpu


def event(category, begin, length):
    return {"ph": "X", "cat": category, "ts": begin, "dur": length}


class ReadProfile(unittest.TestCase):
    def test_the_device_counts_as_busy_while_any_kernel_or_copy_runs(self):
        events = [
            event("kernel", 10, 5),
            event("kernel", 12, 1),
            event("gpu_memcpy", 14, 4),
            event("kernel", 30, 2),
        ]
        self.assertEqual(one_gpu.busy(events), 8 + 2)

    def test_read_profile_returns_operators_kernels_and_busy_seconds_per_step(self):
        events = [
            event("cpu_op", 0, 100),
            event("cpu_op", 1, 2),
            event("kernel", 10, 5),
            event("gpu_memset", 20, 1),
            {"ph": "s", "cat": "ac2g"},
            {"ph": "M", "name": "process_name"},
        ]
        self.assertEqual(one_gpu.read_profile({"traceEvents": events}, 2),
                         {"operators": 1, "kernels": 0.5, "seconds_busy": 3e-6})


class Flops(unittest.TestCase):
    def test_flops_of_a_gpt2_token_are_six_per_parameter_plus_those_of_attention(
        self,
    ):
        multiplied = 12 * 12 * 768**2 + 50257 * 768
        self.assertEqual(
            one_gpu.flops_of_token("gpt2-124m", 1024), 6 * multiplied + 12 * 12 * 768 * 1024
        )


class Compared(unittest.TestCase):
    def results(self, **other):
        ours = {"params": 10, "tokens_per_s": 300.0, "losses": [4.0, 3.0]}
        return {"fsdp": dict(ours), "fsdp2": {**ours, "tokens_per_s": 200.0, **other}}

    def test_the_ratio_of_a_program_is_our_speed_divided_by_its_speed(self):
        self.assertEqual(one_gpu.compared(self.results())["fsdp2"]["ratio"], 1.5)

    def test_a_program_with_another_parameter_count_or_other_losses_is_refused(self):
        for other, words in (
            ({"params": 11}, "11 parameters"),
            ({"losses": [4.0, 3.1]}, "the losses of FSDP2 differ"),
            ({"losses": [4.0, float("nan")]}, "the losses of FSDP2 differ"),
        ):
            with self.assertRaisesRegex(bench.Failure, words):
                one_gpu.compared(self.results(**other))


if __name__ == "__main__":
    unittest.main()
