#include <base/torch.h>
#include <comm/ledger.h>
#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>
#include <memory/live_bytes.h>
#include <transports/backends.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "rank_failure.h"

// A staged call works on copies of its tensors in host memory. In these tests all tensors are on
// the CPU, and they are copied as well. So the tests cover all of the transport except the copies
// between host and GPU.
namespace fsdp {
namespace {

using namespace std::chrono_literals;

// Issues calls of one rank over the transport that is made for GPU tensors; here the tensors are on
// the CPU. Takes the steps of a call in the order in which a Communicator takes them.
class Calls {
 public:
  Calls(const RankContext& context, const std::string& backend)
      : ledger_(std::make_shared<Ledger>(
            CallRings(context.shared->call_rings(), Group::world(context.world_size)), context.rank,
            5000ms)) {
    cuda_backend = {.gpus = 1, .pinned = c10::GetAllocator(c10::kCPU)};
    transport_ = make_transport(backend, context, ledger_, {.device = c10::kCUDA});
  }

  std::unique_ptr<Transfer> issue(Operation operation, const at::Tensor& output,
                                  const at::Tensor& input) {
    Call call;
    call.sequence = sequence_++;
    call.operation = operation;
    call.unit = UnitName("unit");
    if (output.defined()) call.numel = std::max(output.numel(), input.numel());
    auto transfer = transport_->begin({call, output, input});
    ledger_->publish({call, 0, transfer->address()});
    transfer->start();
    return transfer;
  }

  void call(Operation operation, const at::Tensor& output, const at::Tensor& input) {
    finish(*issue(operation, output, input));
  }

  void finish(Transfer& transfer) {
    ledger_->check(sequence_ - 1);
    transfer.complete();
  }

 private:
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<Transport> transport_;
  uint64_t sequence_{};
};

std::string failure_over(const std::string& backend, int world_size,
                         const std::function<void(int rank, Calls&)>& body) {
  return failure(launch(world_size, [&](const RankContext& context) {
    Calls calls(context, backend);
    body(context.rank, calls);
    return 0;
  }));
}

class StagedCollective : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Over, StagedCollective, testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(StagedCollective, every_collective_over_the_staged_transport_gives_the_right_result) {
  const auto body = [](int rank, Calls& calls) {
    const at::Tensor own = at::full({2}, rank + 1.0), all = at::zeros({6}), part = at::zeros({2});
    calls.call(Operation::all_gather, all, own);
    require(all.equal(at::tensor({1.F, 1.F, 2.F, 2.F, 3.F, 3.F})), "all_gather");
    calls.call(Operation::reduce_scatter, part, all);
    require(part.equal(at::full({2}, 3.0 * (rank + 1))), "reduce_scatter");
    calls.call(Operation::all_reduce, own, own);
    require(own.equal(at::full({2}, 6.0)), "all_reduce");
    const at::Tensor sent = at::full({2}, rank + 7.0);
    calls.call(Operation::broadcast, sent, sent);
    require(sent.equal(at::full({2}, 7.0)), "broadcast");
    calls.call(Operation::barrier, {}, {});
  };
  EXPECT_EQ(failure_over(GetParam(), 3, body), "");
}

TEST_P(StagedCollective, a_staged_collective_reads_its_input_when_it_is_issued) {
  const auto body = [](int rank, Calls& calls) {
    const at::Tensor own = at::full({4}, rank + 1.0), all = at::zeros({8});
    const auto transfer = calls.issue(Operation::all_gather, all, own);
    own.fill_(-1);
    require(all.eq(0).all().item<bool>(), "written before it was waited for");
    calls.finish(*transfer);
    require(all.min().item<float>() == 1, "another value than at the issue");
  };
  EXPECT_EQ(failure_over(GetParam(), 2, body), "");
}

// Live bytes are compared with predictions and with the GPU's own allocator, so they must count
// only memory of the GPU.
TEST(StagedTransport, staged_copies_in_host_memory_do_not_count_as_live_bytes) {
  const auto body = [](int rank, Calls& calls) {
    const at::Tensor own = at::full({1000}, rank + 1.0), all = at::zeros({2000});
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::forward);
    const auto transfer = calls.issue(Operation::all_gather, all, own);
    require(live_bytes::peak(Phase::forward).total == before, "the buffers were counted");
    calls.finish(*transfer);
    require(all.sum().item<float>() == 3000, "other values");
    require(live_bytes::now().total == before, "freed buffers were counted");
  };
  EXPECT_EQ(failure_over("shm", 2, body), "");
}

}  // namespace
}  // namespace fsdp
