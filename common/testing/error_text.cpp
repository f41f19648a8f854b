#include <c10/util/Type.h>
#include <testing/error_text.h>
#include <testing/frames.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

constexpr const char* kFreed = "a parameter was used after reshard(), or before unshard()";
constexpr const char* kUndefined =
    "an undefined tensor was used, for example .grad before the parameter's gradient is complete, "
    "a member that was moved from or reset, or an element at an index that a closure captured by "
    "reference";
constexpr const char* kNoKey =
    "at() of a map was called with a key that is not in the map: find out which key the code looks "
    "up, and which code should have inserted it";

// A table of known errors: if the message of an error contains the first text of a row, the second
// text says what the error means in the code of a task.
constexpr std::array<std::pair<const char*, const char*>, 12> kMeanings{{
    {"Cannot copy out of meta tensor",
     "a tensor is still on the meta device: it was not materialized, or a call was replayed there"},
    {"with Meta tensors", "a tensor is still on the meta device: it was not materialized"},
    {"data is not allocated", kFreed},
    {"storage of size 0", kFreed},
    {"UndefinedTensorImpl", kUndefined},
    {"Expected a proper Tensor but got None", kUndefined},
    {"exceeds dimension size",
     "a view reaches beyond its tensor, for example because a piece continues into another unit"},
    {"map::at", kNoKey},
    {"_Map_base::at", kNoKey},
    {"bad_weak_ptr",
     "shared_from_this() was called on an object that no shared_ptr holds: in its constructor, in "
     "its destructor, made without std::make_shared(), or destroyed before the call, which came "
     "from a hook that holds a plain pointer"},
    {"can't allocate memory", "it exceeded the limit of memory of a test"},
    {"bad_alloc", "it exceeded the limit of memory of a test"},
}};

// Returns the name of the type of `error` and, after it, the names of those of its base classes
// that are std::invalid_argument, std::out_of_range, std::logic_error or std::runtime_error.
std::string types_of(const std::exception& error) {
  std::string types = c10::demangle(typeid(error).name());
  const auto add = [&](const char* name, const void* as_that_type) {
    if (as_that_type != nullptr && types != name) types += std::string(", ") + name;
  };
  add("std::invalid_argument", dynamic_cast<const std::invalid_argument*>(&error));
  add("std::out_of_range", dynamic_cast<const std::out_of_range*>(&error));
  add("std::logic_error", dynamic_cast<const std::logic_error*>(&error));
  add("std::runtime_error", dynamic_cast<const std::runtime_error*>(&error));
  return types;
}

// Returns whether `line`, from the text of a PyTorch error, only advises users of torch.compile or
// of Caffe2.
bool is_advice(const std::string& line) {
  return line.starts_with("If you're using torch.compile") ||
         line.starts_with("If you're using Caffe2");
}

bool begins_stack(const std::string& line) {
  return line.find("Exception raised from ") != std::string::npos &&
         line.find("most recent call first") != std::string::npos;
}

}  // namespace

std::string without_stacks(const std::string& text) {
  std::string result;
  bool in_stack = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string line = text.substr(begin, end - begin);
    in_stack = begins_stack(line) || (in_stack && line.starts_with("frame #"));
    if (!in_stack && !is_advice(line)) result += line;
    begin = end;
  }
  return result;
}

std::string thrown_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return types_of(error) + ": " + without_stacks(shortened(error.what()));
  } catch (...) {
    return "an object that is not a std::exception";
  }
  return kNothingThrown;
}

std::string own_words(const std::string& assertion) {
  if (assertion.starts_with("Failed\n")) return assertion.substr(7);
  const std::string head = "Value of: ", middle = "\n  Actual: ";
  const size_t actual = assertion.find(middle), expected = assertion.find("\nExpected: ");
  const size_t end = expected == std::string::npos ? expected : assertion.find('\n', expected + 1);
  if (!assertion.starts_with(head) || end == std::string::npos || actual > expected)
    return assertion;
  const size_t begin = actual + middle.size();
  return assertion.substr(end + 1) + "\n  (" + assertion.substr(head.size(), actual - head.size()) +
         " is " + assertion.substr(begin, expected - begin) + ')';
}

std::string explained(const std::string& message) {
  std::string said = without_stacks(message);
  for (const auto& [words, meaning] : kMeanings) {
    if (said.find(words) == std::string::npos) continue;
    if (said.ends_with('\n')) said.pop_back();
    return std::string(meaning) + "\n  (it says: " + said + ')';
  }
  return said;
}

}  // namespace fsdp
