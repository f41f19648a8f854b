#include <checkpoint_activations.h>
#include <full_tensor.h>
#include <memory/live_bytes.h>
#include <optim/p_norm.h>
#include <sharded_optimizer.h>
#include <state/model_state.h>
#include <torch/nn/modules/embedding.h>
#include <torch/serialize.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

// Tests models whose parameters are fp32, bf16 and fp16. The oracle is one process: it adds the
// gradients of the microbatches in fp32, divides once, and rounds once to the parameter's dtype.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(AnyDtype);

constexpr int64_t kRowWidth = 7;

// A block with a linear layer in bf16 and a norm in fp32.
struct NormBlock : Module {
  NormBlock() { linear->to(at::kBFloat16); }
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor normed = at::layer_norm(x.to(at::kFloat), {kRowWidth}, gain, shift);
    return x + linear(normed.to(at::kBFloat16)).tanh();
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(kRowWidth, kRowWidth));
  at::Tensor gain = register_parameter("gain", at::randn({kRowWidth}));
  at::Tensor shift = register_parameter("shift", at::randn({kRowWidth}));
};

// A row of NormBlocks, which compute in bf16, between a gain in fp16 and a scale in fp32, which
// belong to the root.
struct DtypeNet : RowOf<NormBlock> {
  using RowOf<NormBlock>::RowOf;
  at::Tensor forward(at::Tensor x) override {
    x = (x.to(at::kHalf) * half).to(at::kBFloat16);
    return RowOf::forward(x).to(at::kFloat) * scale;
  }
  at::Tensor half = register_parameter("half", at::randn({kRowWidth}).to(at::kHalf));
  at::Tensor scale = register_parameter("scale", at::randn({kRowWidth}));
};

// A model all of whose parameters are bf16.
struct Bf16Net : BlockNet {
  Bf16Net() { to(at::kBFloat16); }
  at::Tensor forward(at::Tensor x) override {
    return BlockNet::forward(x.to(at::kBFloat16)).to(at::kFloat);
  }
};

// A head that shares its weight with an embedding.
struct TiedHeadBlock : Module {
  explicit TiedHeadBlock(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  at::Tensor forward(at::Tensor x) override { return at::linear(x, weight); }
  at::Tensor weight;
};

constexpr int64_t kTokens = 11;

// A language model with a bf16 embedding that is tied to its head.
struct TiedNet : Module {
  TiedNet() {
    table->to(at::kBFloat16);
    head = register_module("head", std::make_shared<TiedHeadBlock>(table->weight));
  }
  at::Tensor forward(at::Tensor tokens) override {
    return (*head)((*block)(table(tokens))).to(at::kFloat);
  }
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(kTokens, kRowWidth));
  std::shared_ptr<NormBlock> block = register_module("block", std::make_shared<NormBlock>());
  std::shared_ptr<TiedHeadBlock> head;
};

// Returns the cross entropy of the next token, for tokens that are drawn from the step's batch.
at::Tensor next_token_loss(Module& model, int microbatch, int microbatches, int step) {
  const at::Tensor drawn = batch_part(microbatch, microbatches, step, {2, 6});
  const at::Tensor tokens = (drawn.abs() * 5).to(at::kLong).clamp_max(kTokens - 1);
  const at::Tensor logits = model(tokens.slice(1, 0, -1));
  return at::cross_entropy_loss(logits.flatten(0, 1), tokens.slice(1, 1).flatten());
}

// Returns a model in which the linear layer of block 0 is frozen as a whole, and of block 1 only
// its weight.
std::shared_ptr<Module> partly_frozen_dtypes() {
  const auto net = std::make_shared<DtypeNet>();
  net->blocks[0]->linear->weight.set_requires_grad(false);
  net->blocks[0]->linear->bias.set_requires_grad(false);
  net->blocks[1]->linear->weight.set_requires_grad(false);
  return net;
}

std::shared_ptr<Module> checkpointed_net() {
  const auto net = std::make_shared<DtypeNet>();
  for (const auto& block : net->blocks)
    checkpoint_activations(*block);
  return net;
}

// The default eps of AdamW, 1e-8, is 0 in fp16.
std::unique_ptr<torch::optim::Optimizer> adamw_in_16_bits(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                               torch::optim::AdamWOptions(0.05).eps(1e-3));
}

