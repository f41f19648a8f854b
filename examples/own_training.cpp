#include <fsdp/fsdp.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>

#include <cstdio>
#include <filesystem>

using namespace fsdp;

using TwoInputs = ModuleOf<torch::Tensor(torch::Tensor x, torch::Tensor condition)>;

struct LayerBlock : TwoInputs {  // a unit, because its name ends in "Block"
  torch::Tensor forward(torch::Tensor x, torch::Tensor condition) override {
    return x + (linear(x) + condition).relu();
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(64, 64));
};

struct Net : TwoInputs {
  torch::Tensor forward(torch::Tensor x, torch::Tensor condition) override {
    return (*second)((*first)(x, condition), condition);
  }
  std::shared_ptr<LayerBlock> first = register_module("first", std::make_shared<LayerBlock>());
  std::shared_ptr<LayerBlock> second = register_module("second", std::make_shared<LayerBlock>());
};

// own_training FOLDER: trains ten steps and saves the state in FOLDER. If FOLDER/model.pt exists,
// continues from it.
int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  return start(4, [&](const RankContext& context) {
    torch::manual_seed(1);  // every rank draws the same initial parameters and the same batches
    const auto comm = Communicator::create(context);
    Net net;
    FullyShardedDataParallel model(net, comm);
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-2));
    torch::optim::StepLR scheduler(optimizer, /*step_size=*/5, /*gamma=*/0.5);
    if (std::filesystem::exists(folder + "/model.pt")) {
      model.load_state_dict(load_state_dict_file(folder + "/model.pt"));
      model.load_optim_state_dict(optimizer, load_state_dict_file(folder + "/optimizer.pt"));
    }
    for (int step = 0; step < 10; ++step) {
      const auto x = torch::randn({64, 64}).chunk(4)[context.rank];
      const auto loss = (model(x, x.flip(1)) - x.flip(1)).square().mean();
      loss.backward();
      model.clip_grad_norm_(1.0);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      if (context.rank == 0) std::printf("step %d: %f\n", step, loss.item<double>());
    }
    save_state_dict(model.optim_state_dict(optimizer), folder + "/optimizer.pt", *comm);
    save_state_dict(model.state_dict(), folder + "/model.pt", *comm);
    return 0;
  });
}
