#pragma once

#include <plan/settings.h>

#include <algorithm>
#include <cstdint>
#include <string>

// The time of a step of a GPT-2 with checkpointed blocks, as a student adds it up by hand.
namespace fsdp {

// The model's units, without padding.
struct ModelUnits {
  int64_t blocks{}, block{};  // number of blocks, and [elements] of one
  int64_t root{};             // [elements]
  int64_t all() const { return blocks * block + root; }
};
ModelUnits units_of(const PlanSettings& settings);

// [ms] What a block or the head computes in a phase.
struct ComputingByHand {
  double block{}, head{};
};

// [ms] A phase takes the longer of `computing` and `links`, and all of the others.
struct PhaseByHand {
  ComputingByHand of;
  double computing{};  // of the rank, in all
  double links{};      // of the collectives with which computing can overlap
  double sums{};       // between replicas, which overlap with nothing
  // At the beginning and at the end of a phase, either the links or the rank has nothing to do.
  double ends{};
  double loss{};  // of averaging the loss, at the end of backward
  bool links_are_longer() const { return links > computing; }
  double total() const { return std::max(computing, links) + sums + ends + loss; }
};

struct StepByHand {
  PhaseByHand forward, backward;
  double total() const { return forward.total() + backward.total(); }
};

// `strategy`: full, grad_op, or hybrid with a replica on each host.
StepByHand step_by_hand(const PlanSettings& settings, const std::string& strategy);

}  // namespace fsdp