std::vector<Training> with_both_optimizers(Training training) {
  Training other = training;
  training.name += ", AdamW";
  training.optimizer = adamw_in_16_bits;
  other.name += ", SGD with momentum";
  other.optimizer = momentum;
  return {training, other};
}

MULTI_RANK_TEST(AnyDtype, bf16_matrices_fp32_norms_and_an_fp16_gain_train_as_in_one_process) {
  std::vector<Training> trainings = with_both_optimizers({"mixed", built<DtypeNet>});
  trainings.push_back(trainings.front());
  trainings.back().name += ", wrap_none()";
  trainings.back().options.wrap = wrap_none();
  trainings.push_back(trainings.front());
  trainings.back().name += ", stays unsharded after forward";
  trainings.back().options.reshard_after_forward = false;
  trainings.push_back(trainings.front());
  trainings.back().name += ", without prefetch";
  trainings.back().options.limit = 1;
  trainings.push_back(trainings.front());
  trainings.back().name += ", the next module is gathered ahead";
  trainings.back().options.limit = 3;
  trainings.push_back(trainings.front());
  trainings.back().name += ", blocks run again in backward";
  trainings.back().build = checkpointed_net;
  expect_equal_to_one_process(world_size(), trainings);
}

MULTI_RANK_TEST(AnyDtype, a_model_of_bf16_only_trains_as_in_one_process) {
  expect_equal_to_one_process(world_size(), with_both_optimizers({"bf16", built<Bf16Net>}));
}

MULTI_RANK_TEST(AnyDtype, a_bf16_embedding_that_is_tied_to_the_head_trains_as_in_one_process) {
  expect_equal_to_one_process(world_size(),
                              with_both_optimizers({"tied", built<TiedNet>, next_token_loss}));
}

MULTI_RANK_TEST(AnyDtype, a_model_with_frozen_bf16_parameters_trains_as_in_one_process) {
  expect_equal_to_one_process(world_size(), with_both_optimizers({"frozen", partly_frozen_dtypes}));
}

// With up to 4 ranks, the sum within each replica, followed by the sum over replicas, is the same
// tree as the sum over all ranks.
MULTI_RANK_TEST(AnyDtype, replicas_of_a_sharded_or_replicated_model_train_as_one_process) {
  const Training training{.name = "mixed", .build = built<DtypeNet>, .optimizer = adamw_in_16_bits};
  const RankRun expected = run_oracle([&](TestRank& rank) {
    torch::manual_seed(2);
    train_in_one_process(rank, training, world_size());
  });
  for (int shards = 1; shards <= world_size(); ++shards) {
    if (world_size() % shards != 0) continue;
    SCOPED_TRACE(std::to_string(shards) + " ranks of a replica");
    const auto train = [&]<template <class> class Parallel>(const auto& options) {
      expect_as(run_ranks(world_size(),
                          [&](TestRank& rank) {
                            torch::manual_seed(2);
                            train_parallel<Parallel>(rank, rank.hybrid(shards), training, options);
                          }),
                expected);
    };
    train.template operator()<FullyShardedDataParallel>(training.options);
    train.template operator()<DistributedDataParallel>(
        DistributedDataParallelOptions{.bucket_cap_mb = 0.0005});
  }
}

// Calls `body` with a model of each class, on ranks, and compares what it observes with what
// `oracle` observes in one process.
template <class Body>
void expect_of_each_class(int world_size, const Body& body,
                          const std::function<void(TestRank&, DtypeNet&)>& oracle) {
  const auto build = [] {
    torch::manual_seed(2);
    return std::make_shared<DtypeNet>();
  };
  const RankRun expected = run_oracle([&](TestRank& rank) { oracle(rank, *build()); });
  expect_as(run_ranks(world_size,
                      [&](TestRank& rank) {
                        const auto net = build();
                        FullyShardedDataParallel model(*net, rank.communicator());
                        body(rank, *net, model);
                      }),
            expected);
  expect_as(run_ranks(world_size,
                      [&](TestRank& rank) {
                        const auto net = build();
                        DistributedDataParallel model(*net, rank.communicator());
                        body(rank, *net, model);
                      }),
            expected);
}

