#include <agreement/agreement.h>
#include <c10/util/ScopeExit.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <state/safetensors.h>
#include <state/saved_tensors.h>
#include <state/whole_state.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Files = std::vector<SavedFile>;

const SafetensorsMetadata kMetadata{{"format", "pt"}};  // Hugging Face's transformers requires it

SavedFile closed(SafetensorsWriter& writer, const std::string& name) {
  writer.close();
  return {name, writer.size(), writer.sha256()};
}

// Saves the ranges that this rank owns in one file. Saves none if it owns no range, or if the rank
// is not in the first replica.
Files save_own_ranges(const std::string& folder, const WholeState& state,
                      const Communicator& comm) {
  std::vector<SafetensorsEntry> entries;
  std::vector<at::Tensor> tensors;
  if (comm.rank() != comm.global_rank()) return {};
  for (const StateRange& range : state.owned()) {
    for (const StateKind kind : kStateKinds) {
      const at::Tensor& tensor = tensor_of(range, kind);
      if (!tensor.defined()) continue;
      entries.push_back({TensorName{range.parameter, kind, {{range.begin, range.end}}}.text(),
                         state.dtype(range.parameter, kind), tensor.sizes().vec()});
      tensors.push_back(tensor);
    }
  }
  if (entries.empty()) return {};
  char name[64];
  std::snprintf(name, sizeof name, "rank-%04d-of-%04d.safetensors", comm.rank(), comm.world_size());
  SafetensorsWriter writer(folder + '/' + name, entries);
  for (const at::Tensor& tensor : tensors)
    writer.write(tensor.cpu());
  return {closed(writer, name)};
}

// Keeps the first exception of its actions, after which it runs no other action. So a rank that
// failed still makes the collective calls that the other ranks wait for.
class FirstFailure {
 public:
  void guard(const std::function<void()>& action) {
    if (failure_) return;
    try {
      action();
    } catch (const std::exception&) {
      failure_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
};

// Collective. Saves the tensors of these kinds of each parameter, whole, in one file, which rank 0
// writes. Rank 0 runs its actions in `failure`.
Files save_whole(const std::string& folder, const std::string& name,
                 const std::vector<StateKind>& kinds, const WholeState& state,
                 const Communicator& comm, FirstFailure& failure) {
  const auto each = [&](const std::function<void(size_t, StateKind)>& action) {
    for (size_t i = 0; i < state.parameters().size(); ++i)
      for (const StateKind kind : kinds)
        if (state.has(i, kind)) action(i, kind);
  };
  std::vector<SafetensorsEntry> entries;
  each([&](size_t i, StateKind kind) {
    const auto& [name, sizes, dtype] = state.parameters()[i];
    entries.push_back({TensorName{name, kind, {}}.text(), state.dtype(name, kind),
                       kind == StateKind::step ? std::vector<int64_t>() : sizes});
  });
  if (entries.empty()) return {};
  std::optional<SafetensorsWriter> writer;
  if (comm.global_rank() == 0)
    failure.guard([&] { writer.emplace(folder + '/' + name, entries, kMetadata); });
  each([&](size_t i, StateKind kind) {
    state.visit(i, kind, [&](const at::Tensor& elements) {
      if (comm.global_rank() == 0) failure.guard([&] { writer->write(elements); });
    });
  });
  Files files;
  if (comm.global_rank() == 0) failure.guard([&] { files = {closed(*writer, name)}; });
  return files;
}

Files save_files(const std::string& folder, CheckpointFormat format, const WholeState& state,
                 Communicator& comm) {
  FirstFailure failure;
  Files own;
  if (format == CheckpointFormat::sharded) {
    failure.guard([&] { own = save_own_ranges(folder, state, comm); });
  } else {
    own = save_whole(folder, "model.safetensors", {StateKind::parameter}, state, comm, failure);
    const Files optimizer = save_whole(folder, "optimizer.safetensors",
                                       {StateKind::exp_avg, StateKind::exp_avg_sq, StateKind::step},
                                       state, comm, failure);
    own.insert(own.end(), optimizer.begin(), optimizer.end());
  }
  Files all;
  for (const std::string& files : agreed_texts(comm, [&] {
         failure.rethrow();
         return Json(own).dump();
       })) {
    for (const auto& file : Json::parse(files))
      all.push_back(file.get<SavedFile>());
  }
  return all;
}

Json parameters_json(const WholeState& state) {
  Json parameters = Json::array();
  for (const auto& [name, sizes, dtype] : state.parameters()) {
    if (TensorName::parse(name).parameter != name)
      throw std::runtime_error(
          "the parameter " + name +
          " can't be saved: its name ends like that of an optimizer state or a range; rename it");
    parameters.push_back({{"name", name}, {"shape", sizes}});
  }
  return parameters;
}

}  // namespace

void save_checkpoint(const std::string& directory, CheckpointFormat format, int64_t step,
                     const Json& run, ModelState state, Communicator& comm) {
  const CallerScope caller("save_checkpoint()");
  const std::string folder = step_folder(directory, step), unfinished = folder + kUnfinished;
  const WholeState whole(std::move(state), comm);
  agree_on_rank_0(comm, [&] {
    if (fs::exists(folder)) throw std::runtime_error(folder + ": is there already");
    fs::remove_all(unfinished);
    fs::create_directories(unfinished);
  });
  // Removes the files if the save fails; otherwise they would take the room of the next checkpoint.
  bool complete = false;
  const auto remove = c10::make_scope_exit([&] {
    std::error_code none;
    if (!complete && comm.global_rank() == 0) fs::remove_all(unfinished, none);
  });
  const Files files = save_files(unfinished, format, whole, comm);
  agree_on_rank_0(comm, [&] {
    write_description(unfinished,
                      {{"format", "fsdp checkpoint"},
                       {"version", kCheckpointVersion},
                       {"step", step},
                       {"run", run},
                       {"parameters", parameters_json(whole)}},
                      files);
    fs::rename(unfinished, folder);
    sync_folder(directory);
  });
  complete = true;
}

void load_checkpoint(const std::string& folder, const ModelState& state, const Locate& locate,
                     Communicator& comm) {
  const CallerScope caller("load_checkpoint()");
  const at::NoGradGuard no_grad;
  std::unique_ptr<SavedTensors> saved;
  const auto each = [&](const std::function<void(const StateRange&, StateKind)>& action) {
    for (const StateRange& range : state.ranges)
      for (const StateKind kind : kStateKinds)
        if (tensor_of(range, kind).defined()) action(range, kind);
  };
  agree_on(comm, [&] {
    const Description description = read_description(folder);
    // Each rank hashes its part of the files before any of their content is used.
    for (auto i = static_cast<size_t>(comm.rank()); i < description.files.size();
         i += static_cast<size_t>(comm.world_size()))
      check_file(folder, description.files[i]);
  });
  agree_on(comm, [&] {
    const Description description = read_description(folder);
    saved = std::make_unique<SavedTensors>(folder, description, state.parameters, locate);
    each([&](const StateRange& range, StateKind kind) { saved->check(range, kind); });
  });
  agree_on(comm, [&] {
    each([&](const StateRange& range, StateKind kind) { saved->read(range, kind); });
  });
}

}  // namespace fsdp
