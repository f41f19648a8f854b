#pragma once

#include <config/train_config.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// One layer of a random model: y = x + f(x), x [rows, width].
struct Layer {
  // linear: a weight and a bias. odd: a scale, `size` further elements, a number of no dimension
  // and an empty tensor. transposed: a weight whose memory is in another order. nested: a linear
  // one that calls a linear one before it. paired: a linear one that calls a module of two inputs
  // and two outputs before it.
  std::string kind{"linear"};
  bool block{true};  // its class ends in "Block"
  bool frozen{};
  int size{1};
  // never called; called twice; odd: called always, but returns its input where step + part is
  // even, so that ranks differ in which parameters get a gradient.
  std::string use{"always"};
  int tied{-1};  // linear: its weight is also that of this earlier linear layer
  // fsdp recomputes its activations; of a nested one, the inner one's; of a paired one, none.
  bool checkpointed{};
};

// What is trained, and how.
struct RandomTraining {
  uint64_t values{1};  // seed of parameters and inputs
  std::vector<Layer> layers{};
  int width{1};
  TrainConfig config;  // mode single: one process that plays the ranks
  int loss_scale{1};   // a power of two
  int saved{};         // after so many steps the state is saved, and another model goes on with it;
                       // 0: never
  bool offloads{};     // AdamW's moments lie in a file, but those that fsdp pins
  // Compared with one rank that has all parts, where they alone decide the bits; else with one that
  // plays the ranks.
  bool with_one_rank{};
};

// The case of this seed. It makes sense: layers are tied to earlier linear ones, and so on.
RandomTraining draw(uint64_t seed);

std::string text(const RandomTraining& c);  // JSON in one line

// Whether every part of a step calls the same modules. Then bytes and traffic can be predicted.
bool has_one_path(const RandomTraining& c);

}  // namespace fsdp