template <class Model>
void observe_gradients(TestRank& rank, Model& model) {
  for (const auto& parameter : model.named_parameters()) {
    const at::Tensor gradient = full_tensor(parameter.value().grad());
    rank.observe("gradient of " + parameter.key(), gradient.detach().contiguous());
  }
}

void observe_gradients_of_module(TestRank& rank, Module& net) {
  for (const auto& [name, parameter] : distinct_parameters(net))
    rank.observe("gradient of " + name, parameter.grad().contiguous());
}

// Returns the parameters of `net` as a vector, each distinct one once.
std::vector<at::Tensor> parameters_of(Module& net) {
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : distinct_parameters(net))
    parameters.push_back(parameter);
  return parameters;
}

// Gradients of several backward passes add up in the parameter's dtype, as autograd adds them.
MULTI_RANK_TEST(AnyDtype, gradients_that_add_up_with_and_without_no_sync_are_those_of_one_process) {
  const int w = world_size();
  const auto on_ranks = [](TestRank& rank, Module& net, auto& model) {
    const auto parameters = model.parameters();
    for (int pass = 0; pass < 2; ++pass) {
      {
        const NoSync no_sync = model.no_sync();
        loss_of(net, rank, 3 * pass).backward();
        loss_of(net, rank, 3 * pass + 1).backward();
      }
      loss_of(net, rank, 3 * pass + 2).backward();
    }
    observe_gradients(rank, model);
  };
  expect_of_each_class(w, on_ranks, [w](TestRank& rank, DtypeNet& net) {
    const auto parameters = parameters_of(net);
    std::vector<at::Tensor> first;
    for (int pass = 0; pass < 2; ++pass) {
      backward_of_parts(parameters, w, [&](int microbatch) {
        mean_square(net, microbatch, w, 3 * pass).backward();
        mean_square(net, microbatch, w, 3 * pass + 1).backward();
        return mean_square(net, microbatch, w, 3 * pass + 2);
      });
      for (const at::Tensor& parameter : parameters)
        if (pass == 0) first.push_back(std::exchange(parameter.mutable_grad(), {}));
    }
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i].mutable_grad() = first[i].add_(parameters[i].grad());
    observe_gradients_of_module(rank, net);
  });
}

MULTI_RANK_TEST(AnyDtype, norms_clipping_and_the_guard_against_nan_are_those_of_one_process) {
  const int w = world_size();
  for (const double norm_type : {2.0, 3.0, static_cast<double>(INFINITY)}) {
    SCOPED_TRACE("norm type " + std::to_string(norm_type));
    const auto on_ranks = [=](TestRank& rank, Module& net, auto& model) {
      const auto parameters = model.parameters();
      loss_of(net, rank).backward();
      for (const auto& norm : model.param_norms(norm_type))
        rank.observe("norm of " + norm.key(), norm.value());
      for (const auto& norm : model.grad_norms(norm_type))
        rank.observe("norm of the gradient of " + norm.key(), norm.value());
      rank.observe("finite", model.gradients_are_finite());
      rank.observe("norm", model.clip_grad_norm_(1e-2, norm_type));
      observe_gradients(rank, model);
      const at::NoGradGuard no_grad;
      for (const at::Tensor& parameter : parameters)
        if (parameter.scalar_type() == at::kBFloat16) parameter.grad().fill_(INFINITY);
      rank.observe("finite with infinity", model.gradients_are_finite());
    };
    expect_of_each_class(w, on_ranks, [=](TestRank& rank, DtypeNet& net) {
      std::vector<at::Tensor> gradients;
      const auto parameters = parameters_of(net);
      backward_of_parts(parameters, w, [&](int part) { return mean_square(net, part, w, 0); });
      for (const auto& [name, parameter] : distinct_parameters(net)) {
        gradients.push_back(parameter.grad());
        // bf16 and fp16 numbers are fp32 numbers too, so the norms are exact.
        const at::Tensor values = parameter.detach().to(at::kFloat);
        rank.observe("norm of " + name, p_norm({values}, norm_type));
        rank.observe("norm of the gradient of " + name,
                     p_norm({parameter.grad().to(at::kFloat)}, norm_type));
      }
      rank.observe("finite", true);
      std::vector<at::Tensor> wide;
      for (const at::Tensor& gradient : gradients)
        wide.push_back(gradient.to(at::kFloat));
      const double norm = p_norm(wide, norm_type);
      rank.observe("norm", norm);
      for (const at::Tensor& gradient : gradients)
        gradient.mul_(1e-2 / (norm + 1e-6));
      observe_gradients_of_module(rank, net);
      rank.observe("finite with infinity", false);
    });
  }
}

