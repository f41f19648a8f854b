#include <cuda/gpu.h>
#include <properties/habits.h>
#include <properties/models_under_test.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/nn/utils/convert_parameters.h>

#include <library/one_process.h>
#include <task4_backward_hooks/inner_passes.h>

#include <limits>
#include <map>
#include <optional>

namespace fsdp {
namespace {

using Models = std::vector<std::unique_ptr<ModelUnderTest>>;

// Executes the operations of a program, which random_program.cpp lists by name.
class Run {
 public:
  Run(TestRank& rank, const RandomProgram& program, Models models)
      : rank_(rank), program_(program), models_(std::move(models)) {}

  // Runs all operations up to one that throws or must throw, and observes the parameters at the
  // end.
  void play() {
    for (; at_ < program_.ops.size(); ++at_) {
      const Op& op = program_.ops[at_];
      ModelUnderTest& model = *models_[static_cast<size_t>(op.model)];
      const bool refused = model.incomplete() && needs_gradients(op.what);
      try {
        if (!refused) play(op, model);
      } catch (const std::exception& error) {
        const std::string what = error.what();
        rank_.observe("refusal", what.substr(0, what.find('\n')));
        rank_.observe("refused", at_);
        break;
      }
      if (!refused) continue;
      rank_.observe("refused", at_);
      break;
    }
    for (size_t model = 0; model < models_.size(); ++model)
      for (const auto& entry : models_[model]->state())
        rank_.observe("at the end, " + entry.key() + " of model " + std::to_string(model),
                      entry.value());
  }

 private:
  static bool needs_gradients(const std::string& what) {
    const Habit* habit = habit_named(what);
    return what == "step" || what == "clip" || what == "optimizer.zero_grad to zeros" ||
           what == "halve .grad" || what == "torch's clip_grad_norm_" ||
           (habit != nullptr && habit->of_gradient);
  }

  at::Tensor input(int part, int number) const {
    return batch_part(part, program_.world, number, {3, 7})
        .to(program_.cuda ? at::kCUDA : at::kCPU);
  }
  at::Tensor loss(ModelUnderTest& model, int part, int number, bool through_both = false) {
    const at::Tensor x = input(part, number);
    if (!through_both) return (*model.net)(x).square().mean();
    return (*models_.back()->net)((*models_.front()->net)(x)).square().mean();
  }

  // Returns a loss whose backward pass runs inner backward passes.
  at::Tensor checkpointed_loss(ModelUnderTest& model, int part, const Op& op) const {
    Net& net = *model.net;
    // A checkpoint by hand takes part in the backward pass only if its input needs a gradient.
    const at::Tensor x = input(part, op.number).clone().requires_grad_();
    if (op.what.ends_with("the model checkpointed by hand")) {
      const at::Tensor zero = at::zeros({}, x.options()).requires_grad_();
      const Step first = [&net, x](const at::Tensor& z) { return net(x).square().mean() + z; };
      const Step second = [&net, x](const at::Tensor& z) { return net(x * 2).square().mean() + z; };
      return by_hand(zero, first) + by_hand(zero, second);
    }
    return loss_of(net, x, [&net, op](at::Tensor y) {
      for (size_t i = 0; i < net.blocks.size(); ++i) {
        const Step call = [block = net.blocks[i]](const at::Tensor& in) { return (*block)(in); };
        const bool chosen = static_cast<int>(i) == op.number % 3;
        if (op.what.ends_with("blocks checkpointed by hand")) {
          y = by_hand(y, call);
        } else if (op.what.ends_with("by hand and plainly") && chosen) {
          y = by_hand(call(by_hand(y, call)), call);
        } else if (op.what.ends_with("implicit layer") && chosen) {
          y = implicit_layer(*net.blocks[i], y);
        } else {
          y = call(y);
        }
      }
      return y;
    });
  }

  // Returns the loss of `net`. Its forward calls the function `rows` instead of its blocks.
  static at::Tensor loss_of(Net& net, const at::Tensor& x, const Step& rows) {
    net.set_forward([&net, rows](Module&, const at::Tensor& in) { return rows(in) * net.scale; });
    const at::Tensor loss = net(x).square().mean();
    net.set_forward(nullptr);
    return loss;
  }

