// The precompiled header. Without it a file takes three times as long to compile. It must not
// include a header of a task.
#include <base/torch.h>

#include <nlohmann/json.hpp>
