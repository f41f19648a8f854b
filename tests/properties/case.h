#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
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

// What is trained, and how: plain data, drawn from a seed. Every field has a default, which is the
// simplest value that it can have.
struct Case {
  uint64_t values{1};  // seed of parameters and inputs
  std::vector<Layer> layers{{}};
  int width{1};
  int world{1};
  std::string mode{"fsdp"};  // fsdp, ddp, single: one process that plays the ranks
  int shards{};              // not in ddp: ranks of a replica, a divisor of world; 0: all ranks
  int turns{1};              // parts of each rank
  std::string accumulate{"each"};
  int steps{1};
  std::string wrap{"none"};
  bool reshard_after_forward{true};
  int limit{1};
  bool meta_init{};
  std::string optimizer{"sgd"};
  bool decay_of_all{true};     // else biases have none
  double clip{};               // 0: none
  std::string norm_type{"2"};  // of clip: 1, 2, 3, inf
  std::string backend{"shm"};
  std::string param_dtype{"fp32"}, reduce_dtype{"fp32"};  // fp32, bf16, fp16
  std::string keep_fp32;  // pattern of parameters that these dtypes do not apply to; empty: none
  int loss_scale{1};      // a power of two
  int saved{};     // after so many steps the state is saved, and another model goes on with it; 0:
                   // never
  int pinned{-1};  // bytes of AdamW's moments that fsdp keeps in memory, while the others lie in a
                   // file; -1: none do
  bool step_in_backward{};  // in fsdp
  bool rate_falls{};        // from step to step
  // Compared with one rank that has all parts, where they alone decide the bits; else with one that
  // plays the ranks.
  bool with_one_rank{};
};

// The case of this seed. It makes sense: layers are tied to earlier linear ones, and so on.
Case draw(uint64_t seed);

std::string text(const Case& c);  // JSON in one line

// Whether every part of a step calls the same modules. Then bytes and traffic can be predicted.
bool has_one_path(const Case& c);

}  // namespace fsdp