  // Returns a loss of `model`. In the backward pass of this loss, a hook computes a loss of the
  // program's last model, and the gradient of that loss. The last model can be `model` itself.
  at::Tensor guided_loss(ModelUnderTest& model, int part, const Op& op) const {
    Net& guide = *models_.back()->net;
    const at::Tensor y = (*model.net)(input(part, op.number));
    y.register_hook([&guide, x = input(part, op.number + 1), op](const at::Tensor& gradient) {
      const at::AutoGradMode with_gradients(true);
      const at::Tensor in = x.clone().requires_grad_();
      const at::Tensor out = guide(in).square().mean();
      if (op.what.starts_with("backward with a gradient"))
        return gradient * torch::autograd::grad({out}, {in})[0];
      out.backward();
      return gradient * in.grad();
    });
    return y.square().mean();
  }

  // Observes a value that the program reads for part `part`, which is the microbatch of one rank.
  void read(const std::string& what, int part, const at::Tensor& value) {
    rank_.observe(what + " of part " + std::to_string(part) + ", operation " + std::to_string(at_),
                  value.detach());
  }

  void play(const Op& op, ModelUnderTest& model) {
    const auto has = [&](const char* part) { return op.what.find(part) != std::string::npos; };
    if (const Habit* habit = habit_named(op.what)) {
      play_habit(*habit, model);
    } else if (has("forward with") || has("evaluate") || has("throw in forward")) {
      play_forward(op, model);
    } else if (has("backward") || op.what == "two forwards") {
      play_backward(op, model);
    } else if (has("grad") || op.what == "clip") {
      play_gradient(op, model);
    } else if (has("optimizer") || op.what == "step" || op.what == "new rate") {
      play_optimizer(op, model);
    } else {
      play_values(op, model);
    }
  }

  static void play_habit(const Habit& habit, ModelUnderTest& model) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& leaf : model.leaves)
      if (!habit.of_gradient || leaf.grad().defined()) habit.change(leaf);
  }

  void play_forward(const Op& op, ModelUnderTest& model) {
    auto& block = *model.net->blocks[op.number % 3];
    block.throws = op.what == "throw in forward";
    block.throws_in_hook = op.what == "throw in forward hook";
    const bool throws = block.throws || block.throws_in_hook;
    const at::AutoGradMode mode(throws ? op.number % 2 == 1 : op.what == "forward with gradients");
    std::optional<c10::InferenceMode> inference;
    if (op.what == "evaluate in inference mode") inference.emplace();
    model.for_each_part([&](int part) {
      try {
        read("loss", part, loss(model, part, op.number));
      } catch (const std::domain_error&) {
      }
    });
    block.throws = block.throws_in_hook = false;
  }

  // Runs a backward pass of each part's loss. `models` are the models that the loss depends on.
  using Loss = std::function<at::Tensor(int part)>;
  void backward(const std::vector<ModelUnderTest*>& models, const Loss& loss, bool sync = true) {
    for (ModelUnderTest* model : models)
      model->begin_backward(sync);
    models[0]->for_each_part([&](int part) {
      for (ModelUnderTest* model : models)
        model->begin_part(part);
      loss(part).backward();
      for (ModelUnderTest* model : models)
        model->end_part(part);
    });
    for (ModelUnderTest* model : models)
      model->end_backward(sync);
  }

