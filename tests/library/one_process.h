#pragma once

#include <comm/tree_sum.h>
#include <distributed_data_parallel.h>
#include <fully_sharded_data_parallel.h>
#include <testing/multi_rank.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <library/models.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

// Trains as a user of PyTorch does: on ranks, and in one process that computes the microbatches of
// all ranks one after another.
namespace fsdp {

using OptimizerOf =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

inline std::unique_ptr<torch::optim::Optimizer> adamw(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                               torch::optim::AdamWOptions(0.05));
}

inline std::unique_ptr<torch::optim::Optimizer> momentum(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}

// Draws a batch that depends on `step`, divides it into `microbatches` equal microbatches, each
// with these `sizes`, and returns microbatch number `microbatch`.
inline at::Tensor batch_part(int microbatch, int microbatches, int step, at::IntArrayRef sizes) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 + step));
  std::vector<int64_t> all = sizes.vec();
  all[0] *= microbatches;
  return at::randn(all, generator).chunk(microbatches)[microbatch];
}

using Loss = std::function<at::Tensor(Module& model, int microbatch, int microbatches, int step)>;

// Returns a loss function. Its loss is the mean square of the model's output for a microbatch of
// these sizes.
inline Loss mean_square_of(const std::vector<int64_t>& sizes) {
  return [sizes](Module& model, int microbatch, int microbatches, int step) {
    return model(batch_part(microbatch, microbatches, step, sizes)).square().mean();
  };
}

// Returns the mean square of the output of a model of width 7.
inline at::Tensor mean_square(Module& model, int microbatch, int microbatches, int step) {
  return mean_square_of({5, 7})(model, microbatch, microbatches, step);
}
// Returns mean_square() of this rank's microbatch.
inline at::Tensor loss_of(Module& model, TestRank& rank, int step = 0) {
  return mean_square(model, rank.rank(), rank.world_size(), step);
}

// While this object lives, it collects torch's warnings.
struct WarningsOf : c10::WarningHandler {
  WarningsOf() { c10::WarningUtils::set_warning_handler(this); }
  ~WarningsOf() override { c10::WarningUtils::set_warning_handler(nullptr); }
  void process(const c10::Warning& warning) override { texts += warning.msg(); }
  std::string texts;
};

// Runs `body` once for each way to divide the ranks into replicas: from replicas of one rank each
// to one replica of all ranks.
inline void in_each_strategy(
    int world_size,
    const std::function<void(TestRank&, const std::shared_ptr<Communicator>&)>& body) {
  for (int shards = 1; shards <= world_size; ++shards)
    if (world_size % shards == 0)
      run_ranks(world_size, [&](TestRank& rank) { body(rank, rank.hybrid(shards)); });
}

template <class Net>
std::shared_ptr<Module> built() {
  return std::make_shared<Net>();
}

struct Training {
  std::string name;
  std::function<std::shared_ptr<Module>()> build{built<BlockNet>};
  Loss loss{mean_square};  // returns the loss of one microbatch of the step's batch
  OptimizerOf optimizer{adamw};
  FullyShardedDataParallelOptions options{};
};
constexpr int kSteps = 3;

// A rank's sharded BlockNet and its optimizer.
struct ShardedNet {
  explicit ShardedNet(TestRank& rank, const OptimizerOf& optimizer_of = adamw,
                      std::shared_ptr<BlockNet> of = block_net(),
                      const FullyShardedDataParallelOptions& options = {})
      : rank(rank),
        net(std::move(of)),
        model(*net, rank.communicator(), options),
        optimizer(optimizer_of(model.parameters())) {}

