#pragma once

#include <functional>
#include <string>

namespace fsdp {

// Returns how often `body` calls the operator `name`, for example "aten::add", on this thread,
// including calls from inside other operators.
int kernel_calls(const std::string& name, const std::function<void()>& body);

}  // namespace fsdp
