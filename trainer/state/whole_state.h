#pragma once

#include <comm/communicator.h>
#include <state/model_state.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// The state of a model over all ranks. If several ranks have a range, the lowest of them owns it,
// so every element has one owner in every mode: in ddp rank 0 owns all elements.
class WholeState {
 public:
  // Collective. Exchanges which ranges each rank has. Throws std::logic_error on every rank unless
  // the ranges of all ranks cover each parameter once.
  WholeState(ModelState state, Communicator& comm);

  const std::vector<ModelState::Parameter>& parameters() const { return state_.parameters; }
  std::vector<StateRange> owned() const;  // the ranges that this rank owns
  at::ScalarType dtype(const std::string& parameter, StateKind kind) const;
  bool has(size_t parameter, StateKind kind) const;

  // Collective; one broadcast for each range that rank 0 does not own. On rank 0, calls `visit`
  // with the parameter's tensor of this kind, on the CPU:
  // - cut into the owners' ranges [n], in the order of the elements;
  // - a step count [1] comes once, for all ranges.
  // So a rank never holds more than one range of another rank.
  using Visitor = std::function<void(const at::Tensor& elements)>;
  void visit(size_t parameter, StateKind kind, const Visitor& visit) const;

 private:
  struct Owner {
    int rank;
    size_t range;  // index in the ranges of `rank`
    int64_t begin, end;
    std::array<bool, kStateKinds.size()> has;  // by kind
  };
  void check() const;

  ModelState state_;
  Communicator& comm_;
  std::vector<std::vector<Owner>> owners_;  // by parameter, in the order of the elements
};

// Collective. Returns the SHA-256 of the whole state on rank 0, and "" on the other ranks. The hash
// covers the values, the two moments and the step count of one parameter after another, fp32
// little-endian. It depends on neither the ranks nor the mode.
std::string state_sha256(ModelState state, Communicator& comm);

}  // namespace fsdp