  void play_backward(const Op& op, ModelUnderTest& model) {
    const auto plain = [&](int part) { return loss(model, part, op.number); };
    const auto next = [&](int part) { return loss(model, part, op.number + 1); };
    if (op.what == "backward through both") {
      std::vector<ModelUnderTest*> all;
      for (const auto& one : models_)
        all.push_back(one.get());
      backward(all, [&](int part) { return loss(model, part, op.number, all.size() > 1); });
    } else if (op.what == "throw in backward") {
      bool& throws = model.net->blocks[op.number % 3]->throws_in_backward;
      throws = true;
      try {
        backward({&model}, plain);
      } catch (const std::domain_error&) {
        model.lost_gradients();
      }
      throws = false;
    } else if (op.what == "late backward") {
      const auto late = [&](int part) {
        const at::Tensor before = plain(part);
        const at::NoGradGuard no_grad;
        next(part);
        return before;
      };
      backward({&model}, late);
    } else if (op.what == "two forwards") {
      backward({&model}, [&](int part) { return plain(part) + next(part); });
    } else if (op.what.find("in a hook") != std::string::npos) {
      std::vector<ModelUnderTest*> all{&model};
      if (models_.back().get() != &model && op.what.find("a backward") != std::string::npos)
        all.push_back(models_.back().get());
      backward(all, [&](int part) { return guided_loss(model, part, op); });
    } else if (op.what.find("by hand") != std::string::npos ||
               op.what.ends_with("implicit layer")) {
      backward(
          {&model}, [&](int part) { return checkpointed_loss(model, part, op); },
          op.what.find("no_sync") == std::string::npos);
    } else {
      backward({&model}, plain, op.what == "backward");
    }
  }

  void play_gradient(const Op& op, ModelUnderTest& model) {
    if (op.what == "optimizer.zero_grad") {
      model.optimizer->zero_grad();
      model.dropped_gradients();
    } else if (op.what == "net.zero_grad") {
      model.net->zero_grad();
      model.dropped_gradients();
    } else if (op.what == "model.zero_grad") {
      model.zero_grad();
      model.dropped_gradients();
    } else if (op.what == "reset .grad of the module") {
      for (at::Tensor& parameter : model.net->parameters())
        parameter.mutable_grad().reset();
      model.dropped_gradients();
    } else if (op.what == "optimizer.zero_grad to zeros") {
      model.optimizer->zero_grad(/*set_to_none=*/false);
    } else if (op.what == "autograd::grad of the input") {
      model.for_each_part([&](int part) {
        const at::Tensor x = input(part, op.number).clone();
        x.requires_grad_();
        const at::Tensor out = (*model.net)(x).square().mean();
        read("gradient", part, torch::autograd::grad({out}, {x}).at(0));
      });
    } else if (op.what == "torch's clip_grad_norm_") {
      const double norm = torch::nn::utils::clip_grad_norm_(model.leaves, 0.1, 1 + op.number % 3);
      rank_.observe("torch's norm " + std::to_string(at_), norm);
    } else if (op.what == "clip") {
      for (const double type : {std::numeric_limits<double>::infinity(), 3., 2., 1.})
        rank_.observe(std::to_string(type) + "-norm " + std::to_string(at_), model.clip(type));
    } else {
      // After a call of the module, the library treats the first reset of .grad of its parameters
      // as zero_grad(). So the module is called first.
      if (op.what == "write .grad") play_forward({"evaluate", op.model, op.number}, model);
      for (const at::Tensor& leaf : model.leaves) {
        if (op.what == "write .grad")
          leaf.mutable_grad() = leaf.detach().sign();
        else if (leaf.grad().defined())
          leaf.grad().mul_(0.5);
      }
      if (op.what == "write .grad") model.dropped_gradients();
    }
  }

  void play_optimizer(const Op& op, ModelUnderTest& model) {
    if (op.what == "step") {
      model.optimizer->step();
    } else if (op.what == "new rate") {
      model.optimizer->param_groups()[0].options().set_lr(0.01 * (1 + op.number));
    } else if (op.what == "save optimizer") {
      model.save_optimizer();
      has_saved_optimizer_[op.model] = true;
    } else if (has_saved_optimizer_[op.model]) {
      model.load_optimizer();
    }
  }