// Returns "NAME: parameter parameter; " for each unit.
std::string units_of_model(const std::vector<std::shared_ptr<FlatParameter>>& units) {
  std::string text;
  for (const auto& unit : units) {
    text += unit->unit() + ":";
    for (const auto& [name, tensor] : unit->parameters())
      text += " " + name;
    text += "; ";
  }
  return text;
}

MULTI_RANK_TEST(AnyDtype, a_unit_has_one_dtype_and_parameters_are_aligned_views_of_it) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    const auto net = partly_frozen_dtypes();
    const auto before = parameters_of(*net);
    std::vector<at::ScalarType> dtypes;
    for (const at::Tensor& parameter : before)
      dtypes.push_back(parameter.scalar_type());
    FullyShardedDataParallel<Module> model(*net, rank.communicator());
    EXPECT_EQ(units_of_model(model.units()),
              "root:fp16: half; root:fp32: scale; "
              "b0:fp32: b0.gain b0.shift; b0:bf16: b0.linear.weight b0.linear.bias; "
              "b1:fp32: b1.gain b1.shift; b1:bf16:frozen: b1.linear.weight; "
              "b1:bf16: b1.linear.bias; ");
    for (const auto& unit : model.fully_sharded().layout().units)
      EXPECT_TRUE(unit.module() == "root" || unit.module() == "b0" || unit.module() == "b1");
    const auto leaves = model.parameters();
    for (size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_EQ(leaves[i].scalar_type(), dtypes[i]);
      EXPECT_EQ(before[i].scalar_type(), dtypes[i]);
    }
    for (const auto& unit : model.units()) {
      const auto width = static_cast<int64_t>(unit->shard().element_size());
      EXPECT_EQ(unit->shard_numel() * width % 64, 0) << unit->unit();
      unit->unshard();
      const auto& parameters = unit->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_EQ(parameters[i].tensor.scalar_type(), unit->shard().scalar_type());
        EXPECT_TRUE(parameters[i].tensor.is_contiguous());
        EXPECT_EQ(unit->layout().offsets[i] * width % 64, 0) << parameters[i].name;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(parameters[i].tensor.const_data_ptr()) % 64, 0);
      }
      unit->reshard();
    }
  });
}

// Returns the bytes of a flat tensor with parameters of these bytes.
int64_t padded_bytes(const std::vector<int64_t>& parameters, int world_size) {
  int64_t end = 0;
  for (const int64_t bytes : parameters)
    end = round_up(end + bytes, 64);
  return round_up(end, 64 * world_size);
}

MULTI_RANK_TEST(AnyDtype, each_unit_is_gathered_and_reduced_in_its_own_dtype) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    DtypeNet net(1);
    FullyShardedDataParallel model(net, rank.communicator());
    model.parameters();
    loss_of(net, rank).backward();
    rank.communicator()->take_log();
    loss_of(net, rank).backward();
    std::map<std::string, std::pair<int64_t, int64_t>> calls;  // number and bytes, by name
    for (const Call& call : rank.communicator()->take_log()) {
      auto& [number, bytes] = calls[call.name()];
      ++number;
      bytes = call.numel * static_cast<int64_t>(c10::elementSize(call.dtype));
    }
    for (const auto& [name, counted] : calls) {
      rank.observe("calls of " + name, counted.first);
      rank.observe("bytes of " + name, counted.second);
    }
    rank.observe("kinds of calls", static_cast<int64_t>(calls.size()));
  });
  // Units of a block are gathered twice, those of the root once.
  const std::map<std::string, std::pair<int64_t, std::vector<int64_t>>> units{
      {"root:fp16", {1, {14}}},
      {"root:fp32", {1, {28}}},
      {"b0:fp32", {2, {28, 28}}},
      {"b0:bf16", {2, {98, 14}}}};
  for (const auto& [unit, expected] : units) {
    const int64_t bytes = padded_bytes(expected.second, world_size());
    expect_on_all_ranks(run, "calls of all_gather " + unit, expected.first);
    expect_on_all_ranks(run, "bytes of all_gather " + unit, bytes);
    expect_on_all_ranks(run, "calls of reduce_scatter " + unit, 1);
    expect_on_all_ranks(run, "bytes of reduce_scatter " + unit, bytes);
  }
  expect_on_all_ranks(run, "kinds of calls", 2 * static_cast<int64_t>(units.size()));
}

