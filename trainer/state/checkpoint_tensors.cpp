#include <state/checkpoint_folder.h>
#include <state/checkpoint_tensors.h>

#include <cstdio>

namespace fsdp {
namespace {

// Hugging Face's transformers requires this entry in the metadata of a safetensors file.
const SafetensorsMetadata kMetadata{{"format", "pt"}};

void pass_own_ranges(const WholeState& state, const Communicator& comm, const OpenSink& open) {
  TensorFile file;
  std::vector<at::Tensor> tensors;
  if (comm.rank() != comm.global_rank()) return;
  for (const StateRange& range : state.owned()) {
    for (const StateKind kind : kStateKinds) {
      const at::Tensor& tensor = tensor_of(range, kind);
      if (!tensor.defined()) continue;
      file.entries.push_back({TensorName{range.parameter, kind, {{range.begin, range.end}}}.text(),
                              state.dtype(range.parameter, kind), tensor.sizes().vec()});
      tensors.push_back(tensor);
    }
  }
  if (tensors.empty()) return;
  char name[64];
  std::snprintf(name, sizeof name, "rank-%04d-of-%04d.safetensors", comm.rank(), comm.world_size());
  file.name = name;
  const auto sink = open(file);
  for (const at::Tensor& tensor : tensors)
    sink->write(tensor.cpu());
  sink->close();
}

// Runs actions until one of them throws, keeps this exception, and skips all later actions. So a
// rank that failed can still make the collective calls for which the other ranks wait.
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
  std::exception_ptr get() const { return failure_; }

 private:
  std::exception_ptr failure_;
};

// Collective. On rank 0, opens the file `name` and passes to its sink the whole tensors of these
// `kinds` of each parameter. If `open` or the sink throws, `failure` keeps the exception, and this
// function still makes all its collective calls.
void pass_whole(const std::string& name, const std::vector<StateKind>& kinds,
                const WholeState& state, const Communicator& comm, const OpenSink& open,
                FirstFailure& failure) {
  const auto each = [&](const std::function<void(size_t, StateKind)>& action) {
    for (size_t i = 0; i < state.parameters().size(); ++i)
      for (const StateKind kind : kinds)
        if (state.has(i, kind)) action(i, kind);
  };
  TensorFile file{name, {}, kMetadata};
  each([&](size_t i, StateKind kind) {
    const auto& [name, sizes, dtype] = state.parameters()[i];
    file.entries.push_back({TensorName{name, kind, {}}.text(), state.dtype(name, kind),
                            kind == StateKind::step ? std::vector<int64_t>() : sizes});
  });
  if (file.entries.empty()) return;
  const auto on_rank_0 = [&](const std::function<void()>& action) {
    if (comm.global_rank() == 0) failure.guard(action);
  };
  std::unique_ptr<TensorSink> sink;
  on_rank_0([&] { sink = open(file); });
  each([&](size_t i, StateKind kind) {
    state.visit(i, kind,
                [&](const at::Tensor& elements) { on_rank_0([&] { sink->write(elements); }); });
  });
  on_rank_0([&] { sink->close(); });
}

}  // namespace

std::exception_ptr pass_tensors(CheckpointFormat format, const WholeState& state,
                                const Communicator& comm, const OpenSink& open) {
  FirstFailure failure;
  if (format == CheckpointFormat::sharded) {
    failure.guard([&] { pass_own_ranges(state, comm, open); });
  } else {
    pass_whole("model.safetensors", {StateKind::parameter}, state, comm, open, failure);
    pass_whole("optimizer.safetensors",
               {StateKind::exp_avg, StateKind::exp_avg_sq, StateKind::step}, state, comm, open,
               failure);
  }
  return failure.get();
}

}  // namespace fsdp
