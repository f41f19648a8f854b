#include <check_hookable.h>
#include <gtest/gtest.h>
#include <sequential.h>

#include <string>
#include <vector>

#include <common/expect_text.h>
#include <common/in_a_process.h>

#include "kept_block.h"

namespace fsdp {
namespace {

// A model with a block in each kind of container. Whichever container calls its block, the block's
// hooks run.
struct ContainersNet : Module {
  struct Around : torch::nn::Module {
    Around() { block = register_module("block", KeptBlock(3)); }
    at::Tensor forward(at::Tensor x) { return block(x); }
    KeptBlock block{nullptr};
  };
  ContainersNet() {
    list = register_module("list", torch::nn::ModuleList(KeptBlock(3)));
    chain = register_module("chain", std::make_shared<Sequential>(KeptBlock(3)));
    // torch's Sequential calls Around::forward(), which calls the block with its hooks.
    theirs = register_module("theirs", torch::nn::Sequential(std::make_shared<Around>()));
  }
  at::Tensor forward(at::Tensor x) override { return x; }
  torch::nn::ModuleList list{nullptr};
  std::shared_ptr<Sequential> chain;
  torch::nn::Sequential theirs{nullptr};
};

TEST_IN_A_PROCESS(CheckHookable,
                  check_hookable_names_the_only_block_whose_hooks_a_container_skips) {
  ContainersNet net;
  check_hookable(net);  // throws nothing, because the hooks of each block in `net` run
  KeptBlock passed_by(3);
  net.theirs->push_back(passed_by);
  const std::string says =
      "theirs.1 (fsdp::KeptBlock) lies in a torch::nn::Sequential, which "
      "calls forward() and so runs no hooks; use an fsdp::Sequential";
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { check_hookable(net); }), says);
  const std::vector<Module*> units{passed_by.get()};
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { check_hookable(net, units); }), says);
  check_hookable(net, {});  // throws nothing, because the block is not a unit
}

}  // namespace
}  // namespace fsdp