MULTI_RANK_TEST(AnyDtype, shards_and_gradients_have_the_bytes_of_their_dtypes) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    DtypeNet net(1);
    const int64_t before = live_bytes::now()[MemoryClass::shards];
    FullyShardedDataParallel model(net, rank.communicator());
    model.parameters();
    loss_of(net, rank).backward();
    rank.observe("shards", live_bytes::now()[MemoryClass::shards] - before);
    rank.observe("gradients", live_bytes::now()[MemoryClass::sharded_gradients]);
  });
  const int w = world_size();
  const int64_t all = padded_bytes({14}, w) + padded_bytes({28}, w) + padded_bytes({28, 28}, w) +
                      padded_bytes({98, 14}, w);
  expect_on_all_ranks(run, "shards", all / w);
  expect_on_all_ranks(run, "gradients", all / w);
}

MULTI_RANK_TEST(AnyDtype, ddp_reduces_all_gradients_in_one_fp32_bucket) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    DtypeNet net(1);
    DistributedDataParallel model(net, rank.communicator());
    loss_of(net, rank).backward();
    int64_t buckets = 0;
    for (const Call& call : rank.communicator()->take_log()) {
      if (call.operation != Operation::all_reduce || call.unit.str() != "bucket.0") continue;
      ++buckets;
      rank.observe("dtype", static_cast<int>(call.dtype));
      rank.observe("elements", call.numel);
    }
    rank.observe("buckets", buckets);
    for (const auto& [name, parameter] : distinct_parameters(net))
      EXPECT_EQ(parameter.grad().scalar_type(), parameter.scalar_type()) << name;
  });
  expect_on_all_ranks(run, "buckets", 1);
  expect_on_all_ranks(run, "dtype", static_cast<int>(at::kFloat));
  // Five vectors of 7 elements and a matrix of 49; each is padded to a multiple of 16.
  expect_on_all_ranks(run, "elements", 5 * 16 + 64);
}

// Makes two steps.
template <class Model, class Net>
void make_steps(TestRank& rank, Model& model, Net& net, torch::optim::Optimizer& optimizer,
                int first = 0) {
  for (int step = first; step < first + 2; ++step) {
    loss_of(net, rank, step).backward();
    optimizer.step();
    model.zero_grad();
  }
}

