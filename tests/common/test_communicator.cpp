#include <comm/communicator.h>
#include <comm/ledger.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "expect_text.h"
#include "parts.h"
#include "rank_failure.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;
using Body = std::function<void(Communicator&)>;

struct Setting {
  std::string backend;
  int world_size;
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.backend << " W=" << setting.world_size;
}

at::Tensor gathered_of(Communicator& comm, int64_t numel) {
  return at::cat(parts(comm.world_size(), numel));
}

at::Tensor sum_of(Communicator& comm, int64_t numel) {
  return sum_by_hand(parts(comm.world_size(), numel));
}

// This rank's part of the sum of whole gradients.
at::Tensor reduced_of(Communicator& comm, int64_t numel) {
  return sum_of(comm, comm.world_size() * numel).narrow(0, comm.rank() * numel, numel);
}

void require_equal(const at::Tensor& tensor, const at::Tensor& expected) {
  require(at::equal(tensor, expected), "other values than expected");
}

class Collectives : public testing::TestWithParam<Setting> {
 protected:
  using Create = std::function<std::shared_ptr<Communicator>()>;

  // Runs `body` on each rank, which may throw.
  static void on_ranks(const std::function<void(const RankContext&, const Create&)>& body) {
    const CommunicatorOptions options{.backend = GetParam().backend, .keep_log = true};
    const auto of_rank = [&](const RankContext& context) {
      body(context, [&] { return Communicator::create(context, options); });
      return 0;
    };
    EXPECT_EQ(failure(launch(GetParam().world_size, of_rank)), "");
  }
  static void on_ranks(const Body& body) {
    on_ranks([&](const RankContext&, const Create& create) { body(*create()); });
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, Collectives,
                         testing::Values(Setting{"shm", 1}, Setting{"shm", 2}, Setting{"shm", 3},
                                         Setting{"shm", 4}, Setting{"gloo", 1}, Setting{"gloo", 2},
                                         Setting{"gloo", 3}, Setting{"gloo", 4}),
                         [](const auto& info) {
                           return info.param.backend + std::to_string(info.param.world_size);
                         });

constexpr int64_t kSizes[] = {0, 1, 5, 1000, 40'003};  // the last: more than one chunk of a sum

TEST_P(Collectives, all_gather_puts_the_inputs_in_rank_order) {
  on_ranks([](Communicator& comm) {
    for (const int64_t n : kSizes) {
      const at::Tensor output = at::zeros({comm.world_size() * n});
      comm.all_gather_into(output, part(comm.rank(), n), "unit").wait();
      require_equal(output, gathered_of(comm, n));
    }
  });
}

TEST_P(Collectives, all_gather_accepts_an_input_that_is_part_of_the_output) {
  on_ranks([](Communicator& comm) {
    const int64_t n = 1001, numel = comm.world_size() * n;
    for (const at::Tensor& output : {comm.empty(numel), at::empty({numel})}) {
      const at::Tensor input = output.narrow(0, comm.rank() * n, n);
      comm.all_gather_into(output, input.copy_(part(comm.rank(), n)), "unit").wait();
      require_equal(output, gathered_of(comm, n));
    }
  });
}

TEST_P(Collectives, reduce_scatter_and_all_reduce_sum_as_a_tree) {
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

TEST_P(Collectives, broadcast_delivers_the_tensor_of_the_root) {
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

TEST_P(Collectives, sums_of_a_narrow_dtype_are_taken_in_fp32_and_rounded_once) {
  on_ranks([](Communicator& comm) {
    auto input = [](int rank) { return at::full({5}, rank == 1 ? 1.0 : 0.003, at::kBFloat16); };
    at::Tensor sum = at::zeros({5});  // exact: the numbers have few bits
    for (int rank = 0; rank < comm.world_size(); ++rank)
      sum += input(rank).to(at::kFloat);
    const at::Tensor expected = sum.to(at::kBFloat16);
    at::Tensor tensor = input(comm.rank());
    comm.all_reduce(tensor, "unit").wait();
    require(at::equal(tensor, expected), "another rounding");
  });
}

// Numbers of few bits, the sums of which fp32 holds and neither bf16 nor fp16 does: a rounding of
// the sum, or of a part of it, is seen. In fp16 the sum of two ranks is beyond the largest number.
TEST_P(Collectives, reduce_scatter_of_a_narrow_dtype_into_fp32_rounds_no_sum) {
  on_ranks([](Communicator& comm) {
    const auto filled = [](const at::Tensor& tensor, int rank) {
      tensor.copy_(at::arange(tensor.numel(), at::kFloat).remainder_(7).add_(rank == 0 ? 32 : 1));
      return tensor.mul_(rank == 0 ? 1024 : rank == 1 ? 8192 : 4);
    };
    const int64_t world = comm.world_size();
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      for (const int64_t n : kSizes) {
        at::Tensor expected = at::zeros({world * n});
        for (int rank = 0; rank < world; ++rank)
          expected += filled(at::empty({world * n}, dtype), rank);
        for (const bool arena : {false, true}) {
          const at::Tensor input = filled(
              arena ? comm.empty(world * n, dtype) : at::empty({world * n}, dtype), comm.rank());
          const at::Tensor output = at::zeros({n});
          comm.reduce_scatter_into(output, input, "unit").wait();
          require(at::equal(output, expected.narrow(0, comm.rank() * n, n)),
                  "another sum of " + std::to_string(n));
          const Call call = comm.take_log().back();
          require(call.dtype == dtype, "another dtype is logged");
          require(call.bytes == (world - 1) * n * 2, "other bytes are logged");
        }
      }
    }
  });
}

TEST_P(Collectives, calls_in_flight_may_be_waited_for_out_of_order) {
  on_ranks([](Communicator& comm) {
    const int64_t n = 100, world = comm.world_size();
    const at::Tensor gathered = at::zeros({world * n}), reduced = at::zeros({n});
    const at::Tensor summed = part(comm.rank(), n);
    Handle gather = comm.all_gather_into(gathered, part(comm.rank(), n), "a");
    Handle reduce = comm.reduce_scatter_into(reduced, part(comm.rank(), world * n), "b");
    Handle sum = comm.all_reduce(summed, "c");
    sum.wait();
    gather.wait();
    reduce.wait();
    require(!gather.pending() && !reduce.pending() && !sum.pending(), "still pending");
    sum.wait();
    require_equal(gathered, gathered_of(comm, n));
    require_equal(reduced, reduced_of(comm, n));
    require_equal(summed, sum_of(comm, n));
  });
}

// Of another model on this communicator, say, whose backward has thrown.
TEST_P(Collectives, that_gather_are_completed_before_their_readers_are_waited_for) {
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

TEST_P(Collectives, any_number_of_calls_may_be_in_flight) {
  on_ranks([](Communicator& comm) {
    const int64_t n = 3, world = comm.world_size();
    for (const bool backwards : {false, true}) {
      std::vector<at::Tensor> outputs;
      std::vector<Handle> handles;
      for (int i = 0; i < 200; ++i) {
        outputs.push_back(at::zeros({world * n}));
        handles.push_back(comm.all_gather_into(outputs[i], part(comm.rank(), n) + i, "unit"));
      }
      require(handles[0].pending(), "nobody has waited for it");
      if (backwards) std::reverse(handles.begin(), handles.end());
      for (Handle& handle : handles)
        handle.wait();
      for (int i = 0; i < 200; ++i)
        require_equal(outputs[i], gathered_of(comm, n) + i);
    }
  });
}

TEST_P(Collectives, many_more_calls_are_made_than_the_ledger_holds) {
  on_ranks([](Communicator& comm) {
    at::Tensor tensor;
    for (uint64_t i = 0; i < 3 * Ledger::kRing + 5; ++i) {
      tensor = part(comm.rank(), 17);
      comm.all_reduce(tensor, "unit").wait();
      comm.barrier("unit").wait();
    }
    require_equal(tensor, sum_of(comm, 17));
  });
}

TEST_P(Collectives, the_log_has_the_textbook_bytes) {
  on_ranks([](Communicator& comm) {
    int64_t n = 7, world = comm.world_size();
    at::Tensor small = at::zeros({n}), large = at::zeros({world * n});
    comm.all_gather_into(large, small, "layers.0").wait();
    comm.reduce_scatter_into(small, large, "layers.1").wait();
    comm.all_reduce(small, kNorm).wait();
    comm.broadcast(large, 0, "layers.2").wait();
    comm.barrier(kMetrics).wait();
    auto log = comm.take_log();
    require(log.size() == 5, "five calls");
    int64_t part = (n + world - 1) / world;
    int64_t expected[] = {(world - 1) * n * 4, (world - 1) * n * 4, 2 * (world - 1) * part * 4,
                          (world - 1) * n * 4, 0};
    std::string units[] = {"layers.0", "layers.1", kNorm, "layers.2", kMetrics};
    for (size_t i = 0; i < log.size(); ++i) {
      require(log[i].sequence == i, "sequence");
      require(log[i].unit == units[i], "unit of call " + std::to_string(i));
      require(log[i].bytes == expected[i], "bytes of call " + std::to_string(i));
    }
    require(comm.take_log().empty(), "the log was not emptied");
  });
}

// Each rank gives `value`.
void require_sum(const std::shared_ptr<Communicator>& comm, int value) {
  const at::Tensor tensor = at::full({3}, static_cast<float>(value));
  comm->all_reduce(tensor, "x").wait();
  require(tensor.eq(value * comm->world_size()).all().item<bool>(), "another sum");
}

TEST_P(Collectives, of_several_communicators_do_not_meet) {
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

TEST_P(Collectives, of_eight_communicators_may_go_on_when_others_were_destroyed) {
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

TEST(LogOfCalls, is_kept_if_the_options_ask_for_it) {
  const auto result = launch(1, [](const RankContext& context) {
    Communicator::create(context)->take_log();
    return 0;
  });
  EXPECT_EQ(failure(result),
            "rank 0 failed: take_log(): no log is kept; set CommunicatorOptions::keep_log");
}

TEST_P(Collectives, leave_version_counters_unchanged) {
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
