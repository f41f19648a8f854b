#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// The kind of a group: all ranks, the ranks that hold the shards of one replica of the model, or
// the ranks that hold the replicas of one shard.
enum class Level : uint8_t { world, shards, replicas };
inline constexpr size_t kLevels = 3;

// Returns "rank 3", "ranks 0 to 3" or "ranks 0, 2". `ranks` must be ascending and not empty.
std::string listed(const std::vector<int>& ranks);

// Evenly spaced ranks of the world that one communicator connects. In the group they are numbered
// 0, 1, 2, ...; messages use their numbers in the world.
struct Group {
  Level level{};
  int first{};
  int stride{1};
  int size{1};
  int world_size{1};
  // Number of the group's Communicator: 0, 1, 2, ... in the order of creation.
  uint64_t communicator{};

  static Group world(int world_size);
  // Every `shard_size` neighbouring ranks hold one replica of the model: rank = replica *
  // shard_size + shard. shards() returns the ranks of the replica to which `rank` belongs.
  // replicas() returns the ranks that hold the same shard as `rank`.
  static Group shards(int rank, int world_size, int shard_size);
  static Group replicas(int rank, int world_size, int shard_size);

  int world_rank(int rank) const { return first + rank * stride; }
  int rank_of(int world_rank) const { return (world_rank - first) / stride; }

  // Returns what a message appends to the name of a call: nothing for the world, " of shard group 1
  // (ranks 4 to 7)" or " of the replicas of shard 2 (ranks 2, 6)"; then " of Communicator 2",
  // except for the first Communicator.
  std::string text() const;
};

}  // namespace fsdp
