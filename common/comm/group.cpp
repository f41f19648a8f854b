#include <comm/group.h>

namespace fsdp {
std::string listed(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return "rank " + std::to_string(ranks[0]);
  std::string text = "ranks " + std::to_string(ranks[0]);
  const bool has_gaps = ranks.back() - ranks[0] >= static_cast<int>(ranks.size());
  if (ranks.size() > 2 && !has_gaps) return text + " to " + std::to_string(ranks.back());
  for (size_t i = 1; i < ranks.size(); ++i)
    text += ", " + std::to_string(ranks[i]);
  return text;
}

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
  std::string whose =
      communicator == 0 ? "" : " of Communicator " + std::to_string(communicator + 1);
  if (size == world_size) return whose;
  const std::string name = level == Level::shards
                               ? "shard group " + std::to_string(first / size)
                               : "the replicas of shard " + std::to_string(first);
  std::vector<int> members;
  for (int rank = 0; rank < size; ++rank)
    members.push_back(world_rank(rank));
  return " of " + name + " (" + listed(members) + ")" + whose;
}

}  // namespace fsdp
