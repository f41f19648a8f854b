#include <base/todo.h>
#include <diff/hash_recorder.h>
#include <digest/bit_hash.h>
#include <torch/csrc/autograd/graph_task.h>
#include <watch/watch.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

template <typename Word>
std::span<const Word> words_of(const at::Tensor& tensor) {
  return {static_cast<const Word*>(tensor.const_data_ptr()), tensor.nbytes() / sizeof(Word)};
}

// Returns whether the storage of `tensor` has all its elements. The parameters of a unit that is
// not unsharded have no storage.
bool has_storage(const at::Tensor& tensor) {
  const auto end = static_cast<size_t>(tensor.storage_offset() + tensor.numel());
  return tensor.storage().nbytes() >= end * tensor.element_size();
}

}  // namespace

uint64_t bit_hash(const at::Tensor& tensor, int64_t begin) {
  const at::Tensor whole = tensor.detach().to(at::kCPU).contiguous();
  if (whole.element_size() == 2) return bit_hash(words_of<uint16_t>(whole), begin);
  if (whole.element_size() == 4) return bit_hash(words_of<uint32_t>(whole), begin);
  return bit_hash(words_of<uint32_t>(whole.to(at::kDouble)), 2 * begin);
}

HashRecorder::HashRecorder(const TrainConfig& config, const ShardLayout& layout,
                           nlohmann::ordered_json settings, int rank, const std::string& folder,
                           Select select)
    : path_(folder.empty() ? "" : folder + "/rank." + std::to_string(rank)),
      select_(std::move(select)),
      rank_(rank),
      last_step_(config.end_step() - 1),
      first_replica_(rank < (config.ranks.mode == Mode::ddp ? 1 : config.shards())) {
  // An error here is ignored: if the folder can't be made, file_.open() fails too, and write()
  // reports the reason.
  std::error_code unknown;
  if (!folder.empty()) std::filesystem::create_directories(folder, unknown);
  if (!path_.empty()) file_.open(path_);
  if (!config.reports.captured_event.empty())
    capture_ = nlohmann::json::parse(config.reports.captured_event).get<EventKey>();
  for (const auto& unit : layout.units)
    units_.insert(unit.name);
  for (const auto& parameter : layout.parameters)
    places_.emplace(parameter.name, places_.size());
  settings.update({{"first_step", config.checkpoint.first_step}, {"steps", config.training.steps}});
  write({{"processes", config.ranks.mode == Mode::single ? 1 : config.ranks.world},
         {"settings", settings}});
}

Workload HashRecorder::observed(const Workload& workload) {
  return {workload.build,
          [this, loss_of = workload.loss](Module& model, int part, int parts, int64_t step) {
            if (!std::exchange(hooked_, true)) hook(model);
            if (std::exchange(step_, step) != step) calls_.clear();
            part_ = part;
            events_ = 0;
            times_.clear();
            in_forward_ = true;
            const at::Tensor loss = loss_of(model, part, parts, step);
            in_forward_ = false;
            add_of_part(TensorKind::loss, "", loss);
            if (loss.requires_grad())
              loss.register_hook([this](const at::Tensor&) {
                pass_ = torch::autograd::get_current_graph_task_id();
              });
            return loss;
          }};
}

void HashRecorder::hook(Module& model) {
  for (const auto& named : model.named_modules()) {
    auto* module = dynamic_cast<Module*>(named.value().get());
    if (module == nullptr) continue;
    const std::string name = named.key().empty() ? "root" : named.key();
    module->register_forward_pre_hook([this, name](Module& self, const at::Tensor&) {
      for (const auto& parameter : self.named_parameters(/*recurse=*/false)) {
        const std::string whole = name == "root" ? parameter.key() : name + '.' + parameter.key();
        // A tied parameter is recorded only under its first name.
        if (in_forward_ && places_.contains(whole))
          add_of_part(TensorKind::gathered, whole, parameter.value());
      }
      return at::Tensor();
    });
    // The output of the root is not recorded: the next event is the loss, whose hash shows any
    // difference in this output.
    if (name == "root") continue;
    module->register_forward_hook([this, name](Module&, const at::Tensor& output) {
      if (in_forward_) add_of_part(TensorKind::output, name, output);
      return at::Tensor();
    });
  }
  for (const auto& [name, tensor] : distinct_parameters(model)) {
    sizes_[name] = tensor.sizes().vec();
    if (!tensor.requires_grad()) continue;
    tensor.register_hook([this, name = name](const at::Tensor& gradient) {
      // Ignores a nested backward pass, such as that of recomputed activations: the gradient
      // arrives again in the outer backward pass.
      if (torch::autograd::get_current_graph_task_id() == pass_)
        add_of_part(TensorKind::part, name, gradient);
    });
  }
}

