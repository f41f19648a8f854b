#pragma once

#include <comm/communicator.h>

#include <string>

namespace fsdp {

// The calls since the last time, in the order of issue: "all_gather root; reduce_scatter blocks0;
// ".
inline std::string take_calls(Communicator& comm) {
  std::string text;
  for (const Call& call : comm.take_log())
    text += call.name() + "; ";
  return text;
}

}  // namespace fsdp
