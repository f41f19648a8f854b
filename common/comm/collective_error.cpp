#include <base/plain_error.h>
#include <c10/util/Exception.h>
#include <comm/collective_error.h>

namespace fsdp {

std::string call_of_rank(const Group& group, int rank, const Call& call) {
  return "rank " + std::to_string(group.world_rank(rank)) + ": " + call.name() +
         call.caller_text() + " (collective #" + std::to_string(call.sequence) + ")" + group.text();
}

CollectiveError library_error(const char* library, const Group& group, int rank, const Call& call,
                              const std::exception& error) {
  return CollectiveError(call_of_rank(group, rank, call) + " failed in " + library + ": " +
                         message_of(error));
}

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr
                         ? beginning_of_error(torch_error->what_without_backtrace())
                         : plain_text(error);
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    return text + ": " + message_of(cause);
  } catch (...) {
  }
  return text;
}

}  // namespace fsdp
