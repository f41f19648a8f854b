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

TEST(ModuleHolder, may_hold_a_module_of_any_shape_and_runs_its_hooks) {
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

TEST(ModuleHolder, the_class_of_its_module_is_named_without_impl) {
  in_a_process([] {
    EXPECT_EQ(KeptBlock(3)->name(), "fsdp::KeptBlock");
    struct Impl : KeptBlockImpl {
      using KeptBlockImpl::KeptBlockImpl;
    };
    EXPECT_TRUE(Impl(3).name().ends_with("::Impl")) << Impl(3).name();
  });
}

TEST_IN_A_PROCESS(ModuleHolder, may_be_registered_and_be_empty) {
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
