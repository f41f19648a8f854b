#include <gtest/gtest.h>
#include <receipt/sampling.h>

namespace fsdp {
namespace {

int count_of(const Sampling& sampling, TensorKind what, int64_t step) {
  int count = 0;
  for (int name = 0; name < 1000; ++name)
    count += sampling.selects({step, -1, what, "layers." + std::to_string(name)});
  return count;
}

TEST(Sampling, with_receipt_sample_8_a_receipt_has_one_event_in_8_and_other_events_in_each_step) {
  const Sampling sampling{.every = 8, .first_step = 0, .end_step = 9};
  EXPECT_NEAR(count_of(sampling, TensorKind::part, 3), 125, 30);
  int both = 0;
  for (int name = 0; name < 1000; ++name) {
    const std::string text = std::to_string(name);
    both += sampling.selects({3, 0, TensorKind::part, text}) &&
            sampling.selects({4, 0, TensorKind::part, text});
  }
  EXPECT_LT(both, 40);  // if the two steps draw independently, about 1000 / 64 events are in both
}

TEST(Sampling, a_receipt_has_all_parameters_at_saved_steps_and_all_moments_of_the_last_step) {
  const Sampling sampling{.every = 1000, .first_step = 2, .end_step = 9, .save_every = 3};
  const std::vector<std::pair<TensorKind, std::vector<int64_t>>> whole{
      {TensorKind::initial, {2}},
      {TensorKind::updated, {2, 5, 8}},
      {TensorKind::m, {8}},
      {TensorKind::v, {8}},
      {TensorKind::gathered, {}}};
  for (const auto& [what, steps] : whole) {
    for (int64_t step = 2; step < 9; ++step) {
      const bool all = std::ranges::find(steps, step) != steps.end();
      EXPECT_EQ(count_of(sampling, what, step) > 500, all)
          << nlohmann::json(what) << " of step " << step;
    }
  }
  for (int64_t step = 2; step < 9; ++step) {
    EXPECT_TRUE(sampling.selects({step, 1, TensorKind::loss, ""}));
    EXPECT_TRUE(sampling.selects({step, -1, TensorKind::norm, ""}));
  }
}

// Which events are sampled must not change between versions, because older receipts are audited
// with newer versions.
TEST(Sampling, the_events_that_a_receipt_samples_stay_the_same_in_later_versions) {
  const Sampling sampling{.every = 8, .end_step = 100};
  std::string selected;
  for (int64_t step = 0; step < 40; ++step)
    if (sampling.selects({step, 1, TensorKind::part, "h.0.attn.c_attn.weight"}))
      selected += std::to_string(step) + ' ';
  EXPECT_EQ(selected, "2 5 19 23 24 31 ");
}

}  // namespace
}  // namespace fsdp
