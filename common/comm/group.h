#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// What the ranks of a group share out between them: everything, the shards of one replica of the
// model, or the replicas of one shard.
enum class Level : uint8_t { world, shards, replicas };
inline constexpr size_t kLevels = 3;

// "rank 3", "ranks 0 to 3", "ranks 0, 2". They are ascending.
std::string listed(const std::vector<int>& ranks);

// Ranks of the world, evenly spaced, that one communicator connects. In the group they have the
// numbers 0, 1, 2, ...; messages name their numbers in the world.
struct Group {
  Level level{};
  int first{};
  int stride{1};
  int size{1};
  int world_size{1};
  uint64_t communicator{};  // whose group it is: 0, 1, 2, ... in the order of their creation

  static Group world(int world_size);
  // Every `shard_size` neighbours hold one replica of the model: rank = replica * shard_size +
  // shard. The groups to which `rank` belongs.
  static Group shards(int rank, int world_size, int shard_size);
  static Group replicas(int rank, int world_size, int shard_size);

  int world_rank(int rank) const { return first + rank * stride; }
  int rank_of(int world_rank) const { return (world_rank - first) / stride; }

  // How a message goes on that has named a call: " of shard group 1 (ranks 4 to 7)", " of the
  // replicas of shard 2 (ranks 2, 6)", then " of Communicator 2", beginning with the second one.
  std::string text() const;
};

}  // namespace fsdp
