#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// One operation of a user's program on one of its models.
struct Op {
  std::string what;  // an operation of random_program.cpp, or the name of one of habits()
  int model{};       // index of the model that the operation uses: 0 or 1
  int number{};      // number of the batch, parameter or block that the operation uses
};

// A user's program with one or two models that are sharded or replicated. The default of each field
// is its simplest value.
struct RandomProgram {
  int world{1};
  bool cuda{};   // true: models are on the GPU of each rank; false: on the CPU
  bool ddp{};    // true: DistributedDataParallel; false: FullyShardedDataParallel
  double cap{};  // .bucket_cap_mb, an option of DistributedDataParallel only
  int shards{};  // number of ranks of a replica; 0: all ranks
  bool reshard_after_forward{true};  // an option of FullyShardedDataParallel only
  int limit{1};                      // .limit, an option of FullyShardedDataParallel only
  bool adam{};                       // true: Adam; false: SGD with momentum
  int models{1};
  bool apart{};  // whether the second model has a communicator of its own
  bool gloo{};   // on the CPU: true for backend gloo, false for shm
  std::vector<Op> ops{};
};

RandomProgram draw_program(uint64_t seed);
// Returns the program as text on one line.
std::string text(const RandomProgram& program);

// Runs the program on its ranks and in one process, and returns the first difference; empty if
// there is none:
// - Every value that the program reads, and the parameters at its end, must have the same bits.
// - An operation that needs an incomplete gradient must throw, and the program then ends. No other
//   operation may throw.
std::string first_difference(const RandomProgram& program);

// Returns the program without the operations and options that its fault does not need.
RandomProgram shrink(RandomProgram program);

}  // namespace fsdp
