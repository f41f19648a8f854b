#include <c10/util/Exception.h>
#include <comm/collective_error.h>

namespace fsdp {

std::string call_of_rank(int rank, const Call& call) {
  return "rank " + std::to_string(rank) + ": " + call.name() + " (collective #" +
         std::to_string(call.sequence) + ")";
}

CollectiveError failed_in(const char* library, int rank, const Call& call,
                          const std::exception& error) {
  return CollectiveError(call_of_rank(rank, call) + " failed in " + library + ": " +
                         message_of(error));
}

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace fsdp
