// What every file may use without waiting for it: never a header of a task.
#include <base/torch.h>

#include <nlohmann/json.hpp>
