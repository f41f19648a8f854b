#pragma once

#include <comm/call.h>

#include <stdexcept>
#include <string>

namespace fsdp {

// Thrown if a collective cannot complete: the ranks called different collectives, a rank ended or
// did not arrive in time, or the library that moves the bytes failed.
struct CollectiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Returns how errors name a call of `rank`, numbered in `group`: "rank 1: all_gather layers.3
// (collective #5)", with the rank's number in the world.
std::string call_of_rank(const Group& group, int rank, const Call& call);

// Returns the error to throw when `library` ("gloo", "nccl") has thrown `error` during `call`.
CollectiveError library_error(const char* library, const Group& group, int rank, const Call& call,
                              const std::exception& error);

// Returns error.what() without the stack that torch adds to the text of its errors, then the
// messages of the nested errors that caused it (std::throw_with_nested).
std::string message_of(const std::exception& error);

}  // namespace fsdp
