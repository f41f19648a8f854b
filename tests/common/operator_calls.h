#pragma once

#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <set>
#include <string>

namespace fsdp {

// Counts the operators of ATen that run on this thread while it lives, one at a time. What an
// operator calls inside is not counted, since on a GPU it is a part of the same work for the CPU;
// but those that only choose what to call are looked into. Views and memory without values are left
// out: what is counted is what a GPU would launch kernels for.
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

  // Name ("add_", without "aten::") -> calls.
  static std::map<std::string, int> so_far() { return counts(); }

 private:
  // A callback is a plain function.
  static std::map<std::string, int>& counts() {
    thread_local std::map<std::string, int> counts;
    return counts;
  }
  static int& depth() {
    thread_local int depth = 0;
    return depth;
  }

  // The name of an operator that counts as one; empty for all else.
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
