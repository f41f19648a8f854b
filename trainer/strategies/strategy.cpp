#include <config/arrangement.h>
#include <memory/live_bytes.h>
#include <offload/state_file.h>
#include <prediction/schedule.h>
#include <strategies/strategy.h>

#include <numeric>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

const std::string kSums = "sums of gradients that wait";

std::vector<int> parts_of(const Arrangement& arrangement, std::optional<int> rank) {
  std::vector<int> parts(static_cast<size_t>(rank ? arrangement.turns : arrangement.parts()));
  std::iota(parts.begin(), parts.end(), 0);
  if (rank)
    for (int& part : parts)
      part = arrangement.part(*rank, part);
  return parts;
}

// Their sum as the arrangement adds parts, fp64 [1]; of [n] each, [1, n].
at::Tensor sum_of_losses(const std::vector<at::Tensor>& losses, const Arrangement& arrangement) {
  TreeSum sum(arrangement);
  std::vector<at::Tensor> running;
  for (const at::Tensor& loss : losses) {
    if (!running.empty()) sum.put_aside(running);
    running = sum.added({loss.detach().to(at::kDouble)});
  }
  return running[0].unsqueeze(0);
}

}  // namespace

void backward(const at::Tensor& loss, int64_t scale) {
  loss.backward(at::full_like(loss, scale));
}

ModelState state_without_ranges(const std::vector<NamedParameter>& parameters) {
  ModelState state;
  for (const auto& [name, tensor] : parameters)
    state.parameters.push_back({name, tensor.sizes().vec()});
  return state;
}

PartsStrategy::PartsStrategy(const TrainConfig& config, Workload workload, std::optional<int> rank)
    : workload_(std::move(workload)),
      arrangement_(config.arrangement()),
      parts_(parts_of(arrangement_, rank)),
      plays_all_ranks_(!rank),
      offload_dir_(config.offload_dir) {}

at::Tensor PartsStrategy::forward_backward(int64_t step) {
  begin();
  TreeSum sums(plays_all_ranks_ ? arrangement_ : Arrangement{.turns = arrangement_.turns});
  std::vector<at::Tensor> losses;
  for (const int part : parts_) {
    const bool begins = losses.empty() || adds_apart() || sums.puts_aside();
    if (begins && !losses.empty()) {
      auto sum = take_sum();
      sums.put_aside(offload_dir_.empty() ? std::move(sum)
                                          : copies_in_file(offload_dir_, sum, kSums));
    }
    live_bytes::enter(Phase::forward);
    begin_forward();
    losses.push_back(workload_.loss(*model_, part, arrangement_.parts(), step));
    live_bytes::enter(Phase::backward);
    compute_gradients(losses.back(), begins);
    losses.back() = losses.back().detach();
    add(sums);
  }
  end_parts();
  return sum_of(losses);
}

at::Tensor PartsStrategy::evaluate(const PartValue& value) {
  begin();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  for (const int part : parts_)
    values.push_back(value(*model_, part, arrangement_.parts()));
  return sum_of(values);
}

at::Tensor PartsStrategy::sum_of(const std::vector<at::Tensor>& losses) const {
  if (plays_all_ranks_) {  // losses are no gradients: they are added over all ranks at once
    Arrangement all = arrangement_;
    all.shards = all.ranks();
    all.replicas = 1;
    return sum_of_losses(losses, all);
  }
  if (arrangement_.turns_first) return sum_of_losses(losses, {.turns = arrangement_.turns});
  return at::stack(losses).detach().to(at::kDouble);
}

ModelState PartsStrategy::state() {
  ModelState state = state_without_ranges(distinct_parameters(*model_));
  state.ranges = ranges();
  return state;
}

std::vector<Module*> modules_of_units(const torch::nn::Module& root, const ShardLayout& layout) {
  const auto modules = root.named_modules();
  std::vector<Module*> found(layout.units.size(), nullptr);
  for (size_t i = 0; i < found.size(); ++i) {
    const auto& unit = layout.units[i];
    if (unit.root) continue;
    const auto* module = modules.find(unit.name);
    if (module != nullptr) found[i] = dynamic_cast<Module*>(module->get());
    if (found[i] == nullptr) {
      throw std::logic_error("layout: unit " + unit.name +
                             " is not marked as the root's, and no fsdp::Module has this name");
    }
  }
  return found;
}

void note_what_backward_reads(const torch::nn::Module& root, ShardLayout& layout) {
  const auto modules = modules_of_units(root, layout);
  for (size_t unit = 0; unit < modules.size(); ++unit)
    if (modules[unit] != nullptr && !modules[unit]->reads_parameters_in_backward())
      layout.unread_in_backward.insert(unit);
}

TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank) {
  if (config.offload_dir.empty()) return config;
  const Schedule step = schedule(config, layout, rank);
  config.optimizer.moments =
      std::make_shared<StateFile>(config.offload_dir, step.state_file_bytes, config.pinned);
  const NamelessFile room(config.offload_dir, step.put_aside_bytes, kSums);
  return config;
}

}  // namespace fsdp
