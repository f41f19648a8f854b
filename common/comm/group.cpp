#include <comm/group.h>

namespace fsdp {
namespace {

std::string members(const Group& group) {
  const auto name = [&](int rank) { return std::to_string(group.world_rank(rank)); };
  if (group.size == 1) return "rank " + name(0);
  if (group.stride == 1 && group.size > 2)
    return "ranks " + name(0) + " to " + name(group.size - 1);
  std::string text = "ranks " + name(0);
  for (int rank = 1; rank < group.size; ++rank)
    text += ", " + name(rank);
  return text;
}

}  // namespace

Group Group::world(int world_size) {
  return {.size = world_size, .world_size = world_size};
}

Group Group::shards(int rank, int world_size, int shard_size) {
  return {Level::shards, rank / shard_size * shard_size, 1, shard_size, world_size};
}

Group Group::replicas(int rank, int world_size, int shard_size) {
  return {Level::replicas, rank % shard_size, shard_size, world_size / shard_size, world_size};
}

std::string Group::text() const {
  const std::string whose =
      communicator == 0 ? "" : " of Communicator " + std::to_string(communicator + 1);
  if (size == world_size) return whose;
  const std::string name = level == Level::shards
                               ? "shard group " + std::to_string(first / size)
                               : "the replicas of shard " + std::to_string(first);
  return " of " + name + " (" + members(*this) + ")" + whose;
}

}  // namespace fsdp
