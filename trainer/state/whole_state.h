#pragma once

#include <comm/communicator.h>
#include <state/model_state.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// The state of a model over all ranks. If several ranks have a range, the lowest of these ranks
// owns it, so every element has one owner in every mode. In ddp, rank 0 owns all elements.
class WholeState {
 public:
  // Collective. The ranks tell each other which ranges they have. Throws std::logic_error on every
  // rank unless the different ranges of all ranks cover each element of each parameter exactly
  // once.
  WholeState(ModelState state, Communicator& comm);

  const std::vector<ModelState::Parameter>& parameters() const { return state_.parameters; }
  std::vector<StateRange> owned() const;  // the ranges that this rank owns
  at::ScalarType dtype(const std::string& parameter, StateKind kind) const;
  bool has(size_t parameter, StateKind kind) const;

  // Collective; one broadcast for each range that rank 0 does not own. On rank 0, calls `visit`
  // with the tensor of this kind of the parameter, on the CPU:
  // - The tensor comes in the ranges [n] of its owners, one after the other in the order of the
  //   elements.
  // - A step count [1] comes once, for all ranges.
  // So rank 0 never holds more than one range of another rank.
  using Visitor = std::function<void(const at::Tensor& elements)>;
  void visit(size_t parameter, StateKind kind, const Visitor& visit) const;

 private:
  struct Owner {
    int rank;
    size_t range;  // index of the range in ModelState::ranges on rank `rank`
    int64_t begin, end;
    // For each kind of tensor: whether `rank` has a tensor of this kind for the range.
    std::array<bool, kStateKinds.size()> has;
  };
  void check() const;

  ModelState state_;
  Communicator& comm_;
  std::vector<std::vector<Owner>> owners_;  // for each parameter, the owners of its ranges
};

// Collective. Returns the SHA-256 of the whole state on rank 0, and "" on the other ranks. The hash
// covers, for one parameter after another, the values, the two moments and the step count, as
// little-endian fp32. It depends neither on the ranks nor on the mode.
std::string state_sha256(ModelState state, Communicator& comm);

}  // namespace fsdp
