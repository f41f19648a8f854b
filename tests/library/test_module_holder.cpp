#include <gtest/gtest.h>
#include <module_holder.h>
#include <sequential.h>

#include <string>
#include <vector>

#include <common/hook_events.h>
#include <common/in_a_process.h>

#include "kept_block.h"

namespace fsdp {
namespace {

struct ScaledImpl : ModuleOf<std::pair<at::Tensor, double>(const at::Tensor& x, double by)> {
  std::pair<at::Tensor, double> forward(const at::Tensor& x, double by) override {
    return {x * by, by};
  }
};
FSDP_MODULE(Scaled);

TEST(ModuleHolder, a_call_of_a_holder_runs_the_hooks_of_a_module_with_any_inputs_and_outputs) {
  in_a_process([] {
    Events events;
    Scaled scaled;
    note_backward(*scaled, events);
    const auto [x, by] = scaled(row(), 3);
    EXPECT_EQ(by, 3);
    x.sum().backward();
    EXPECT_EQ(events, (Events{"opens", "closes"}));
  });
}

TEST(ModuleHolder, name_of_a_module_in_a_module_holder_omits_impl) {
  in_a_process([] {
    EXPECT_EQ(KeptBlock(3)->name(), "fsdp::KeptBlock");
    struct Impl : KeptBlockImpl {
      using KeptBlockImpl::KeptBlockImpl;
    };
    EXPECT_TRUE(Impl(3).name().ends_with("::Impl")) << Impl(3).name();
  });
}

TEST_IN_A_PROCESS(ModuleHolder, a_holder_can_be_registered_and_can_be_empty) {
  struct Net : Module {
    at::Tensor forward(at::Tensor x) override { return block(x); }
    KeptBlock block = register_module("block", KeptBlock(3));
  } net;
  Events events;
  note_backward(*net.block, events);
  EXPECT_EQ(net.named_parameters().keys(), std::vector<std::string>{"block.weight"});
  net(row()).sum().backward();
  EXPECT_EQ(events, (Events{"opens", "closes"}));
  EXPECT_TRUE(KeptBlock(nullptr).is_empty());
}

}  // namespace
}  // namespace fsdp
