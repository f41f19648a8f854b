#include <agreement/agreement.h>
#include <c10/util/ScopeExit.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <state/checkpoint_tensors.h>
#include <state/safetensors.h>
#include <state/saved_tensors.h>
#include <state/unfinished_checkpoint.h>
#include <state/whole_state.h>

#include <functional>
#include <memory>
#include <stdexcept>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

// Writes each tensor that it receives to the file at once, without a copy in memory. When the file
// is complete, adds its name, size and hash to `files`.
class FileSink : public TensorSink {
 public:
  FileSink(const std::string& folder, const TensorFile& file, std::vector<SavedFile>& files)
      : name_(file.name),
        writer_(folder + '/' + name_, file.entries, file.metadata),
        files_(files) {}
  void write(const at::Tensor& elements) override { writer_.write(elements); }
  void close() override {
    writer_.close();
    files_.push_back({name_, writer_.size(), writer_.sha256()});
  }

 private:
  std::string name_;
  SafetensorsWriter writer_;
  std::vector<SavedFile>& files_;
};

std::vector<SavedFile> save_files(const std::string& folder, CheckpointFormat format,
                                  const WholeState& state, Communicator& comm) {
  std::vector<SavedFile> own;
  const auto failure = pass_tensors(format, state, comm, [&](const TensorFile& file) {
    return std::make_unique<FileSink>(folder, file, own);
  });
  return files_of_ranks(comm, [&] {
    if (failure) std::rethrow_exception(failure);
    return own;
  });
}

}  // namespace

void save_checkpoint(const std::string& directory, CheckpointFormat format, int64_t step,
                     const Json& run, ModelState state, Communicator& comm) {
  const CallerScope caller("save_checkpoint()");
  const WholeState whole(std::move(state), comm);
  const UnfinishedCheckpoint checkpoint(directory, step, comm);
  bool complete = false;
  const auto remove = c10::make_scope_exit([&] {
    if (!complete && comm.global_rank() == 0) checkpoint.remove();
  });
  const std::vector<SavedFile> files = save_files(checkpoint.folder(), format, whole, comm);
  agree_on_rank_0(comm,
                  [&] { checkpoint.complete(run, parameters_json(whole.parameters()), files); });
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
    // Each rank checks the size and the hash of some of the files. If a file is damaged, agree_on()
    // throws on every rank, before any rank uses the content of a file.
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
