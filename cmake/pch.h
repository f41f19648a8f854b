// What every file may use without waiting for it: never a header of a task. Without it a file takes
// three times as long.
#include <base/torch.h>

#include <nlohmann/json.hpp>
