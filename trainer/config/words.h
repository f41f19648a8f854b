#pragma once

// The words that options of `./fsdp train` take, as enums. to_string() returns the option's word:
// to_string(Mode::ddp) is "ddp".
namespace fsdp {

// single: one process computes the batches of all ranks in turn. ddp: a replica on each rank.
enum class Mode { single, ddp, fsdp };

// What is trained on. The published recipe trains on random tokens.
enum class DataKind { text, tokens, modular, pattern, published };

// When the gradients of a rank's parts of the batch are reduced: those of each part, or their sum
// after the last part.
enum class ReduceGradients { each, last };

// How the learning rate falls after the warmup.
enum class LrDecay { none, cosine, linear };

// What the other ranks do when a host is lost.
enum class OnLostHost { end, continue_training };

const char* to_string(Mode mode);
const char* to_string(DataKind kind);
const char* to_string(ReduceGradients accumulate);
const char* to_string(LrDecay decay);  // LrDecay::none: ""
const char* to_string(OnLostHost what);

}  // namespace fsdp
