#pragma once

#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <set>
#include <string>

namespace fsdp {

// Counts the operators of ATen that run on this thread while this object lives. Only one such
// object may live at a time. The count approximates the operators for which a GPU launches kernels:
// - An operator that another one calls is not counted, because for the CPU it is a part of the
//   outer operator's work. Operators that only choose what to call (kLookedInto) are transparent:
//   the operators that they call are counted instead.
// - Views, and operators that allocate memory without values, are not counted.
class OperatorCalls {
 public:
  OperatorCalls()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&enter, &leave).scopes({at::RecordScope::FUNCTION}))) {
    counts().clear();
    depth() = 0;
  }
  ~OperatorCalls() { at::removeCallback(handle_); }
  OperatorCalls(const OperatorCalls&) = delete;

  // Returns for each operator ("add_", without "aten::") the number of its calls so far.
  static std::map<std::string, int> so_far() { return counts(); }

 private:
  // The counts are static, because a callback of at::RecordFunction is a plain function.
  static std::map<std::string, int>& counts() {
    thread_local std::map<std::string, int> counts;
    return counts;
  }
  static int& depth() {
    thread_local int depth = 0;
    return depth;
  }

  // Returns the name of the operator without "aten::"; empty for a transparent operator and for a
  // function that is not an operator of ATen.
  static std::string name_of(const at::RecordFunction& function) {
    static const std::string kSpace = "aten::";
    static const std::set<std::string> kLookedInto{
        "contiguous", "cross_entropy_loss", "flatten", "linear", "reshape", "stack", "to", "zeros"};
    const std::string name = function.name();
    if (!name.starts_with(kSpace)) return "";
    const std::string own = name.substr(kSpace.size());
    return kLookedInto.contains(own) ? "" : own;
  }

  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
    static const std::set<std::string> kWithoutKernels{
        "as_strided", "detach",    "empty", "empty_like", "empty_strided", "expand",
        "narrow",     "select",    "slice", "t",          "transpose",     "unbind",
        "unflatten",  "unsqueeze", "view",  "alias",      "view_as"};
    const std::string name = name_of(function);
    if (!name.empty() && depth()++ == 0 && !kWithoutKernels.contains(name)) ++counts()[name];
    return nullptr;
  }
  static void leave(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
    if (!name_of(function).empty()) --depth();
  }

  at::CallbackHandle handle_;
};

}  // namespace fsdp