  void step(int number = 0) {
    loss_of(*net, rank, number).backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  at::Tensor all_parameters() {
    std::vector<at::Tensor> all;
    for (const auto& entry : model.state_dict())
      all.push_back(entry.value().flatten());
    return at::cat(all);
  }

  TestRank& rank;
  std::shared_ptr<BlockNet> net;
  FullyShardedDataParallel<BlockNet> model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

// Computes in one process the gradients that ranks compute together: adds the gradients of all
// microbatches as a tree, divides the sum once by `microbatches`, and leaves the result in .grad of
// each trainable parameter that has elements. If a parameter has 16 bits, its gradients are added
// and divided in fp32, and the result is rounded once to the parameter's dtype.
inline void backward_of_parts(const std::vector<at::Tensor>& parameters, int microbatches,
                              const std::function<at::Tensor(int microbatch)>& loss) {
  std::vector<std::vector<at::Tensor>> gradients(parameters.size());
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    loss(microbatch).backward();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor gradient = std::exchange(parameters[i].mutable_grad(), {});
      const at::Tensor own = gradient.defined() ? gradient : at::zeros_like(parameters[i]);
      const bool narrow = at::isReducedFloatingType(own.scalar_type());
      gradients[i].push_back(narrow ? own.to(at::kFloat) : own);
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].requires_grad() && parameters[i].numel() > 0)
      parameters[i].mutable_grad() = sum_as_tree(gradients[i])
                                         .view(parameters[i].sizes())
                                         .div(microbatches)
                                         .to(parameters[i].scalar_type());
}

inline void train_in_one_process(TestRank& rank, const Training& training, int world_size) {
  const auto model = training.build();
  const auto named = distinct_parameters(*model);
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : named)
    parameters.push_back(parameter);
  const auto optimizer = training.optimizer(parameters);
  for (int step = 0; step < kSteps; ++step) {
    backward_of_parts(parameters, world_size, [&](int microbatch) {
      return training.loss(*model, microbatch, world_size, step);
    });
    optimizer->step();
    optimizer->zero_grad();
  }
  for (const auto& [name, parameter] : named)
    rank.observe(training.name + ", " + name, parameter.detach().contiguous());
}

template <template <class> class Parallel, class Options>
void train_parallel(TestRank& rank, const std::shared_ptr<Communicator>& comm,
                    const Training& training, const Options& options) {
  const auto net = training.build();
  Parallel<Module> model(*net, comm, options);
  const auto optimizer = training.optimizer(model.parameters());
  for (int step = 0; step < kSteps; ++step) {
    training.loss(*net, rank.rank(), rank.world_size(), step).backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  model.average_buffers();
  for (const auto& entry : model.state_dict())
    rank.observe(training.name + ", " + entry.key(), entry.value());
}

inline void train_sharded(TestRank& rank, const Training& training) {
  train_parallel<FullyShardedDataParallel>(rank, rank.communicator(), training, training.options);
}
// Trains with DistributedDataParallel. The buckets are so small that most models need several.
inline void train_replicated(TestRank& rank, const Training& training) {
  train_parallel<DistributedDataParallel>(rank, rank.communicator(), training,
                                          DistributedDataParallelOptions{.bucket_cap_mb = 0.0005});
}

// Runs each training in one process, and then on `world_size` ranks with each function of `classes`
// (by default with FullyShardedDataParallel and with DistributedDataParallel). Fails unless each
// parameter ends with the bits that it has in one process. Each training begins with the same
// random seed.
inline void expect_equal_to_one_process(
    int world_size, const std::vector<Training>& trainings,
    const std::vector<void (*)(TestRank&, const Training&)>& classes = {train_sharded,
                                                                        train_replicated}) {
  const auto each = [&](const std::function<void(const Training&)>& train) {
    for (const Training& training : trainings) {
      torch::manual_seed(2);
      try {
        train(training);
      } catch (const std::exception& error) {
        throw std::runtime_error(training.name + ": " + error.what());
      }
    }
  };
  const RankRun expected = run_oracle([&](TestRank& rank) {
    each([&](const Training& training) { train_in_one_process(rank, training, world_size); });
  });
  for (const auto& train : classes) {
    const auto on_ranks = [&](TestRank& rank) {
      each([&](const Training& training) { train(rank, training); });
    };
    expect_as(run_ranks(world_size, on_ranks), expected);
  }
}

}  // namespace fsdp
