#pragma once

#include <plan/settings.h>

#include <algorithm>
#include <cstdint>
#include <string>

// The functions of this header compute the time of a training step of a GPT-2 with checkpointed
// blocks, in the way in which a student adds it up by hand.
namespace fsdp {

// The sizes of the model's units, without padding.
struct ModelUnits {
  // `blocks`: the number of blocks (transformer blocks, each a unit). `block`: the number of
  // elements of one block.
  int64_t blocks{}, block{};
  int64_t root{};  // number of elements of the root unit
  int64_t all() const { return blocks * block + root; }
};
ModelUnits units_of(const PlanSettings& settings);

// [ms] The times for which a rank computes in a phase (forward or backward): `block` for one block,
// `head` for the head of the model.
struct ComputingByHand {
  double block{}, head{};
};

// [ms] The times of a phase: forward or backward. The phase takes the longer of `computing` and
// `links`, plus `sums`, `ends` and `loss`.
struct PhaseByHand {
  ComputingByHand of;
  double computing{};  // [ms] time in which the rank computes
  double links{};      // [ms] time of the collectives that can overlap with computing
  // [ms] Time of the all-reduces that add up gradients between replicas. They overlap with nothing.
  double sums{};
  // [ms] at the beginning and at the end of the phase in which only the links move data, or only
  // the rank computes.
  double ends{};
  double loss{};  // [ms] time for averaging the loss over all ranks, at the end of backward
  bool links_are_longer() const { return links > computing; }
  double total() const { return std::max(computing, links) + sums + ends + loss; }
};

struct StepByHand {
  PhaseByHand forward, backward;
  double total() const { return forward.total() + backward.total(); }
};

// Returns the times of a step. `strategy`: full, grad_op, or hybrid with a replica on each host.
StepByHand step_by_hand(const PlanSettings& settings, const std::string& strategy);

}  // namespace fsdp
