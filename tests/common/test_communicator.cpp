#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <gtest/gtest.h>
#include <launch/rank_context.h>

#include "expect_text.h"
#include "rank_failure.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

TEST(Communicator, an_unknown_backend_and_nccl_without_cuda_throw) {
  const auto refusal = [](const std::string& backend) {
    return failure(1, {backend, 1000ms, {}}, [](Communicator&) {});
  };
  EXPECT_CONTAINS(refusal("smoke"),
                  "unknown backend 'smoke': allowed are auto, shm, gloo and nccl");
  EXPECT_CONTAINS(refusal("nccl"), "backend nccl needs a CUDA build");
}

TEST(Communicator, take_log_throws_unless_keep_log_is_on) {
  EXPECT_EQ(failure(1, {}, [](Communicator& comm) { comm.take_log(); }),
            "rank 0 failed: take_log(): no log is kept; set CommunicatorOptions::keep_log");
}

}  // namespace
}  // namespace fsdp
