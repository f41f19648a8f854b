#include <exchange/gpt2_config.h>
#include <exchange/gpt2_names.h>
#include <exchange/hugging_face_folder.h>
#include <state/agreement.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>

namespace fsdp {
namespace {

std::string shape_of(const std::vector<int64_t>& sizes) {
  return nlohmann::json(sizes).dump();
}

// Of one tensor, without what `name` begins with in some files.
std::string without_prefix(const std::string& name) {
  return name.starts_with(kHuggingFacePrefix) ? name.substr(kHuggingFacePrefix.size()) : name;
}

// Throws unless the tensors of the folder lie in one file, whose path it returns.
std::string path_of_tensors(const std::string& folder) {
  const std::string path = folder + "/model.safetensors";
  if (!std::filesystem::exists(path) && std::filesystem::exists(path + ".index.json")) {
    throw std::runtime_error(path +
                             ".index.json: the tensors lie in several files, and one is "
                             "read; save the model anew by save_pretrained(folder, "
                             "max_shard_size=\"100GB\")");
  }
  return path;
}

// The causal mask, which older versions of transformers save.
bool is_mask(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace

HuggingFaceFolder::HuggingFaceFolder(const std::string& folder)
    : options_(read_gpt2_config(folder)),
      parameters_(gpt2_parameters(options_)),
      file_(path_of_tensors(folder)) {
  std::map<std::string, const ModelState::Parameter*> expected;
  for (const auto& parameter : parameters_)
    expected[parameter.name] = &parameter;
  expected[kHeadName] = expected.at(kEmbeddingName);
  for (const auto& [name, entry] : file_.entries())
    if (!is_mask(name)) add(name, entry, expected);
  for (const auto& parameter : parameters_)
    if (!sources_.contains(parameter.name))
      throw std::runtime_error(file_.file().path() + ": has no tensor " +
                               hugging_face_tensor(parameter).name);
}

void HuggingFaceFolder::refuse(const std::string& tensor, const std::string& what) const {
  throw std::runtime_error(file_.file().path() + ": tensor " + tensor + ": " + what);
}

void HuggingFaceFolder::add(const std::string& name, const SafetensorsReader::Entry& entry,
                            const std::map<std::string, const ModelState::Parameter*>& expected) {
  const std::string own = without_prefix(name);
  const auto parameter = expected.find(own);
  if (parameter == expected.end())
    refuse(name, "is of no parameter of the GPT-2 that " + kConfigFile + " describes");
  const auto [other, sizes, transposed] = hugging_face_tensor(*parameter->second);
  const auto dtype = entry.dtype;
  if (dtype != at::kFloat && dtype != at::kHalf && dtype != at::kBFloat16)
    refuse(name, "has a dtype that is not F32, F16 or BF16");
  if (entry.sizes != sizes)
    refuse(name, "has the shape " + shape_of(entry.sizes) + ", not " + shape_of(sizes));
  const auto [source, is_new] = sources_.insert({own, {name, &entry, transposed}});
  if (!is_new) refuse(name, "is there as " + source->second.name + " too");
}

void HuggingFaceFolder::check_head(int part, int parts) const {
  const auto head = sources_.find(kHeadName);
  if (head == sources_.end()) return;
  constexpr int64_t kPiece = 1 << 20;  // [elements]
  const Source& embedding = sources_.at(kEmbeddingName);
  const int64_t numel = embedding.entry->numel;
  for (int64_t begin = part * kPiece; begin < numel; begin += parts * kPiece) {
    const int64_t end = std::min(begin + kPiece, numel);
    const auto values = [&](const Source& source) {
      return elements(*source.entry, begin, end).to(at::kFloat);
    };
    if (!values(head->second).equal(values(embedding)))
      refuse(head->second.name,
             "differs from " + embedding.name + ", and they are one parameter here");
  }
}

at::Tensor HuggingFaceFolder::elements(const SafetensorsReader::Entry& entry, int64_t begin,
                                       int64_t end) const {
  const at::Tensor elements = at::empty({end - begin}, entry.dtype);
  file_.read(entry, begin, elements);
  return elements;
}

at::Tensor HuggingFaceFolder::transposed_elements(const SafetensorsReader::Entry& entry,
                                                  int64_t begin, int64_t end) const {
  const int64_t in = entry.sizes[0], out = entry.sizes[1];
  const int64_t first = begin / in, last = (end + in - 1) / in;  // our rows
  const at::Tensor columns = at::empty({in, last - first}, entry.dtype);
  for (int64_t row = 0; row < in; ++row)
    file_.read(entry, row * out + first, columns[row]);
  return columns.t().reshape({-1}).narrow(0, begin - first * in, end - begin);
}

void HuggingFaceFolder::read(const StateRange& range) const {
  const Source& source = sources_.at(range.parameter);
  const auto read =
      source.transposed ? &HuggingFaceFolder::transposed_elements : &HuggingFaceFolder::elements;
  range.value.copy_((this->*read)(*source.entry, range.begin, range.end));
}

void load_hugging_face(const std::string& folder, const ModelState& state, Communicator& comm) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<HuggingFaceFolder> saved;
  agree_on(comm, [&] {
    saved = std::make_unique<HuggingFaceFolder>(folder);
    if (saved->parameters() != state.parameters)
      throw std::runtime_error(folder + '/' + kConfigFile + ": describes another model");
    saved->check_head(comm.rank(), comm.world_size());
    return std::string();
  });
  agree_on(comm, [&] {
    for (const StateRange& range : state.ranges)
      saved->read(range);
    return std::string();
  });
}

}  // namespace fsdp
