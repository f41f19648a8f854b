#include <comm/check_tensors.h>
#include <memory/storage.h>

#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

// Returns the number of bytes from the beginning of the storage to the end of the last element of a
// contiguous tensor.
int64_t end_in_bytes(const at::Tensor& tensor) {
  return (tensor.storage_offset() + tensor.numel()) * tensor.element_size();
}

bool has_memory(const at::Tensor& tensor) {
  return end_in_bytes(tensor) <= static_cast<int64_t>(tensor.storage().nbytes());
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes() << ' ' << c10::toString(tensor.scalar_type());
  if (!tensor.is_contiguous()) {
    out << " (not contiguous)";
  } else if (!has_memory(tensor)) {
    out << " (it needs a storage of " << end_in_bytes(tensor) << " bytes, and its storage has "
        << tensor.storage().nbytes() << ")";
  }
  return out.str();
}

// Returns what is wrong with the tensors of a collective: "needs contiguous tensors"; "" if nothing
// is.
std::string argument_error(const TensorsOfCall& given, int world_size, c10::DeviceType device) {
  const auto& [operation, output, input, root, unit] = given;
  if (operation == Operation::barrier) return {};
  if (!output.defined() || !input.defined()) return "needs defined tensors";
  if (!output.is_contiguous() || !input.is_contiguous()) return "needs contiguous tensors";
  if (output.device().type() != device || input.device().type() != device) {
    return device == c10::kCPU ? "needs tensors on the CPU" : "needs tensors on CUDA";
  }
  const bool widens = operation == Operation::reduce_scatter &&
                      output.scalar_type() == at::kFloat &&
                      at::isReducedFloatingType(input.scalar_type());
  if (output.scalar_type() != input.scalar_type() && !widens) return "needs tensors of one dtype";
  if (!has_memory(output) || !has_memory(input)) return "needs tensors with memory";
  const std::string world = std::to_string(world_size);
  if (operation == Operation::all_gather && output.numel() != world_size * input.numel())
    return "needs an output of " + world + " times the input's elements";
  if (operation == Operation::reduce_scatter && input.numel() != world_size * output.numel())
    return "needs an input of " + world + " times the output's elements";
  if (operation == Operation::reduce_scatter && overlap(output, input))
    return "needs an output that does not overlap the input";
  if (operation == Operation::broadcast && (root < 0 || root >= world_size))
    return "has no root " + std::to_string(root) + " among " + world + " ranks";
  return {};
}

}  // namespace

void check_tensors(const TensorsOfCall& given, int world_size, c10::DeviceType device,
                   int global_rank) {
  const std::string fault = argument_error(given, world_size, device);
  if (fault.empty()) return;
  std::ostringstream out;
  out << "rank " << global_rank << ": " << to_string(given.operation) << ' ' << given.unit << ' '
      << fault;
  if (given.output.defined() && given.input.defined()) {
    out << ": output " << describe(given.output) << ", input " << describe(given.input);
  }
  throw std::invalid_argument(out.str());
}

}  // namespace fsdp
