#include <state/agreement.h>
#include <state/checkpoint.h>
#include <state/saved_tensors.h>

#include <functional>
#include <memory>

namespace fsdp {

void load_checkpoint(const std::string& folder, const ModelState& state, const Locate& locate,
                     Communicator& comm) {
  const Purpose purpose("load_checkpoint()");
  const at::NoGradGuard no_grad;
  std::unique_ptr<SavedTensors> saved;
  const auto each = [&](const std::function<void(const StateRange&, StateKind)>& action) {
    for (const StateRange& range : state.ranges)
      for (const StateKind kind : kStateKinds)
        if (tensor_of(range, kind).defined()) action(range, kind);
  };
  agree_on(comm, [&] {
    const Description description = read_description(folder);
    saved = std::make_unique<SavedTensors>(folder, description, state.parameters, locate);
    each([&](const StateRange& range, StateKind kind) { saved->check(range, kind); });
    // Each rank reads its part of the files to the end.
    for (auto i = static_cast<size_t>(comm.rank()); i < description.files.size();
         i += static_cast<size_t>(comm.world_size()))
      saved->check_hash(i);
  });
  agree_on(comm, [&] {
    each([&](const StateRange& range, StateKind kind) { saved->read(range, kind); });
  });
}

}  // namespace fsdp
