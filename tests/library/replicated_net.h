#pragma once

#include <library/models.h>
#include <library/one_process.h>

// A replica for the tests of DistributedDataParallel.
namespace fsdp {

// A net that uses none of its parameters while `lazy` is set.
struct LazyNet : BlockNet {
  explicit LazyNet(int layers) : BlockNet(layers) {}
  at::Tensor forward(at::Tensor x) override { return lazy ? x * 1 : BlockNet::forward(x); }
  bool lazy{};
};

// A rank's replica of a LazyNet and its optimizer.
struct ReplicatedNet {
  explicit ReplicatedNet(TestRank& rank, double cap = 25, int layers = 3)
      : rank(rank),
        net((torch::manual_seed(1), std::make_shared<LazyNet>(layers))),
        model(*net, rank.communicator(), {.bucket_cap_mb = cap}),
        optimizer(momentum(net->parameters())) {}
  void backward(int number = 0) { loss_of(*net, rank, number).backward(); }
  void step(int number = 0) {
    backward(number);
    optimizer->step();
    optimizer->zero_grad();
  }
  void backward_of_nothing() {
    net->lazy = true;
    model(at::ones({2, 7}).requires_grad_()).sum().backward();
    net->lazy = false;
  }

  TestRank& rank;
  std::shared_ptr<LazyNet> net;
  DistributedDataParallel<LazyNet> model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  at::Tensor weight = net->blocks[0]->linear->weight;
};

}  // namespace fsdp
