#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// One thing that a user's program does to one of its models.
struct Op {
  std::string what;  // one of those in program.cpp
  int model{};       // 0 or 1
  int number{};      // of the batch, the parameter or the block that it is about
};

// A user's program over one or two sharded models. Every field's default is the simplest value.
struct RandomProgram {
  int world{1};
  bool cuda{};   // on the GPU of each rank; else on the CPU
  bool ddp{};    // DistributedDataParallel; else FullyShardedDataParallel
  double cap{};  // of DDP: .bucket_cap_mb
  int shards{};  // of FSDP, as the next two: ranks of a replica; 0: all ranks
  bool reshard_after_forward{true};
  int limit{1};
  bool adam{};  // else SGD with momentum
  int models{1};
  bool apart{};  // the second one has a communicator of its own
  bool gloo{};   // on the CPU; else shm
  std::vector<Op> ops{};
};

RandomProgram draw_program(uint64_t seed);
std::string text(const RandomProgram& program);  // one line

// Runs the program on its ranks, and in one process. Empty if every value that it reads, and the
// parameters at its end, have the same bits; else what differs. An operation has to be refused if
// it needs a gradient that is incomplete, and no other may be; the program then ends.
std::string first_difference(const RandomProgram& program);

// The program without every operation and option that its fault does not need.
RandomProgram shrink(RandomProgram program);

}  // namespace fsdp