  void play_values(const Op& op, ModelUnderTest& model) {
    const at::NoGradGuard no_grad;
    auto& leaves = model.leaves;
    const auto one = static_cast<size_t>(op.number) % leaves.size();
    if (op.what == "halve one data()") {
      leaves[one].data().mul_(0.5);
    } else if (op.what == "vector_to_parameters") {
      torch::nn::utils::vector_to_parameters(torch::nn::utils::parameters_to_vector(leaves) * 0.5,
                                             leaves);
    } else if (op.what == "summon and write") {
      model.summon([&] { model.net->blocks[op.number % 3]->linear->weight.mul_(0.75); });
    } else if (op.what == "save") {
      model.saved = model.state();
    } else if (op.what == "load") {
      if (!model.saved.empty()) model.load(model.saved);
    } else if (op.what == "freeze" || op.what == "freeze in module" || op.what == "unfreeze") {
      model.optimizer->zero_grad();
      model.dropped_gradients();
      // Unfreezes both the leaf and the module's parameter. If only one of them were unfrozen, the
      // model could not know which of the two was changed last.
      if (op.what != "freeze in module") leaves[one].set_requires_grad(op.what == "unfreeze");
      if (op.what != "freeze")
        model.net->parameters()[one].set_requires_grad(op.what == "unfreeze");
    } else {
      play_leaves(op, model);
    }
  }

  static void play_leaves(const Op& op, ModelUnderTest& model) {
    for (size_t i = 0; i < model.leaves.size(); ++i) {
      at::Tensor& leaf = model.leaves[i];
      if (op.what == "halve data()") {
        leaf.data().mul_(0.5);
      } else if (op.what == "halve detach()") {
        leaf.detach().mul_(0.5);
      } else if (op.what == "set_data") {
        leaf.set_data(leaf.detach() * 0.5);
      } else if (op.what == "average") {
        model.average.resize(model.leaves.size());
        at::Tensor& average = model.average[i];
        average = average.defined() ? average * 0.5 + leaf.detach() * 0.5 : leaf.detach().clone();
      } else if (op.what == "put the average back" && !model.average.empty()) {
        leaf.data().copy_(model.average[i]);
      }
    }
  }

  TestRank& rank_;
  const RandomProgram& program_;
  Models models_;
  std::map<int, bool> has_saved_optimizer_;
  size_t at_{};
};

using MakePlayer = std::unique_ptr<ModelUnderTest> (*)(TestRank& rank, const RandomProgram& program,
                                                       int model);

void play(TestRank& rank, const RandomProgram& program, MakePlayer make) {
  if (program.cuda) gpu::use_gpu_of(rank.rank());
  Models models;
  for (int model = 0; model < program.models; ++model)
    models.push_back(make(rank, program, model));
  Run(rank, program, std::move(models)).play();
}

}  // namespace

std::string first_difference(const RandomProgram& program) {
  RunOptions options{.backend = program.gloo && !program.cuda ? "gloo" : "auto", .record = false};
  if (program.cuda) options.device = c10::kCUDA, options.timeout = std::chrono::seconds(20);
  const RankRun expected = try_ranks(
      1, [&](TestRank& rank) { play(rank, program, model_in_one_process); }, options);
  if (!expected.failure().empty()) return "in one process: " + expected.failure();
  const RankRun run = try_ranks(
      program.world, [&](TestRank& rank) { play(rank, program, model_on_rank); }, options);
  if (!run.failure().empty()) return run.failure();
  for (int rank = 0; rank < program.world; ++rank) {
    const std::string on_rank = " on rank " + std::to_string(rank);
    const bool refused = run.observed(rank, "refused");
    const auto refusal = [&] {
      return refused ? "operation " + run.at(rank, "refused").dump() +
                           " was refused: " + run.at(rank, "refusal").dump()
                     : std::string("nothing was refused");
    };
    if (refused != expected.observed(0, "refused")) return refusal() + on_rank;
    if (refused && run.at(rank, "refused") != expected.at(0, "refused")) return refusal() + on_rank;
    for (const std::string& name : run.names(rank)) {
      if (name.starts_with("refus")) continue;
      if (!expected.observed(0, name)) return name + on_rank + " is not expected";
      if (run.at(rank, name) != expected.at(0, name))
        return name + on_rank + " is " + run.at(rank, name).dump().substr(0, 200) +
               "; in one process it is " + expected.at(0, name).dump().substr(0, 200);
    }
  }
  return "";
}

}  // namespace fsdp
