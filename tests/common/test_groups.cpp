#include <comm/tree_sum.h>
#include <testing/multi_rank.h>
#include <unistd.h>

#include "expect_text.h"
#include "parts.h"

// Replicas: each collective runs between the ranks of its group, and the sum over all ranks is
// taken in two steps.
namespace fsdp {
namespace {

using namespace std::chrono_literals;

TEST(Group, knows_its_ranks_in_the_world) {
  const Group shards = Group::shards(5, 8, 4), replicas = Group::replicas(5, 8, 4);
  EXPECT_EQ(shards.size, 4);
  EXPECT_EQ(shards.world_rank(0), 4);
  EXPECT_EQ(shards.rank_of(5), 1);
  EXPECT_EQ(replicas.size, 2);
  EXPECT_EQ(replicas.world_rank(1), 5);
  EXPECT_EQ(replicas.rank_of(5), 1);
}

TEST(Group, is_named_in_messages_unless_it_is_the_world) {
  EXPECT_EQ(Group::world(8).text(), "");
  EXPECT_EQ((Group{.size = 8, .world_size = 8, .communicator = 1}.text()), " of Communicator 2");
  EXPECT_EQ(Group::shards(3, 8, 8).text(), "");
  EXPECT_EQ(Group::shards(5, 8, 4).text(), " of shard group 1 (ranks 4 to 7)");
  EXPECT_EQ(Group::shards(3, 4, 2).text(), " of shard group 1 (ranks 2, 3)");
  EXPECT_EQ(Group::shards(3, 4, 1).text(), " of shard group 3 (rank 3)");
  EXPECT_EQ(Group::replicas(6, 8, 4).text(), " of the replicas of shard 2 (ranks 2, 6)");
}

// R replicas of G ranks.
struct Setting {
  std::string backend;
  int replicas, shards;
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.replicas << "x" << setting.shards << " over " << setting.backend;
}

class Replicas : public testing::TestWithParam<Setting> {
 protected:
  static int shards() { return GetParam().shards; }
  static int world_size() { return GetParam().replicas * GetParam().shards; }
  static RunOptions options(std::optional<Fault> fault = {}) {
    return {.backend = GetParam().backend, .fault = fault};
  }
  static RankRun run(const RankBody& body) { return run_ranks(world_size(), body, options()); }
};

std::vector<Setting> settings(const std::vector<std::pair<int, int>>& sizes) {
  std::vector<Setting> all;
  for (const char* backend : {"shm", "gloo"})
    for (const auto& [replicas, shards] : sizes)
      all.push_back({backend, replicas, shards});
  return all;
}

std::string name_of(const testing::TestParamInfo<Setting>& info) {
  return info.param.backend + std::to_string(info.param.replicas) + "x" +
         std::to_string(info.param.shards);
}

INSTANTIATE_TEST_SUITE_P(
    , Replicas,
    testing::ValuesIn(settings({{2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}, {3, 1}, {1, 3}})), name_of);

// A rank that leaves closes its connections. When this returns, all ranks of its groups have
// theirs.
void meet(Communicator& comm) {
  comm.reduce_scatter_into(at::zeros({1}), at::zeros({comm.world_size()}), "all are connected")
      .wait();
}

TEST_P(Replicas, number_their_ranks_in_rows) {
  const RankRun run = this->run([](TestRank& rank) {
    const auto& comm = rank.hybrid(shards());
    rank.observe("numbers",
                 {comm->rank(), comm->world_size(), comm->global_rank(), comm->summed_ranks()});
    meet(*comm);
  });
  expect_on_each_rank(run, "numbers", [&](int rank) {
    return nlohmann::json{rank % shards(), shards(), rank, world_size()};
  });
}

TEST_P(Replicas, run_their_collectives_among_themselves) {
  const RankRun run = this->run([](TestRank& rank) {
    const auto& comm = rank.hybrid(shards());
    const auto mine = at::full({3}, static_cast<float>(rank.rank()));
    at::Tensor gathered = at::empty({3 * shards()});
    comm->all_gather_into(gathered, mine, "unit").wait();
    at::Tensor sum = mine.clone();
    comm->all_reduce(sum, "unit").wait();
    rank.observe("sum", static_cast<int>(sum[0].item<float>()));
    at::Tensor from_last = mine.clone();
    comm->broadcast(from_last, shards() - 1, "unit").wait();
    rank.observe("from the last", static_cast<int>(from_last[2].item<float>()));
    comm->barrier("unit").wait();
    const int first = rank.rank() / shards() * shards();
    at::Tensor expected = at::empty({3 * shards()});
    for (int i = 0; i < shards(); ++i)
      expected.narrow(0, 3 * i, 3).fill_(first + i);
    EXPECT_TRUE(at::equal(gathered, expected));
    meet(*comm);
  });
  expect_on_each_rank(run, "sum", [&](int rank) {
    const int first = rank / shards() * shards();
    return shards() * first + shards() * (shards() - 1) / 2;
  });
  expect_on_each_rank(run, "from the last",
                      [&](int rank) { return rank / shards() * shards() + shards() - 1; });
}

TEST_P(Replicas, have_collectives_between_the_ranks_of_a_shard) {
  const RankRun run = this->run([](TestRank& rank) {
    const auto& comm = rank.hybrid(shards());
    const auto replicas = comm->replicas();
    EXPECT_EQ(replicas == nullptr, world_size() == shards());
    at::Tensor sum = at::full({3}, rank.rank()), first = sum.clone();
    for (const auto& level : {replicas, comm}) {
      if (!level) continue;
      level->all_reduce(sum, "unit").wait();
      level->broadcast(first, 0, "unit").wait();
    }
    rank.observe("sum and first", {sum[2].item<float>(), first[0].item<float>()});
    rank.observe("rank", replicas ? replicas->rank() : 0);
    meet(*comm);
  });
  const int world = world_size();
  expect_on_all_ranks(run, "sum and first", nlohmann::json{world * (world - 1) / 2, 0});
  expect_on_each_rank(run, "rank", [&](int rank) { return rank / shards(); });
}

// Rank `rank`'s part of the sum over replicas of their sums.
at::Tensor sum_in_two_steps(const TestRank& rank, int shards, int64_t numel) {
  std::vector<at::Tensor> rows;
  for (int first = 0; first < rank.world_size(); first += shards) {
    std::vector<at::Tensor> row;
    for (int shard = 0; shard < shards; ++shard)
      row.push_back(part(first + shard, numel * shards));
    rows.push_back(sum_as_tree(row).narrow(0, rank.rank() % shards * numel, numel));
  }
  return sum_as_tree(rows);
}

TEST_P(Replicas, sum_a_reduce_scatter_over_their_ranks_and_then_over_replicas) {
  const RankRun run = this->run([](TestRank& rank) {
    const auto& comm = rank.hybrid(shards());
    constexpr int64_t kNumel = 100;
    const at::Tensor expected = sum_in_two_steps(rank, shards(), kNumel);
    for (const at::Tensor& output : {comm->empty(kNumel), at::empty({kNumel})}) {
      const at::Tensor input = comm->empty(kNumel * shards());
      input.copy_(part(rank.rank(), kNumel * shards()));
      Handle handle = comm->reduce_scatter_into(output, input, "unit");
      EXPECT_TRUE(handle.pending());
      handle.wait();
      EXPECT_FALSE(handle.pending());
      handle.wait();
      EXPECT_TRUE(at::equal(output, expected));
    }
  });
}

// In bf16, 256 + 1 is 256. Between replicas the sums go in fp32.
TEST_P(Replicas, sum_a_narrow_dtype_in_fp32_over_their_ranks_and_over_replicas) {
  const RankRun run = this->run([](TestRank& rank) {
    const auto& comm = rank.hybrid(shards());
    const at::Tensor input = comm->empty(10 * shards(), at::kBFloat16);
    const at::Tensor output = comm->empty(10);
    comm->reduce_scatter_into(output, input.fill_(rank.rank() == 0 ? 256 : 1), "unit").wait();
    rank.observe("sum", output);
    auto log = nlohmann::json::array();
    for (const Call& call : comm->take_log())
      log.push_back({call.name(), c10::toString(call.dtype)});
    rank.observe("log", log);
  });
  const RankRun oracle = run_oracle(
      [](TestRank& rank) { rank.observe("sum", at::full({10}, 256. + world_size() - 1)); });
  expect_on_all_ranks(run, "sum", oracle.at(0, "sum"));
  auto expected = nlohmann::json::array();
  expected.push_back({"reduce_scatter unit", "BFloat16"});
  if (GetParam().replicas > 1) expected.push_back({"all_reduce unit", "Float"});
  expect_on_all_ranks(run, "log", expected);
}

TEST_P(Replicas, log_both_calls_of_a_reduce_scatter_with_their_level) {
  const RankRun run = this->run([](TestRank& rank) {
    const auto& comm = rank.hybrid(shards());
    at::Tensor output = at::zeros({10}), input = at::zeros({10 * shards()});
    comm->reduce_scatter_into(output, input, "layers.1").wait();
    comm->all_gather_into(input, output, "layers.2").wait();
    auto log = nlohmann::json::array();
    for (const Call& call : comm->take_log())
      log.push_back({static_cast<int>(call.level), call.name(), call.bytes});
    rank.observe("log", log);
  });
  const int replicas = GetParam().replicas;
  const int part = (10 + replicas - 1) / replicas;
  auto expected = nlohmann::json::array();
  expected.push_back({1, "reduce_scatter layers.1", (shards() - 1) * 40});
  if (replicas > 1) expected.push_back({2, "all_reduce layers.1", 2 * (replicas - 1) * part * 4});
  expected.push_back({1, "all_gather layers.2", (shards() - 1) * 40});
  expect_on_all_ranks(run, "log", expected);
}

TEST_P(Replicas, make_many_more_calls_than_the_ledger_holds_in_turn_or_all_in_flight) {
  const RankRun run = this->run([](TestRank& rank) {
    const auto& comm = rank.hybrid(shards());
    std::vector<Handle> handles;
    const at::Tensor output = at::empty({300, 2});
    for (int i = 0; i < 300; ++i) {
      const at::Tensor input = comm->empty(2 * shards()).fill_(static_cast<float>(i));
      handles.push_back(comm->reduce_scatter_into(output[i], input, "unit"));
      if (i < 150) handles[i].wait();
      rank.communicator()->barrier("world").wait();
    }
    for (; !handles.empty(); handles.pop_back())
      handles.back().wait();
    for (int i = 0; i < 300; ++i)
      EXPECT_EQ(output[i][1].item<float>(), static_cast<float>(i * world_size()));
  });
}

// Faults in 2 replicas of 2 ranks.
class FaultsInReplicas : public Replicas {
 protected:
  // Three units: of each an all-gather, a reduce-scatter and the sum over replicas. So call 3 u + 2
  // is the sum of unit u.
  static std::string failure(std::optional<Fault> fault,
                             const std::function<void(TestRank&, int)>& before = nullptr) {
    return try_ranks(
               4,
               [&](TestRank& rank) {
                 const auto& comm = rank.hybrid(2);
                 for (int unit = 0; unit < 3; ++unit) {
                   if (before) before(rank, unit);
                   const std::string name = "layers." + std::to_string(unit);
                   at::Tensor shard = at::zeros({4}), whole = at::zeros({8});
                   comm->all_gather_into(whole, shard, name).wait();
                   comm->reduce_scatter_into(shard, whole, name).wait();
                 }
               },
               options(fault))
        .failure();
  }
};

INSTANTIATE_TEST_SUITE_P(, FaultsInReplicas, testing::ValuesIn(settings({{2, 2}})), name_of);

TEST_P(FaultsInReplicas, a_call_that_a_rank_skips_in_its_replica_is_told_with_the_replica) {
  const std::string text = failure(Fault{Fault::Kind::skip, 3, 3});
  EXPECT_CONTAINS(text, "collective #2 of shard group 1 (ranks 2, 3) differs between ranks:\n");
  EXPECT_CONTAINS(text, "  rank 2  all_gather layers.1 (8 x float, 32 B)\n");
  EXPECT_CONTAINS(text, "  rank 3  reduce_scatter layers.1 (8 x float, 32 B)\n");
}

TEST_P(FaultsInReplicas, a_sum_over_replicas_that_a_rank_skips_is_told_with_the_replicas) {
  const std::string text = failure(Fault{Fault::Kind::skip, 3, 5});
  EXPECT_CONTAINS(text,
                  "collective #1 of the replicas of shard 1 (ranks 1, 3) differs between ranks:\n");
  EXPECT_CONTAINS(text, "  rank 1  all_reduce layers.1 (4 x float, 16 B)\n");
  EXPECT_CONTAINS(text, "  rank 3  all_reduce layers.2 (4 x float, 16 B)\n");
}

TEST_P(FaultsInReplicas, a_killed_rank_is_named_with_its_last_call_in_any_group) {
  EXPECT_CONTAINS(failure(Fault{Fault::Kind::kill, 3, 5}),
                  "rank 3 was killed by signal 9 (Killed); last collective #3 reduce_scatter "
                  "layers.1 of its shard group");
  EXPECT_CONTAINS(failure(Fault{Fault::Kind::kill, 3, 6}),
                  "last collective #1 all_reduce layers.1 of its replicas");
}

TEST_P(FaultsInReplicas, calls_are_counted_over_all_communicators_of_a_rank) {
  const std::string text = failure(Fault{Fault::Kind::kill, 2, 5}, [](TestRank& rank, int) {
    rank.communicator()->barrier("world").wait();
  });
  EXPECT_CONTAINS(text, "rank 2 was killed by signal 9 (Killed); last collective #1 barrier world");
}

TEST_P(FaultsInReplicas, a_rank_that_does_not_come_is_named_with_its_last_call_in_any_group) {
  const std::string text = try_ranks(4,
                                     [](TestRank& rank) {
                                       at::Tensor shard = at::zeros({4}), whole = at::zeros({8});
                                       const auto& comm = rank.hybrid(2);
                                       comm->reduce_scatter_into(shard, whole, "layers.0").wait();
                                       const Handle elsewhere =
                                           rank.communicator()->barrier("elsewhere");
                                       if (rank.rank() == 3) pause();
                                       comm->all_gather_into(whole, shard, "layers.1").wait();
                                     },
                                     {.backend = GetParam().backend, .timeout = 1500ms})
                               .failure();
  EXPECT_CONTAINS(text,
                  "rank 2: all_gather layers.1 (collective #1) of shard group 1 (ranks 2, 3) timed "
                  "out after 1.5 s: rank 3 has not called it; its last call was #0 barrier "
                  "elsewhere");
}

TEST(ReplicasOfAWrongSize, are_refused) {
  EXPECT_CONTAINS(try_ranks(3, [](TestRank& rank) { rank.hybrid(2); }).failure(),
                  "shards of 2 ranks do not divide 3 ranks");
  EXPECT_CONTAINS(
      try_ranks(2, [](TestRank& rank) { rank.hybrid(1); }, {.link = Link{10us, 1e9}}).failure(),
      "a simulated link takes one replica");
}

}  // namespace
}  // namespace fsdp
