#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "parsed.h"

namespace fsdp {
namespace {

std::string notes(const Arguments& arguments) {
  testing::internal::CaptureStderr();
  parse(arguments);
  return testing::internal::GetCapturedStderr();
}

TEST(TrainOption, an_invalid_number_of_a_train_option_is_refused_in_one_line) {
  const std::string positive = "a positive number", whole = "a whole number",
                    beyond = "18446744073709551616";  // 2^64, which does not fit into 64 bits
  for (const auto& [option, value, rule] : std::vector<std::array<std::string, 3>>{
           {"--lr", "nan", positive},
           {"--lr", "inf", positive},
           {"--lr", "-1", positive},
           {"--clip", "1e-400", positive},
           {"--lr", "abc", "a number"},
           {"--lr", "1e-3x", "a number"},
           {"--timeout", "nan", "at least 0.001"},
           {"--timeout", "1e30", "at most 1000000"},
           {"--batch", "0", "at least 1"},
           {"--steps", "-1", "at least 0"},
           {"--world", "65", "at most 64"},
           {"--limit", "0", "at least 1"},
           {"--limit", "many", whole},
           {"--batch", "1.5", whole},
           {"--batch", "", whole},
           {"--steps", "9223372036854775808", "at most 1000000000"},
           {"--seed", "-1", "at least 0"},
           {"--seed", beyond, "at most 18446744073709551615"}})
    EXPECT_EQ(refusal({option, value}), option + " must be " + rule + ", not " + value);
}

TEST(TrainOption, train_options_take_numbers_with_exponents_with_fractions_and_of_64_bits) {
  const TrainConfig config =
      parse({"--lr", "3e-4", "--clip", ".5", "--steps", "0", "--batch", "8", "--world", "4",
             "--mode", "fsdp", "--timeout", "2.5", "--seed", "18446744073709551615"});
  EXPECT_EQ(config.optimizer.lr, 3e-4);
  EXPECT_EQ(config.optimizer.clip, 0.5);
  EXPECT_EQ(config.training.steps, 0);
  EXPECT_EQ(config.training.batch, 8);
  EXPECT_EQ(config.ranks.world, 4);
  EXPECT_EQ(config.ranks.comm.timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(config.training.seed, std::numeric_limits<uint64_t>::max());
}

TEST(TrainOption, the_option_norm_type_takes_a_number_above_zero_or_inf) {
  EXPECT_EQ(parse({"--clip", "1"}).optimizer.norm_type, 2);
  EXPECT_EQ(parse({"--clip", "1", "--norm-type", "2.5"}).optimizer.norm_type, 2.5);
  EXPECT_EQ(parse({"--norm-type", "inf", "--clip", "1"}).optimizer.norm_type,
            std::numeric_limits<double>::infinity());
  for (const std::string value : {"0", "-1", "nan", "-inf"}) {
    EXPECT_EQ(refusal({"--clip", "1", "--norm-type", value}),
              "--norm-type must be a positive number, not " + value);
  }
  EXPECT_EQ(refusal({"--norm-type", "2"}), "--norm-type: needs --clip");
}

TEST(TrainOption, the_number_of_microbatches_must_be_a_multiple_of_the_number_of_ranks) {
  EXPECT_EQ(parse({"--world", "4", "--batch", "8"}).training.microbatches, 4);
  EXPECT_EQ(parse({"--world", "4", "--batch", "8", "--microbatches", "8"}).training.microbatches,
            8);
  EXPECT_EQ(refusal({"--world", "4", "--batch", "8", "--microbatches", "6"}),
            "--microbatches 6: must be a multiple of the 4 ranks (--world)");
  EXPECT_EQ(refusal({"--world", "2", "--batch", "8", "--microbatches", "6"}),
            "--batch 8: can't be cut into 6 equal parts (--microbatches)");
  EXPECT_EQ(refusal({"--world", "3", "--batch", "8"}),
            "--batch 8: can't be cut into 3 equal parts (--world)");
}

TEST(TrainOption, the_option_strategy_sets_the_number_of_shards_and_whether_units_reshard) {
  struct Row {
    const char* name;
    int shards;
    bool reshard;
    const char* reported;
  };
  for (const auto& [name, shards, reshard, reported] :
       std::vector<Row>{{"full", 4, true, "full"},
                        {"FULL_SHARD", 4, true, "full"},
                        {"grad_op", 4, false, "grad_op"},
                        {"Shard_Grad_Op", 4, false, "grad_op"},
                        {"no", 1, true, "no"},
                        {"NO_SHARD", 1, true, "no"}}) {
    const TrainConfig config =
        parse({"--mode", "fsdp", "--world", "4", "--batch", "4", "--strategy", name});
    EXPECT_EQ(config.shards(), shards) << name;
    EXPECT_EQ(config.sharding.reshard_after_forward, reshard) << name;
    EXPECT_STREQ(config.sharding_strategy(), reported) << name;
  }
  for (const char* name : {"hybrid", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"}) {
    const TrainConfig config = parse({"--mode", "fsdp", "--world", "6", "--batch", "6",
                                      "--strategy", name, "--shard-size", "2"});
    EXPECT_EQ(config.shards(), 2) << name;
    EXPECT_EQ(config.sharding.reshard_after_forward, name[0] != '_') << name;
    EXPECT_STREQ(config.sharding_strategy(), "hybrid") << name;
  }
}

TEST(TrainOption, strategy_or_shard_size_that_contradicts_another_option_is_refused) {
  const auto refused = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--mode", "fsdp", "--world", "4", "--batch", "4"});
    return refusal(arguments);
  };
  EXPECT_EQ(refused({"--strategy", "hybrid"}), "--strategy hybrid: needs --shard-size");
  EXPECT_EQ(refused({"--strategy", "hybrid", "--shard-size", "3"}),
            "--shard-size 3: does not divide the 4 ranks (--world)");
  EXPECT_EQ(refused({"--shard-size", "2"}), "--shard-size: needs --strategy hybrid");
  EXPECT_EQ(refused({"--strategy", "full", "--shard-size", "2"}),
            "--shard-size: needs --strategy hybrid, not full");
  const std::string kept = "keeps units after forward; leave out --reshard-after-forward on";
  EXPECT_EQ(refused({"--strategy", "grad_op", "--reshard-after-forward", "on"}),
            "--strategy grad_op: " + kept);
  EXPECT_EQ(refused({"--strategy", "grad_op", "--reshard-after-forward", "off"}), "accepted");
  EXPECT_EQ(refused({"--strategy", "hybrid", "--shard-size", "2", "--link", "1us,1GB/s"}),
            "--link: simulates one replica; give --strategy full or grad_op");
  EXPECT_EQ(refused({"--strategy", "hybrid", "--shard-size", "4", "--link", "1us,1GB/s"}),
            "accepted");
}

TEST(TrainOption, the_option_flops_needs_the_option_link) {
  EXPECT_EQ(refusal({"--flops", "1e9"}),
            "--flops: counts the time of ranks with a simulated link; give --link");
  EXPECT_EQ(parse({"--flops", "1e9", "--link", "1us,1GB/s"}).ranks.flops, 1e9);
}

TEST(TrainOption, the_option_reduce_gradients_last_sets_reduce_last_of_the_batch_partition) {
  EXPECT_FALSE(parse({"--world", "2", "--microbatches", "4"}).batch_partition().reduce_last);
  EXPECT_TRUE(parse({"--world", "2", "--microbatches", "4", "--reduce-gradients", "last"})
                  .batch_partition()
                  .reduce_last);
  EXPECT_EQ(notes({"--mode", "fsdp", "--world", "2", "--reduce-gradients", "last"}),
            "fsdp train: --reduce-gradients has no effect with one microbatch for each rank "
            "(--microbatches)\n");
}

TEST(TrainOption, forward_and_backward_can_have_different_prefetch_limits) {
  const auto limits = [](const Arguments& arguments) {
    const TrainConfig config = parse(arguments);
    return std::pair(config.sharding.limit_in_forward(), config.sharding.limit_in_backward());
  };
  EXPECT_EQ(limits({}), std::pair(2, 2));
  EXPECT_EQ(limits({"--limit", "3"}), std::pair(3, 3));
  EXPECT_EQ(limits({"--limit", "3", "--forward-limit", "5"}), std::pair(5, 3));
  EXPECT_EQ(limits({"--backward-limit", "1"}), std::pair(2, 1));
  EXPECT_EQ(limits({"--limit", "all", "--backward-limit", "4"}), std::pair(kAllUnits, 4));
  EXPECT_EQ(limits({"--forward-limit", "all", "--prefetch", "off"}), std::pair(1, 1));
}

TEST(TrainOption,
     the_option_checkpoint_activations_selects_no_block_all_blocks_or_every_kth_block) {
  const auto every = [](const std::string& text) {
    return parse({"--checkpoint-activations", text}).memory.activation_checkpoint_every;
  };
  EXPECT_EQ(parse({}).memory.activation_checkpoint_every, 0);
  EXPECT_EQ(every("none"), 0);
  EXPECT_EQ(every("all"), 1);
  EXPECT_EQ(every("every:3"), 3);
  EXPECT_EQ(refusal({"--checkpoint-activations", "some"}),
            "--checkpoint-activations must be none, all or every:K, not some");
  EXPECT_EQ(refusal({"--checkpoint-activations", "every:0"}),
            "--checkpoint-activations every: must be at least 1, not 0");
}

TEST(TrainOption, reduce_dtype_defaults_to_param_dtype) {
  EXPECT_EQ(parse({}).precision.policy, MixedPrecisionPolicy{});
  const MixedPrecisionPolicy both{at::kBFloat16, at::kBFloat16};
  EXPECT_EQ(parse({"--param-dtype", "bf16"}).precision.policy, both);
  const MixedPrecisionPolicy other{at::kHalf, at::kFloat};
  EXPECT_EQ(parse({"--param-dtype", "fp16", "--reduce-dtype", "fp32"}).precision.policy, other);
  const MixedPrecisionPolicy sent{at::kFloat, at::kBFloat16};
  EXPECT_EQ(parse({"--reduce-dtype", "bf16"}).precision.policy, sent);
  EXPECT_EQ(refusal({"--param-dtype", "fp8"}), "--param-dtype must be fp32, bf16 or fp16, not fp8");
}

TEST(TrainOption, the_pattern_of_keep_fp32_names_the_parameters_that_stay_fp32) {
  const TrainConfig config = parse({"--param-dtype", "bf16", "--keep-fp32", "ln"});
  const MixedPrecisionPolicy bf16{at::kBFloat16, at::kBFloat16};
  EXPECT_EQ(config.precision.policy_of("h.0.ln_1.bias"), MixedPrecisionPolicy{});
  EXPECT_EQ(config.precision.policy_of("h.0.attn.c_attn.bias"), bf16);
  EXPECT_EQ(parse({"--param-dtype", "bf16"}).precision.policy_of("h.0.ln_1.bias"), bf16);
  EXPECT_EQ(refusal({"--keep-fp32", "ln"}), "--keep-fp32: needs --param-dtype or --reduce-dtype");
  EXPECT_EQ(refusal({"--param-dtype", "bf16", "--keep-fp32", "("}),
            "--keep-fp32 (: not a regular expression");
  const std::string deep = std::string(1 << 18, '(') + std::string(1 << 18, ')');
  EXPECT_EQ(refusal({"--param-dtype", "bf16", "--keep-fp32", deep}),
            "--keep-fp32: takes at most 500 characters");
  EXPECT_EQ(refusal({"--no-decay", deep}), "--no-decay: takes at most 500 characters");
}

TEST(TrainOption, the_loss_is_scaled_by_default_in_fp16) {
  EXPECT_FALSE(parse({}).precision.loss_scaler);
  EXPECT_FALSE(parse({"--param-dtype", "bf16"}).precision.loss_scaler);
  EXPECT_EQ(parse({"--param-dtype", "fp16"}).precision.loss_scaler->scale(), 65536);
  EXPECT_EQ(parse({"--reduce-dtype", "fp16"}).precision.loss_scaler->growth_interval(), 2000);
  EXPECT_FALSE(parse({"--param-dtype", "fp16", "--loss-scale", "none"}).precision.loss_scaler);
  const auto scaler = parse({"--loss-scale", "8", "--growth-interval", "5"}).precision.loss_scaler;
  EXPECT_EQ(scaler->scale(), 8);
  EXPECT_EQ(scaler->growth_interval(), 5);
  EXPECT_EQ(refusal({"--loss-scale", "12"}), "--loss-scale 12: takes a power of two, or none");
  EXPECT_EQ(refusal({"--loss-scale", "0"}), "--loss-scale must be at least 1, not 0");
  EXPECT_EQ(refusal({"--growth-interval", "5"}), "--growth-interval: needs --loss-scale");
}

TEST(TrainOption, the_option_reduce_gradients_last_is_refused_in_mixed_precision) {
  const auto with = [](const std::string& dtype) {
    return refusal({"--world", "2", "--batch", "4", "--microbatches", "4", "--reduce-gradients",
                    "last", "--param-dtype", dtype});
  };
  EXPECT_EQ(with("fp32"), "accepted");
  EXPECT_EQ(
      with("bf16"),
      "--reduce-gradients last: does not support mixed precision; give --reduce-gradients each, or "
      "--param-dtype fp32 and --reduce-dtype fp32");
}

TEST(TrainOption, the_option_step_in_backward_is_refused_if_another_option_needs_all_gradients) {
  const auto with = [](Arguments arguments) {
    arguments.insert(arguments.begin(),
                     {"--mode", "fsdp", "--world", "2", "--step-in-backward", "on"});
    return refusal(arguments);
  };
  EXPECT_FALSE(parse({}).optimizer.step_in_backward);
  EXPECT_TRUE(parse({"--mode", "fsdp", "--step-in-backward", "on"}).optimizer.step_in_backward);
  EXPECT_EQ(with({"--param-dtype", "bf16"}), "accepted");
  EXPECT_EQ(
      with({"--clip", "1"}),
      "--step-in-backward on: --clip needs the norm of all gradients before the first update");
  EXPECT_EQ(with({"--param-dtype", "fp16"}),
            "--step-in-backward on: with a loss scale (--loss-scale, fp16) a step is skipped if a "
            "gradient overflows, which is known when all gradients are reduced");
  EXPECT_EQ(with({"--param-dtype", "fp16", "--loss-scale", "none"}), "accepted");
  EXPECT_EQ(with({"--microbatches", "4"}),
            "--step-in-backward on: needs one microbatch for each rank; give --microbatches 2");
}

TEST(TrainOption, train_prints_a_note_about_an_option_that_has_no_effect) {
  EXPECT_EQ(notes({"--mode", "ddp", "--world", "4", "--batch", "4", "--strategy", "hybrid",
                   "--shard-size", "2"}),
            "fsdp train: --strategy has no effect with --mode ddp\n"
            "fsdp train: --shard-size has no effect with --mode ddp\n");
  EXPECT_EQ(notes({"--mode", "single", "--world", "4", "--batch", "4", "--strategy", "no"}), "");
  EXPECT_EQ(notes({"--mode", "fsdp", "--limit", "3", "--wrap", "none"}), "");
  EXPECT_EQ(notes({"--mode", "ddp", "--wrap", "none", "--limit", "3", "--clip", "1"}),
            "fsdp train: --wrap has no effect with --mode ddp\n"
            "fsdp train: --limit has no effect with --mode ddp\n");
  EXPECT_EQ(notes({"--mode", "single", "--backend", "gloo"}),
            "fsdp train: --backend has no effect with --mode single\n");
  EXPECT_EQ(notes({"--mode", "fsdp", "--prefetch", "on", "--limit", "1"}),
            "fsdp train: --prefetch has no effect with --limit 1\n");
  EXPECT_EQ(notes({"--mode", "fsdp", "--prefetch", "on", "--limit", "1", "--backward-limit", "2"}),
            "");
  EXPECT_EQ(notes({"--print-units", "--wrap", "block"}), "");
  EXPECT_EQ(notes({"--mode", "ddp", "--backward-limit", "2"}),
            "fsdp train: --backward-limit has no effect with --mode ddp\n");
}

}  // namespace
}  // namespace fsdp
