#include <comm/communicator.h>
#include <comm/rendezvous.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "expect_text.h"
#include "in_a_process.h"
#include "rank_failure.h"

namespace fsdp {
namespace {

class SeveralCommunicators : public testing::TestWithParam<const char*> {
 protected:
  using Create = std::function<std::shared_ptr<Communicator>()>;

  static void on_ranks(const std::function<void(const RankContext&, const Create&)>& body) {
    const CommunicatorOptions options{.backend = GetParam(), .timeout = std::chrono::seconds(10)};
    for (int world_size = 1; world_size <= 4; ++world_size) {
      const auto result = launch(world_size, [&](const RankContext& context) {
        body(context, [&] { return Communicator::create(context, options); });
        return 0;
      });
      EXPECT_EQ(failure(result), "") << world_size << " ranks";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, SeveralCommunicators, testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

// Each rank gives `value`.
void require_sum(const std::shared_ptr<Communicator>& comm, float value) {
  const at::Tensor tensor = at::full({3}, value);
  comm->all_reduce(tensor, "x").wait();
  require(tensor.eq(value * static_cast<float>(comm->world_size())).all().item<bool>(), "sum");
}

TEST_P(SeveralCommunicators, sum_what_was_given_to_them) {
  on_ranks([](const RankContext& context, const Create& create) {
    const int world = context.world_size, shards = world % 2 == 0 ? 2 : 1;
    const auto first = create(), second = create();
    const auto hybrid = Communicator::create_hybrid(context, {.backend = GetParam()}, shards);
    for (int i = 0; i < 100; ++i) {
      const at::Tensor a = at::full({4}, 1), b = at::full({4}, 10), sum = at::empty({4});
      Handle of_a = first->all_reduce(a, "x"), of_b = second->all_reduce(b, "x");
      Handle of_sum = hybrid->reduce_scatter_into(sum, at::full({4 * shards}, 100.F), "x");
      of_b.wait(), of_sum.wait(), of_a.wait();
      for (const auto& [tensor, value] : {std::pair(a, 1), std::pair(b, 10), std::pair(sum, 100)})
        require(tensor.eq(value * world).all().item<bool>(), "another sum");
    }
  });
}

TEST_P(SeveralCommunicators, are_eight_at_once_and_follow_those_that_were_destroyed) {
  on_ranks([](const RankContext& context, const Create& create) {
    const auto lasting = create();
    for (int i = 0; i < 20; ++i) {
      require_sum(create(), static_cast<float>(i));
      require_sum(lasting, 1);
    }
    std::vector<std::shared_ptr<Communicator>> others;
    while (others.size() < 7)
      others.push_back(create());
    require(error_of<std::logic_error>(create).find("rank " + std::to_string(context.rank) +
                                                    ": has 8 Communicators") == 0,
            "a ninth");
    for (const auto& comm : others)
      require_sum(comm, 3);
    others.clear();
    require_sum(create(), 5);
    lasting->barrier("all are connected").wait();
  });
}

TEST(Rendezvous, needs_proc_and_says_so_at_once) {
  in_a_process([] {
    const auto shared = SharedRegion::create_without_arenas(2);
    const std::string path = shared->rendezvous_path();
    close(std::stoi(path.substr(path.rfind('/') + 1)));  // as if there were no /proc
    EXPECT_EQ(error_of([&] { rendezvous_of(Group::world(2), *shared, std::chrono::hours(1)); }),
              "cannot open " + path + ": is /proc mounted?");
  });
}

}  // namespace
}  // namespace fsdp
