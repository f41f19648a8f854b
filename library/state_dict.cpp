#include <base/whole_file.h>
#include <state/agreement.h>
#include <state_dict.h>
#include <torch/serialize.h>

#include <fstream>
#include <stdexcept>

namespace fsdp {

void save_state_dict(const StateDict& state, const std::string& path, Communicator& comm) {
  const Purpose purpose("save_state_dict()");
  agree_on(comm, [&] {
    if (comm.rank() != 0) return std::string();
    const std::vector<char> bytes = torch::pickle_save(state);
    write_whole_file(path, {bytes.begin(), bytes.end()});
    return std::string();
  });
}

StateDict load_state_dict_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  StateDict state;
  try {
    const auto value = torch::pickle_load(bytes);
    for (const auto& entry : value.toGenericDict())
      state.insert(entry.key().toStringRef(), entry.value().toTensor());
  } catch (const std::exception&) {
    throw std::runtime_error(path + ": holds no dict of tensors by name");
  }
  return state;
}

}  // namespace fsdp
