#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>

#include <algorithm>
#include <functional>

#include "expect_text.h"
#include "parts.h"
#include "rank_failure.h"

namespace fsdp {
namespace {

using Body = std::function<void(Communicator&)>;

at::Tensor gathered_of(Communicator& comm, int64_t numel) {
  return at::cat(parts(comm.world_size(), numel));
}

at::Tensor sum_of(Communicator& comm, int64_t numel) {
  return sum_by_hand(parts(comm.world_size(), numel));
}

// Returns this rank's slice, [numel], of the sum of part(rank, world_size * numel) over all ranks.
at::Tensor reduced_of(Communicator& comm, int64_t numel) {
  return sum_of(comm, comm.world_size() * numel).narrow(0, comm.rank() * numel, numel);
}

void require_equal(const at::Tensor& tensor, const at::Tensor& expected) {
  require(at::equal(tensor, expected), "other values than expected");
}

class CollectiveCall : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  using Create = std::function<std::shared_ptr<Communicator>()>;

  // Runs `body` on each rank. If `body` throws on a rank, the test fails. `body` gets a function
  // (`Create`) that creates a communicator of its rank.
  static void on_ranks(const std::function<void(const RankContext&, const Create&)>& body) {
    const auto& [backend, world_size] = GetParam();
    const CommunicatorOptions options{.backend = backend, .keep_log = true};
    const auto of_rank = [&](const RankContext& context) {
      body(context, [&] { return Communicator::create(context, options); });
      return 0;
    };
    EXPECT_EQ(failure(launch(world_size, of_rank)), "");
  }
  static void on_ranks(const Body& body) {
    on_ranks([&](const RankContext&, const Create& create) { body(*create()); });
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, CollectiveCall,
                         testing::Combine(testing::Values("shm", "gloo"), testing::Range(1, 5)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

// Numbers of elements. 40,003 exceeds kChunk, the largest number of elements that are summed at a
// time.
constexpr int64_t kSizes[] = {0, 1, 5, 1000, 40'003};

TEST_P(CollectiveCall, all_gather_into_concatenates_inputs_in_rank_order_even_in_place) {
  on_ranks([](Communicator& comm) {
    for (const int64_t n : kSizes) {
      const int64_t numel = comm.world_size() * n;
      for (const at::Tensor& output : {comm.empty(numel), at::empty({numel})}) {
        for (const at::Tensor& input : {at::empty({n}), output.narrow(0, comm.rank() * n, n)}) {
          output.zero_();
          comm.all_gather_into(output, input.copy_(part(comm.rank(), n)), "unit").wait();
          require_equal(output, gathered_of(comm, n));
        }
      }
    }
  });
}

TEST_P(CollectiveCall, reduce_scatter_into_and_all_reduce_add_the_ranks_inputs_as_a_binary_tree) {
  on_ranks([](Communicator& comm) {
    for (const int64_t n : kSizes) {
      const int64_t numel = comm.world_size() * n;
      for (const at::Tensor& tensor :
           {comm.empty(numel), at::empty({numel}), comm.empty(numel + 16).narrow(0, 16, numel)}) {
        const at::Tensor output = at::zeros({n});
        comm.reduce_scatter_into(output, tensor.copy_(part(comm.rank(), numel)), "unit").wait();
        require_equal(output, reduced_of(comm, n));
        comm.all_reduce(tensor, "unit").wait();
        require_equal(tensor, sum_of(comm, numel));
      }
    }
  });
}

TEST_P(CollectiveCall, broadcast_delivers_the_tensor_of_the_root_rank_to_every_rank) {
  on_ranks([](Communicator& comm) {
    for (int root = 0; root < comm.world_size(); ++root) {
      for (const int64_t n : kSizes) {
        const at::Tensor tensor = part(comm.rank(), n);
        comm.broadcast(tensor, root, "unit").wait();
        require_equal(tensor, part(root, n));
      }
    }
  });
}

TEST_P(CollectiveCall, all_reduce_of_bf16_sums_in_fp32_and_rounds_once) {
  on_ranks([](Communicator& comm) {
    auto input = [](int rank) { return at::full({5}, rank == 1 ? 1.0 : 0.003, at::kBFloat16); };
    // This sum in fp32 is exact, because the inputs have few bits.
    at::Tensor sum = at::zeros({5});
    for (int rank = 0; rank < comm.world_size(); ++rank)
      sum += input(rank).to(at::kFloat);
    const at::Tensor expected = sum.to(at::kBFloat16);
    at::Tensor tensor = input(comm.rank());
    comm.all_reduce(tensor, "unit").wait();
    require(at::equal(tensor, expected), "another rounding");
  });
}

// An all-gather can be pending when wait_for_readers() is called. For example, the backward pass of
// another model on this communicator has thrown and left it pending.
TEST_P(CollectiveCall,
       wait_for_readers_also_completes_the_pending_all_gathers_of_the_calling_rank) {
  on_ranks([](Communicator& comm) {
    const int64_t n = 100, world = comm.world_size();
    const at::Tensor gathered = at::zeros({world * n});
    const at::Tensor own = comm.empty(n).copy_(part(comm.rank(), n));
    Handle gather = comm.all_gather_into(gathered, own, "a");
    comm.wait_for_readers();
    own.zero_();
    gather.wait();
    require_equal(gathered, gathered_of(comm, n));
  });
}

TEST_P(CollectiveCall,
       many_collectives_can_be_issued_and_then_waited_for_in_the_order_of_issue_or_in_reverse) {
  on_ranks([](Communicator& comm) {
    const int64_t world = comm.world_size();
    for (const bool backwards : {false, true}) {
      std::vector<at::Tensor> gathered, reduced, summed;
      std::vector<Handle> handles;
      for (int i = 0; i < 70; ++i) {
        const int64_t n = 1 + i % 5;
        gathered.push_back(at::zeros({world * n}));
        reduced.push_back(at::zeros({n}));
        summed.push_back(part(comm.rank(), n));
        handles.push_back(comm.all_gather_into(gathered[i], part(comm.rank(), n) + i, "a"));
        handles.push_back(comm.reduce_scatter_into(reduced[i], part(comm.rank(), world * n), "b"));
        handles.push_back(comm.all_reduce(summed[i], "c"));
      }
      require(handles.back().pending(), "the last call is not pending before its wait()");
      if (backwards) std::reverse(handles.begin(), handles.end());
      for (Handle& handle : handles) {
        handle.wait();
        require(!handle.pending(), "still pending");
        handle.wait();
      }
      for (int i = 0; i < 70; ++i) {
        const int64_t n = 1 + i % 5;
        require_equal(gathered[i], gathered_of(comm, n) + i);
        require_equal(reduced[i], reduced_of(comm, n));
        require_equal(summed[i], sum_of(comm, n));
      }
    }
  });
}

TEST_P(CollectiveCall, take_log_returns_the_bytes_that_ring_collectives_send_for_each_call) {
  on_ranks([](Communicator& comm) {
    const int64_t n = 7, world = comm.world_size();
    const at::Tensor small = at::zeros({n}), large = at::zeros({world * n});
    comm.all_gather_into(large, small, "layers.0").wait();
    comm.reduce_scatter_into(small, large, "layers.1").wait();
    comm.all_reduce(small, kNorm).wait();
    comm.broadcast(large, 0, "layers.2").wait();
    comm.barrier(kMetrics).wait();
    const int64_t part = (n + world - 1) / world;
    const std::pair<const char*, int64_t> expected[] = {
        {"all_gather layers.0", (world - 1) * n * 4},
        {"reduce_scatter layers.1", (world - 1) * n * 4},
        {"all_reduce <norm>", 2 * (world - 1) * part * 4},
        {"broadcast layers.2", (world - 1) * n * 4},
        {"barrier <metrics>", 0}};
    const auto log = comm.take_log();
    require(log.size() == 5, "five calls");
    for (size_t i = 0; i < log.size(); ++i) {
      require(log[i].sequence == i, "sequence");
      require(log[i].name() == expected[i].first, "another call than " + log[i].name());
      require(log[i].bytes == expected[i].second, "bytes of " + log[i].name());
    }
    require(comm.take_log().empty(), "the log was not emptied");
  });
}

// Requires that an all-reduce in which each rank's input is `value` gives the right sum.
void require_sum(const std::shared_ptr<Communicator>& comm, int value) {
  const at::Tensor tensor = at::full({3}, static_cast<float>(value));
  comm->all_reduce(tensor, "x").wait();
  require(tensor.eq(value * comm->world_size()).all().item<bool>(), "another sum");
}

TEST_P(CollectiveCall, collectives_of_several_communicators_do_not_mix) {
  on_ranks([](const RankContext& context, const Create& create) {
    const int world = context.world_size, shards = world % 2 == 0 ? 2 : 1;
    const auto first = create(), second = create();
    const auto hybrid = Communicator::create_hybrid(context, {.backend = first->backend()}, shards);
    for (int i = 0; i < 100; ++i) {
      const at::Tensor a = at::full({4}, 1.F), b = at::full({4}, 10.F), sum = at::empty({4});
      Handle of_a = first->all_reduce(a, "x"), of_b = second->all_reduce(b, "x");
      Handle of_sum = hybrid->reduce_scatter_into(sum, at::full({4 * shards}, 100.F), "x");
      of_b.wait(), of_sum.wait(), of_a.wait();
      for (const auto& [tensor, value] : {std::pair(a, 1), std::pair(b, 10), std::pair(sum, 100)})
        require(tensor.eq(value * world).all().item<bool>(), "another sum");
    }
  });
}

TEST_P(CollectiveCall, eight_communicators_can_coexist_after_others_were_destroyed) {
  on_ranks([](const RankContext&, const Create& create) {
    std::vector<std::shared_ptr<Communicator>> all{create()};
    for (int i = 0; i < 20; ++i) {
      require_sum(create(), i);
      require_sum(all[0], 1);
    }
    while (all.size() < 8)
      all.push_back(create());
    require(error_of<std::logic_error>(create).find("has 8 Communicators") != std::string::npos,
            "a ninth");
    for (const auto& comm : all)
      require_sum(comm, 3);
    all.resize(1);
    require_sum(create(), 5);
    require_sum(all[0], 6);
  });
}

TEST_P(CollectiveCall, all_reduce_and_broadcast_do_not_change_the_version_counter_of_their_tensor) {
  on_ranks([](Communicator& comm) {
    at::Tensor tensor = at::zeros({8});
    auto before = tensor._version();
    comm.all_reduce(tensor, "unit").wait();
    comm.broadcast(tensor, 0, "unit").wait();
    require(tensor._version() == before, "the version counter was raised");
  });
}

}  // namespace
}  // namespace fsdp