std::string bytes_of_state(const StateDict& state) {
  std::string text;
  for (const auto& entry : state) {
    const at::Tensor tensor = entry.value().contiguous();
    const std::string bytes(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    text += entry.key() + c10::toString(tensor.scalar_type()) + bytes;
  }
  return text;
}

// Trains with `From`, and continues with `To` from what was saved.
template <template <class> class From, template <class> class To>
void expect_continues(TestRank& rank) {
  torch::manual_seed(2);
  DtypeNet net;
  From<DtypeNet> model(net, rank.communicator());
  const auto optimizer = adamw_in_16_bits(model.parameters());
  make_steps(rank, model, net, *optimizer);
  const std::vector<char> file = torch::pickle_save(model.state_dict());
  StateDict state;
  for (const auto& entry : torch::pickle_load(file).toGenericDict())
    state.insert(entry.key().toStringRef(), entry.value().toTensor());
  const StateDict of_optimizer = model.optim_state_dict(*optimizer);
  for (const auto& [name, parameter] : distinct_parameters(net)) {
    EXPECT_EQ(state.at(name).scalar_type(), parameter.scalar_type()) << name;
    EXPECT_EQ(state.at(name).sizes(), parameter.sizes()) << name;
    EXPECT_EQ(of_optimizer.at(name + "/exp_avg").scalar_type(), parameter.scalar_type()) << name;
  }

  torch::manual_seed(3);
  DtypeNet other;
  To<DtypeNet> loaded(other, rank.communicator());
  const auto next = adamw_in_16_bits(loaded.parameters());
  loaded.load_state_dict(state);
  loaded.load_optim_state_dict(*next, of_optimizer);
  EXPECT_EQ(bytes_of_state(loaded.state_dict()), bytes_of_state(state));
  EXPECT_EQ(bytes_of_state(loaded.optim_state_dict(*next)), bytes_of_state(of_optimizer));
  make_steps(rank, model, net, *optimizer, 2);
  make_steps(rank, loaded, other, *next, 2);
  EXPECT_EQ(bytes_of_state(loaded.state_dict()), bytes_of_state(model.state_dict()));
}

MULTI_RANK_TEST(AnyDtype, training_continues_from_a_saved_state_that_keeps_each_dtype) {
  run_ranks(world_size(), [](TestRank& rank) {
    expect_continues<FullyShardedDataParallel, FullyShardedDataParallel>(rank);
    expect_continues<FullyShardedDataParallel, DistributedDataParallel>(rank);
    expect_continues<DistributedDataParallel, FullyShardedDataParallel>(rank);
  });
}

MULTI_RANK_TEST(AnyDtype, a_state_in_fp32_is_rounded_to_the_dtypes_of_the_model) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    DtypeNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    StateDict in_fp32;
    std::map<std::string, at::Tensor> rounded;
    for (const auto& entry : model.state_dict()) {
      const at::Tensor value = at::full(entry.value().sizes(), 1. / 3);
      in_fp32.insert(entry.key(), value);
      rounded[entry.key()] = value.to(entry.value().scalar_type());
    }
    model.load_state_dict(in_fp32);
    for (const auto& entry : model.state_dict())
      EXPECT_TRUE(at::equal(entry.value(), rounded[entry.key()])) << entry.key();
  });
}

MULTI_RANK_TEST(AnyDtype, what_is_written_in_summon_full_params_or_to_the_leaves_is_kept) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    DtypeNet net;
    const at::Tensor before = net.blocks[1]->linear->weight.detach().clone();
    FullyShardedDataParallel model(net, rank.communicator());
    model.summon_full_params([&] {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::equal(net.blocks[1]->linear->weight, before));
      net.blocks[1]->linear->weight.mul_(2);
      net.scale.fill_(3);
    });
    {
      const at::NoGradGuard no_grad;
      model.named_parameters()["half"].fill_(5);
      model.named_parameters()["b0.linear.bias"].set_data(
          at::full_like(model.named_parameters()["b0.linear.bias"], 7));
    }
    const StateDict state = model.state_dict();
    EXPECT_TRUE(at::equal(state.at("b1.linear.weight"), before * 2));
    EXPECT_TRUE(at::equal(state.at("scale"), at::full({kRowWidth}, 3.0)));
    EXPECT_TRUE(at::equal(state.at("half"), at::full({kRowWidth}, 5.0, at::kHalf)));
    EXPECT_TRUE(at::equal(state.at("b0.linear.bias"), at::full({kRowWidth}, 7.0, at::kBFloat16)));
  });
}

// Returns the message of the error with which the class refuses a model that has `parameter`.
template <template <class> class Parallel, class Options>
std::string refusal_of(TestRank& rank, const at::Tensor& parameter, const Options& options) {
  torch::manual_seed(2);
  const auto net = block_net();
  net->blocks[1]->register_parameter("extra", parameter,
                                     parameter.is_floating_point() || parameter.is_complex());
  const std::string message = error_of<std::invalid_argument>(
      [&] { Parallel<BlockNet> model(*net, rank.communicator(), options); });
  net->forward(at::ones({2, kRowWidth}));  // the refused model is whole, and has no hooks
  return message;
}

