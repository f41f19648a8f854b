#include <comm/communicator.h>
#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <memory/storage.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "expect_text.h"
#include "rank_failure.h"

// A call with an invalid argument. It must throw std::invalid_argument, which names the cause,
// before it issues a collective. So the Communicator can still be used.
namespace fsdp {
namespace {

struct RefusedCall {
  std::string says;
  std::function<void(Communicator&)> call;
};

class CollectiveArgument : public testing::TestWithParam<std::string> {
 protected:
  void expect_refused(const std::vector<RefusedCall>& calls) {
    const auto body = [&](Communicator& comm) {
      counting_allocator::install();
      for (const RefusedCall& refused : calls) {
        const std::string error = error_of<std::invalid_argument>([&] { refused.call(comm); });
        require(error.find(refused.says) != std::string::npos,
                "the error lacks \"" + refused.says + "\": " + error);
      }
      const at::Tensor sum = at::ones({3});
      comm.all_reduce(sum, "unit").wait();
      require(sum.eq(comm.world_size()).all().item<bool>(), "another sum after the refusals");
    };
    EXPECT_EQ(failure(2, {.backend = GetParam()}, body), "");
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, CollectiveArgument, testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

// Returns a tensor [numel] that begins at element `offset` of a storage with memory for
// `of_storage` elements. Communicator::empty() allocates the storage if `shared` is true, otherwise
// at::empty().
at::Tensor view(Communicator& comm, bool shared, int64_t of_storage, int64_t offset,
                int64_t numel) {
  const at::Tensor whole = shared ? comm.empty(of_storage) : at::empty({of_storage});
  return view_of_storage(whole.storage(), whole.storage_offset() + offset, {numel});
}

TEST_P(CollectiveArgument, a_collective_refuses_a_view_that_ends_beyond_its_storage) {
  const std::string says = "needs tensors with memory";
  std::vector<RefusedCall> calls;
  for (const bool shared : {false, true}) {
    calls.push_back(
        {"all_gather unit " + says, [=](Communicator& comm) {
           // The output of this all-gather ends beyond its storage.
           comm.all_gather_into(view(comm, shared, 16, 1, 16), at::ones({8}), "unit").wait();
         }});
    calls.push_back(
        {"all_gather unit " + says, [=](Communicator& comm) {
           // The input of this all-gather ends beyond its storage.
           comm.all_gather_into(at::empty({16}), view(comm, shared, 8, 8, 8), "unit").wait();
         }});
    calls.push_back(
        {"reduce_scatter unit " + says, [=](Communicator& comm) {
           comm.reduce_scatter_into(view(comm, shared, 9, 4, 8), at::ones({16}), "unit").wait();
         }});
    calls.push_back({"all_reduce unit " + says, [=](Communicator& comm) {
                       comm.all_reduce(view(comm, shared, 8, 7, 2), "unit").wait();
                     }});
    calls.push_back({"broadcast unit " + says, [=](Communicator& comm) {
                       comm.broadcast(view(comm, shared, 8, 9, 1), 0, "unit").wait();
                     }});
  }
  expect_refused(calls);
}

TEST_P(CollectiveArgument, a_collective_accepts_a_view_that_ends_with_its_storage) {
  for (const bool shared : {false, true}) {
    const auto body = [=](Communicator& comm) {
      counting_allocator::install();
      const at::Tensor tensor = view(comm, shared, 16, 9, 7);
      comm.all_reduce(tensor.fill_(comm.rank() + 1), "unit").wait();
      require(tensor.eq(3).all().item<bool>(), "another sum");
    };
    EXPECT_EQ(failure(2, {.backend = GetParam()}, body), "") << (shared ? "shared" : "counted");
  }
}

TEST_P(CollectiveArgument, a_collective_with_an_invalid_argument_throws_and_names_the_cause) {
  expect_refused(
      {{"all_reduce unit needs defined tensors",
        [](Communicator& comm) { comm.all_reduce(at::Tensor(), "unit").wait(); }},
       {"all_reduce unit needs contiguous tensors",
        [](Communicator& comm) {
          comm.all_reduce(at::ones({2, 4}).t(), "unit").wait();
        }},
       {"all_reduce unit needs tensors on the CPU",
        [](Communicator& comm) { comm.all_reduce(at::empty({8}, at::kMeta), "unit").wait(); }},
       {"reduce_scatter unit needs an input of 2 times the output's elements: output [8] Float, "
        "input [15] Float",
        [](Communicator& comm) {
          comm.reduce_scatter_into(at::empty({8}), at::ones({15}), "unit").wait();
        }},
       {"reduce_scatter unit needs an output that does not overlap the input",
        [](Communicator& comm) {
          const at::Tensor all = at::ones({23});
          comm.reduce_scatter_into(all.narrow(0, 15, 8), all.narrow(0, 0, 16), "unit").wait();
        }},
       {"broadcast unit has no root 2 among 2 ranks",
        [](Communicator& comm) { comm.broadcast(at::ones({8}), 2, "unit").wait(); }},
       {"broadcast unit has no root -1 among 2 ranks",
        [](Communicator& comm) { comm.broadcast(at::ones({8}), -1, "unit").wait(); }}});
}

}  // namespace
}  // namespace fsdp
