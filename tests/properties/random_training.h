#pragma once

#include <config/train_config.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// One layer of a random model: y = x + f(x), x [rows, width].
struct Layer {
  // - linear: a weight and a bias.
  // - odd: a scale, `size` further elements, a tensor without dimensions and an empty tensor.
  // - transposed: a linear layer whose weight is not contiguous.
  // - nested: a linear layer that first calls an inner linear layer.
  // - paired: a linear layer that first calls a module with two inputs and two output tensors.
  std::string kind{"linear"};
  bool block{true};  // whether the name of the layer's class ends in "Block"
  bool frozen{};
  int size{1};
  // - never: the layer is not called.
  // - always, twice: it is called once or twice in a forward.
  // - odd: it is called, but uses its parameters only if step + microbatch is odd. So ranks differ
  //   in which parameters get a gradient.
  std::string use{"always"};
  int tied{-1};  // linear: index of an earlier linear layer that has the same weight; -1: none
  // Says whether the layer's activations are recomputed in backward: in a nested layer those of the
  // inner layer, in a paired layer none.
  bool checkpointed{};
};

// A random model and how it is trained.
struct RandomTraining {
  uint64_t values{1};  // seed of parameters and inputs
  std::vector<Layer> layers{};
  int width{1};
  TrainConfig config;  // in mode single, one process computes the batches of all ranks
  int loss_scale{1};   // factor of the loss in backward, a power of two
  int saved{};         // after this many steps a new model loads the saved state; 0: never
  bool offloads{};     // AdamW's moments are in a file, except those that stay in memory
  // Says whether the run is compared with a run on one rank that computes all microbatches,
  // provided that the bits then depend only on the number of microbatches. Otherwise it is compared
  // with one process that computes the batches of all ranks.
  bool with_one_rank{};
};

// Returns the training of this seed. It is valid: a layer is only tied to an earlier linear layer,
// and options do not contradict each other.
RandomTraining draw(uint64_t seed);

// Returns the training as JSON on one line.
std::string text(const RandomTraining& c);

// Returns whether every microbatch of a step uses the same parameters. Then live bytes and traffic
// can be predicted.
bool has_one_path(const RandomTraining& c);

}  // namespace fsdp
