#pragma once

#include <optim/update_rule.h>

// Enums for the words that options of `./fsdp train` take. to_string() returns the word of the
// option: to_string(Mode::ddp) is "ddp".
namespace fsdp {

// single: one process computes the microbatches of all ranks, one after another. ddp: each rank has
// a replica of the model. fsdp: the model is sharded over ranks.
enum class Mode { single, ddp, fsdp };

// The kind of training data. `published`: the random tokens of --recipe published.
enum class DataKind { text, tokens, modular, pattern, published };

// When a rank reduces the gradients of its microbatches. each: after each microbatch. last: once,
// after its last microbatch, the sum of the gradients of all its microbatches.
enum class ReduceGradients { each, last };

// How the learning rate falls after the warmup; none: it stays.
enum class LrDecay { none, cosine, linear };

// What the other ranks do when a host is lost. end: they end, and so does the run.
// continue_training: they continue the run without the lost host.
enum class OnLostHost { end, continue_training };

const char* to_string(Mode mode);
const char* to_string(DataKind kind);
const char* to_string(ReduceGradients when);
const char* to_string(LrDecay decay);  // returns "" for LrDecay::none
const char* to_string(OnLostHost what);
const char* to_string(OptimizerOptions::Kind optimizer);

}  // namespace fsdp