MULTI_RANK_TEST(AnyDtype, parameters_that_are_not_fp32_bf16_or_fp16_throw_and_are_named) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const auto dtype : {at::kDouble, at::kLong, at::kComplexFloat, at::kBool}) {
      SCOPED_TRACE(c10::toString(dtype));
      const at::Tensor parameter = at::zeros({3}, dtype);
      const std::string message = std::string(": parameter b1.extra is ") + c10::toString(dtype) +
                                  ", and parameters must be Float, BFloat16 or Half; convert it";
      EXPECT_CONTAINS(
          refusal_of<FullyShardedDataParallel>(rank, parameter, FullyShardedDataParallelOptions{}),
          "FullyShardedDataParallel" + message);
      EXPECT_CONTAINS(
          refusal_of<DistributedDataParallel>(rank, parameter, DistributedDataParallelOptions{}),
          "DistributedDataParallel" + message);
    }
  });
}

MULTI_RANK_TEST(AnyDtype, an_ignored_module_may_have_parameters_of_any_dtype) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    DtypeNet net;
    const auto other = net.register_module("other", std::make_shared<LayerBlock>());
    other->to(at::kDouble);
    for (const at::Tensor& parameter : other->parameters())
      parameter.set_requires_grad(false);
    FullyShardedDataParallel model(net, rank.communicator(), {.ignored = {other.get()}});
    loss_of(net, rank).backward();
    EXPECT_EQ(model.state_dict().at("other.linear.weight").scalar_type(), at::kDouble);
    EXPECT_EQ(model.state_dict().at("half").scalar_type(), at::kHalf);
  });
}

MULTI_RANK_TEST(AnyDtype, mixed_precision_of_a_model_that_is_not_fp32_throws) {
  run_ranks(world_size(), [](TestRank& rank) {
    FullyShardedDataParallelOptions options;
    options.mixed_precision = {at::kBFloat16, at::kFloat};
    EXPECT_CONTAINS(
        refusal_of<FullyShardedDataParallel>(rank, at::zeros({3}, at::kBFloat16), options),
        ".mixed_precision needs fp32 parameters, and b1.extra is bf16; leave the option out");
    torch::manual_seed(2);
    DtypeNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    EXPECT_CONTAINS(error_of<std::invalid_argument>([&] {
                      model.units().front()->set_mixed_precision({at::kBFloat16, at::kFloat});
                    }),
                    "unit root:fp16: set_mixed_precision() needs fp32 parameters");
    loss_of(net, rank).backward();
  });
}

MULTI_RANK_TEST(AnyDtype, a_sharded_optimizer_and_a_checkpoint_of_such_a_model_throw) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    DtypeNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    EXPECT_CONTAINS(
        error_of<std::invalid_argument>([&] {
          make_sharded_optimizer(model.units(), {{"", {}}}, rank.communicator());
        }),
        "unit root:fp16 is not fp32; use one of torch's optimizers with model.parameters()");
    const auto optimizer =
        make_sharded_optimizer({model.units()[1]}, {{"", {}}}, rank.communicator());
    EXPECT_CONTAINS(error_of<std::logic_error>([&] { model.checkpoint_state(*optimizer); }),
                    "parameter half is fp16, and a checkpoint has fp32 parameters");
  });
}

MULTI_RANK_TEST(AnyDtype,
                optim_state_dict_throws_if_a_moment_has_another_dtype_than_its_parameter) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    DtypeNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    const auto optimizer = momentum(model.parameters());
    make_steps(rank, model, net, *optimizer);
    auto& state = *optimizer->state().at(model.named_parameters()["half"].unsafeGetTensorImpl());
    auto& of_half = dynamic_cast<torch::optim::SGDParamState&>(state);
    of_half.momentum_buffer(of_half.momentum_buffer().to(at::kFloat));
    EXPECT_CONTAINS(error_of([&] { model.optim_state_dict(*optimizer); }),
                    "half/momentum_buffer is not a tensor of the parameter's shape and dtype");
  });
}

MULTI_RANK_TEST(AnyDtype, a_ddp_parameter_that_changes_its_dtype_after_it_was_replicated_throws) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    DtypeNet net;
    DistributedDataParallel model(net, rank.communicator());
    net.half.set_data(net.half.detach().to(at::kBFloat16));
    EXPECT_CONTAINS(error_of([&] { loss_of(net, rank).backward(); }),
                    "parameter half is BFloat16, not Half");
  });
}

}  // namespace
}  // namespace fsdp
