#pragma once

#include <comm/call.h>

#include <stdexcept>
#include <string>

namespace fsdp {

// A collective that cannot complete: the ranks called different collectives, one of them did not
// come in time, or the library that moves the bytes failed.
struct CollectiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// "rank 1: all_gather layers.3 (collective #5)", how errors name a call of `rank` in `group`.
std::string call_of_rank(const Group& group, int rank, const Call& call);

// The error to throw when `library` ("gloo", "nccl") has thrown `error` during such a call.
CollectiveError library_error(const char* library, const Group& group, int rank, const Call& call,
                              const std::exception& error);

// what(), without the stack that torch adds to the text of its errors, then that of each error that
// it was made from (std::throw_with_nested).
std::string message_of(const std::exception& error);

}  // namespace fsdp
