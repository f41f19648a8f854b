#pragma once

#include <optim/update_rule.h>

// Enums for the words that options of `./fsdp train` take. to_string() returns the word of the
// option: to_string(Mode::ddp) is "ddp".
namespace fsdp {

// single: one process computes the microbatches of all ranks, one after another. ddp: each rank has
// a replica of the model. fsdp: the model is sharded over ranks.
enum class Mode { single, ddp, fsdp };

// The kind of training data. `published`: the random tokens of the published recipe.
enum class DataKind { text, tokens, modular, pattern, published };

// The time at which a rank reduces the gradients of its microbatches: after each microbatch, or, as
// their sum, after the last one.
enum class ReduceGradients { each, last };

// The way in which the learning rate falls after the warmup; none: it stays.
enum class LrDecay { none, cosine, linear };

// The reaction of the other ranks when a host is lost.
enum class OnLostHost { end, continue_training };

const char* to_string(Mode mode);
const char* to_string(DataKind kind);
const char* to_string(ReduceGradients when);
const char* to_string(LrDecay decay);  // LrDecay::none: ""
const char* to_string(OnLostHost what);
const char* to_string(OptimizerOptions::Kind optimizer);

}  // namespace fsdp
