#pragma once

#include <functional>
#include <string>

namespace fsdp {

// How often `body` calls the operator `name` ("aten::add") on this thread, also from inside of
// others.
int kernel_calls(const std::string& name, const std::function<void()>& body);

}  // namespace fsdp