void HashRecorder::add_of_part(TensorKind what, std::string name, const at::Tensor& tensor) {
  EventKey key{step_, part_, what, std::move(name)};
  if (const int times = ++times_[key]; times > 1) key.name += " (" + std::to_string(times) + ')';
  add(key, events_++, tensor);
}

void HashRecorder::record(TensorKind what, int64_t step, Strategy& strategy) {
  if (!first_replica_) return;
  const bool gradients = what == TensorKind::reduced || what == TensorKind::clipped;
  for (const auto& [parameter, begin, value, gradient] : strategy.owned())
    add({step, -1, what, parameter}, places_[parameter], gradients ? gradient : value, begin);
  if (what != TensorKind::updated || step != last_step_) return;
  try {
    for (const StateRange& range : strategy.state().ranges) {
      const int64_t place = places_[range.parameter];
      add({step, -1, TensorKind::m, range.parameter}, place, range.exp_avg, range.begin);
      add({step, -1, TensorKind::v, range.parameter}, place, range.exp_avg_sq, range.begin);
    }
  } catch (const NotStarted&) {
  }
}

void HashRecorder::record_norm(int64_t step, double norm) {
  if (rank_ == 0) add({step, -1, TensorKind::norm, ""}, 0, at::full({1}, norm, at::kDouble));
}

std::string HashRecorder::unit_of(std::string name) const {
  while (!units_.contains(name)) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) return "root";
    name.resize(dot);
  }
  return name;
}

bool HashRecorder::captured(const EventKey& key) const {
  if (!capture_) return false;
  const bool leads_to_it = key.step == capture_->step && key.name == capture_->name &&
                           key.what >= TensorKind::part && key.what < capture_->what;
  return key == *capture_ || leads_to_it;
}

void HashRecorder::add(const EventKey& key, int64_t place, const at::Tensor& tensor,
                       int64_t begin) {
  if (!tensor.defined() || (select_ && !select_(key))) return;
  const bool there = has_storage(tensor);
  nlohmann::json line = key;
  line.update(nlohmann::json(EventHash{
      place, unit_of(key.name), there ? bit_hash(tensor, begin) : 0, there ? tensor.numel() : 0}));
  if (there && captured(key)) line.update(values_of(key.name, tensor, begin));
  write(line);
  if (!capture_ || capture_->name != key.name) return;
  const std::string observation = place_of(key, unit_of(key.name));
  if (there) {
    watch::observed(observation, tensor);
  } else {
    watch::observed(observation, nullptr);
  }
}

nlohmann::json HashRecorder::values_of(const std::string& name, const at::Tensor& tensor,
                                       int64_t begin) const {
  const at::Tensor all = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* numbers = all.const_data_ptr<double>();
  std::string text;
  // `text` names the last two collectives of the unit of `name`. If the unit has issued none, as in
  // ddp, `text` names the last collective of any unit.
  int count = 0;
  for (const bool any : {false, true})
    for (auto call = calls_.rbegin(); call != calls_.rend() && count < (any ? 1 : 2); ++call)
      if (any || call->unit == unit_of(name))
        text += (count++ > 0 ? " and #" : ", after #") + std::to_string(call->sequence) + ' ' +
                call->text();
  return {{"rank", rank_},
          {"begin", begin},
          {"sizes", sizes_.contains(name) ? sizes_.at(name) : tensor.sizes().vec()},
          {"values", std::vector<double>(numbers, numbers + all.numel())},
          {"calls", text}};
}

void HashRecorder::write(const nlohmann::json& line) {
  if (path_.empty()) return;
  // Each line is flushed to the file of hashes at once, because the rank may be killed later.
  file_ << line.dump() << '\n' << std::flush;
  if (!file_) throw std::runtime_error(path_ + ": can't be written: " + std::strerror(errno));
}

void HashRecorder::issued(const Call& call, const at::Tensor&) {
  if (capture_ && !(call.unit == kMetrics)) calls_.push_back(call);
}

}  // namespace fsdp
