// Made from course.toml by grading/course/skeletons.py.
#include <check/course.h>

namespace fsdp {

// clang-format off
const std::vector<Task>& course() {
  static const std::vector<Task> tasks{
    {1, "meta_init", "T1_1_memory.a_recorded_module_takes_no_memory", {
      {"1.1", "redirect", 5, {"T1_1_redirect", "T1_1_memory"}},
      {"1.2", "replay", 6, {"T1_2_replay", "T1_2_sharing"}},
      {"1.3", "bounded_replay", 4, {"T1_3_bounded_replay", "T1_3_construct_on_meta"}},
    }},
    {2, "flat_parameter", "T2_2_shard.a_rank_keeps_only_a_part_of_the_unit", {
      {"2.1", "layout", 4, {"T2_1_layout"}},
      {"2.2", "shard", 4, {"T2_2_shard"}},
      {"2.3", "unshard", 4, {"T2_3_unshard"}},
      {"2.4", "reshard", 4, {"T2_4_reshard"}},
      {"2.5", "flat_gradient", 4, {"T2_5_flat_gradient"}},
      {"2.6", "mixed_precision", 4, {"T2_6_mixed_precision", "T2_6_mixed_gradient"}, true},
    }},
    {3, "forward_hooks", "T3_2_post_forward.after_forward_a_rank_holds_only_a_part_of_the_model", {
      {"3.1", "pre_forward", 3, {"T3_1_pre_forward"}},
      {"3.2", "post_forward", 3, {"T3_2_post_forward"}},
      {"3.3", "nesting", 2, {"T3_3_nesting"}},
      {"3.4", "rough_ground", 2, {"T3_4_rough_ground"}},
    }},
    {4, "backward_hooks", "T4_4_finish.after_backward_a_rank_holds_only_a_part_of_parameters_and_gradients", {
      {"4.1", "pre_backward", 4, {"T4_1_pre_backward"}},
      {"4.2", "reduce_scatter", 6, {"T4_2_reduce_scatter"}},
      {"4.3", "exactly_once", 6, {"T4_3_exactly_once"}},
      {"4.4", "finish", 4, {"T4_4_finish"}},
      {"4.5", "accumulate", 5, {"T4_5_accumulate"}, true},
      {"4.6", "checkpoint_activations", 5, {"T4_6_checkpoint_activations", "T4_6_checkpointed_values", "T4_6_checkpointed_units"}, true, true},
    }},
    {5, "sharded_optimizer", "T5_1_state.a_rank_holds_only_a_part_of_the_state", {
      {"5.1", "step_on_shards", 7, {"T5_1_step_on_shards", "T5_1_state"}},
      {"5.2", "padding", 3, {"T5_2_padding"}},
      {"5.3", "global_norm", 5, {"T5_3_global_norm"}},
      {"5.4", "p_norm", 4, {"T5_4_p_norm"}, true},
      {"5.5", "state", 4, {"T5_5_state"}, true},
      {"5.6", "locate", 4, {"T5_6_locate"}, true, true},
    }},
    {6, "prefetch", "T6_4_limit.after_a_step_a_rank_holds_only_a_part_of_the_model", {
      {"6.1", "record", 2, {"T6_1_record"}},
      {"6.2", "forward", 3, {"T6_2_forward"}},
      {"6.3", "backward", 3, {"T6_3_backward"}},
      {"6.4", "limit", 3, {"T6_4_limit"}},
      {"6.5", "overlap", 4, {"T6_5_overlap"}},
      {"6.6", "prefetch_lists", 4, {"T6_6_prefetch_lists"}, true},
    }},
    {7, "integration", "T7_1_fully_shard_ranks.a_rank_holds_only_a_part_of_the_model", {
      {"7.1", "fully_shard", 6, {"T7_1_fully_shard", "T7_1_fully_shard_ranks", "T7_1_options"}},
      {"7.2", "tied_weights", 5, {"T7_2_tied_weights", "T7_2_tied_weights_ranks"}},
      {"7.3", "policy", 4, {"T7_3_policy"}},
      {"7.4", "export", 4, {"T7_4_export"}},
      {"7.5", "the_proof", 6, {"T7_5_the_proof"}},
      {"7.6", "wrap_by_size", 2, {"T7_6_wrap_by_size"}, true, true},
      {"7.7", "hybrid", 2, {"T7_7_hybrid"}, true},
      {"7.8", "ignored", 3, {"T7_8_ignored", "T7_8_ignored_ranks"}, true, true},
      {"7.9", "keep_fp32", 2, {"T7_9_keep_fp32", "T7_9_keep_fp32_ranks"}, true, true},
    }},
  };
  return tasks;
}

}  // namespace fsdp
