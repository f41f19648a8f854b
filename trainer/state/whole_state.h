#pragma once

#include <comm/communicator.h>
#include <state/model_state.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// The state of a model over all ranks. A rank owns those of its ranges that no lower rank has too,
// so every element has one owner, whatever the mode: in ddp rank 0 owns all of them.
class WholeState {
 public:
  // Tells all ranks which ranges each has. All ranks of `comm` call it together. Throws
  // std::logic_error, on every rank, unless the ranges of all ranks cover each parameter.
  WholeState(ModelState state, Communicator& comm);

  const std::vector<ModelState::Parameter>& parameters() const { return state_.parameters; }
  std::vector<StateRange> owned() const;  // by this rank
  at::ScalarType dtype(const std::string& parameter, StateKind kind) const;
  bool has(size_t parameter, StateKind kind) const;

  // On rank 0, calls `visit` with the parameter's tensor of this kind, on the CPU: cut into the
  // owners' ranges [n], in the order of the elements; one step count [1] stands for all ranges. All
  // ranks call it together: one broadcast for each range that rank 0 does not own. So a rank never
  // holds more than one range of another rank.
  using Visitor = std::function<void(const at::Tensor& elements)>;
  void visit(size_t parameter, StateKind kind, const Visitor& visit) const;

 private:
  struct Owner {
    int rank;
    size_t range;  // index into its ranges
    int64_t begin, end;
    bool moments;
  };
  void check() const;

  ModelState state_;
  Communicator& comm_;
  std::vector<std::vector<Owner>> owners_;  // by parameter, in the order of the elements
};

// The SHA-256 of the whole state, on rank 0; empty on the others. It is that of the values, the two
// moments and the step count of one parameter after another, fp32 little-endian. It depends on
// neither the ranks nor the mode. All ranks call it together.
std::string state_sha256(ModelState state, Communicator& comm);

}  // namespace fsdp
