#include <agreement/agreement.h>
#include <base/whole_file.h>
#include <state_dict.h>
#include <torch/serialize.h>

#include <fstream>
#include <stdexcept>
#include <string_view>

namespace fsdp {

void save_state_dict(const StateDict& state, const std::string& path, Communicator& comm) {
  const CallerScope caller("save_state_dict()");
  agree_on_rank_0(comm, [&] {
    const std::vector<char> bytes = torch::pickle_save(state);
    write_whole_file(path, {bytes.begin(), bytes.end()});
  });
}

StateDict load_state_dict_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto refuse = [&](const char* why) { throw std::runtime_error(path + ": " + why); };
  const std::string_view text(bytes.data(), bytes.size());
  if (!text.starts_with("PK\3\4"))
    refuse("is not a file of save_state_dict() or of Python's torch.save(dict, path)");
  if (text.find("PK\5\6") == std::string_view::npos) refuse("is damaged: its end is missing");
  c10::IValue value;
  try {
    value = torch::pickle_load(bytes);
  } catch (const std::exception&) {
    refuse(text.find("_metadata") != std::string_view::npos
               ? "holds a class of Python's; save it by torch.save(dict(net.state_dict()), path)"
               : "is damaged, or holds a class of Python's; save a dict of tensors by name");
  }
  const char* const kNoDict = "does not hold a dict of tensors by name; save one";
  if (!value.isGenericDict()) refuse(kNoDict);
  StateDict state;
  for (const auto& entry : value.toGenericDict()) {
    if (!entry.key().isString() || !entry.value().isTensor()) refuse(kNoDict);
    state.insert(entry.key().toStringRef(), entry.value().toTensor());
  }
  return state;
}

}  // namespace fsdp
