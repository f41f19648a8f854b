#pragma once

#include <comm/communicator.h>

#include <string>

namespace fsdp {

// Returns the collectives that this rank has issued on `comm` since the last take_calls() or
// take_log() of `comm`, in order, as one text such as "all_gather root; reduce_scatter blocks0; ".
inline std::string take_calls(Communicator& comm) {
  std::string text;
  for (const Call& call : comm.take_log())
    text += call.name() + "; ";
  return text;
}

}  // namespace fsdp
