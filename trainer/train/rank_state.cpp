#include <base/torch.h>
#include <base/write_all.h>
#include <state/model_state.h>
#include <train/rank_state.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

void write_bytes(int file, const void* data, size_t bytes) {
  const int error = write_all(file, {static_cast<const char*>(data), bytes});
  if (error != 0)
    throw std::system_error(error, std::generic_category(), "can't write a rank's state to memory");
}

void read_bytes(int file, void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = read(file, static_cast<char*>(data) + done, bytes - done);
    if (count == 0)
      throw std::runtime_error(
          "the state that a failed rank left in memory ends too early for this model");
    if (count > 0) done += static_cast<size_t>(count);
    if (count < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(),
                              "can't read a rank's state from memory");
  }
}

template <class Action>
void for_each_tensor(const std::vector<StateRange>& ranges, const Action& action) {
  for (const StateRange& range : ranges)
    for (const StateKind kind : kStateKinds)
      if (const at::Tensor& tensor = tensor_of(range, kind); tensor.defined()) action(tensor);
}

}  // namespace

void write_state(int file, const nlohmann::ordered_json& run,
                 const std::vector<StateRange>& ranges) {
  const std::string text = run.dump();
  const uint64_t size = text.size();
  write_bytes(file, &size, sizeof size);
  write_bytes(file, text.data(), size);
  for_each_tensor(ranges, [&](const at::Tensor& tensor) {
    write_bytes(file, tensor.const_data_ptr(), tensor.nbytes());
  });
}

nlohmann::ordered_json read_run(int file) {
  uint64_t size = 0;
  read_bytes(file, &size, sizeof size);
  std::string text(size, '\0');
  read_bytes(file, text.data(), size);
  return nlohmann::ordered_json::parse(text);
}

void read_ranges(int file, const std::vector<StateRange>& ranges) {
  for_each_tensor(ranges, [&](const at::Tensor& tensor) {
    read_bytes(file, tensor.mutable_data_ptr(), tensor.nbytes());
  });
}

}  // namespace fsdp
