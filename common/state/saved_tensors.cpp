#include <state/saved_tensors.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

std::string shape_text(const std::vector<int64_t>& sizes) {
  return Json(sizes).dump();
}

// The parameters that checkpoint.json lists.
std::vector<ModelState::Parameter> parameters_of(const std::string& folder,
                                                 const Description& description) {
  std::vector<ModelState::Parameter> parameters;
  try {
    for (const Json& parameter : description.json.at("parameters"))
      parameters.push_back({parameter.at("name"), parameter.at("shape")});
  } catch (const Json::exception& error) {
    throw std::runtime_error(folder + '/' + kDescriptionFile + ": " + error.what());
  }
  return parameters;
}

}  // namespace

SavedTensors::SavedTensors(const std::string& folder, const Description& description,
                           const std::vector<ModelState::Parameter>& parameters)
    : folder_(folder), saved_files_(description.files) {
  check_parameters(parameters_of(folder, description), parameters);
  for (const auto& parameter : parameters)
    parameters_[parameter.name] = &parameter;
  for (const SavedFile& file : saved_files_)
    add_file(file);
  for (auto& [key, sources] : sources_)
    check_cover(key, sources);
  for (const auto& parameter : parameters)
    if (parameter.numel() > 0) check_has(parameter.name, StateKind::parameter);
}

void SavedTensors::check_hash(size_t index) const {
  const FileReader& file = files_[index]->file();
  if (file.sha256() != saved_files_[index].sha256)
    throw std::runtime_error(file.path() + ": is damaged; its SHA-256 is not the one in " +
                             kSumsFile);
}

const std::vector<SavedTensors::Source>& SavedTensors::sources_of(const std::string& parameter,
                                                                  StateKind kind) const {
  const auto sources = sources_.find({parameter, kind});
  if (sources == sources_.end())
    throw std::runtime_error(folder_ + ": has no tensor " + TensorName{parameter, kind, {}}.text());
  return sources->second;
}

void SavedTensors::read(const StateRange& range, StateKind kind) const {
  const at::Tensor& tensor = tensor_of(range, kind);
  for (const Source& source : sources_of(range.parameter, kind)) {
    const int64_t begin = std::max(range.begin, source.begin);
    const int64_t end = std::min(range.end, source.end);
    if (begin >= end) continue;
    const bool step = kind == StateKind::step;
    const at::Tensor part = step ? tensor : tensor.narrow(0, begin - range.begin, end - begin);
    const at::Tensor on_cpu = part.is_cpu() ? part : at::empty_like(part, at::kCPU);
    source.file->read(*source.entry, step ? 0 : begin - source.begin, on_cpu);
    if (!part.is_cpu()) part.copy_(on_cpu);
    if (step) return;
  }
}

void SavedTensors::check_parameters(const std::vector<ModelState::Parameter>& saved,
                                    const std::vector<ModelState::Parameter>& own) const {
  const std::string file = folder_ + '/' + kDescriptionFile + ": ";
  for (size_t i = 0; i < std::max(saved.size(), own.size()); ++i) {
    if (i >= saved.size())
      throw std::runtime_error(file + "lacks the model's parameter " + own[i].name);
    if (i >= own.size() || saved[i].name != own[i].name)
      throw std::runtime_error(file + "has the parameter " + saved[i].name +
                               ", and the model has " + (i < own.size() ? own[i].name : "none") +
                               " in this place");
    if (saved[i].sizes != own[i].sizes)
      throw std::runtime_error(file + "the parameter " + own[i].name + " has the shape " +
                               shape_text(saved[i].sizes) + ", and in the model " +
                               shape_text(own[i].sizes));
  }
}

void SavedTensors::add_file(const SavedFile& file) {
  if (file.name.find('/') != std::string::npos)
    throw std::runtime_error(folder_ + '/' + kDescriptionFile + ": names a file of another folder");
  files_.push_back(std::make_unique<SafetensorsReader>(folder_ + '/' + file.name));
  const SafetensorsReader& reader = *files_.back();
  if (reader.file().size() != file.bytes)
    throw std::runtime_error(reader.file().path() + ": has " +
                             std::to_string(reader.file().size()) + " bytes, not " +
                             std::to_string(file.bytes));
  for (const auto& [text, entry] : reader.entries()) {
    try {
      add(TensorName::parse(text), reader, entry);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(reader.file().path() + ": tensor " + text + ": " + error.what());
    }
  }
}

void SavedTensors::add(const TensorName& name, const SafetensorsReader& file,
                       const SafetensorsReader::Entry& entry) {
  const auto found = parameters_.find(name.parameter);
  if (found == parameters_.end()) throw std::runtime_error("is of no parameter of the model");
  const ModelState::Parameter& parameter = *found->second;
  const auto [begin, end] = name.range.value_or(std::pair(int64_t{0}, parameter.numel()));
  if (begin > end || end > parameter.numel())
    throw std::runtime_error("has elements that the parameter does not have");
  if (entry.dtype != at::kFloat) throw std::runtime_error("is not F32");
  std::vector<int64_t> sizes = parameter.sizes;
  if (name.range) sizes = {end - begin};
  if (name.kind == StateKind::step) sizes = {};
  if (entry.sizes != sizes)
    throw std::runtime_error("has the shape " + shape_text(entry.sizes) + ", not " +
                             shape_text(sizes));
  sources_[{name.parameter, name.kind}].push_back({begin, end, &file, &entry});
}

void SavedTensors::check_cover(const Key& key, std::vector<Source>& sources) const {
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.begin < b.begin; });
  int64_t end = 0;
  for (const Source& source : sources)
    end = source.begin == end ? source.end : -1;
  if (end != parameters_.at(key.first)->numel())
    throw std::runtime_error(folder_ + ": the files do not have every element of " +
                             TensorName{key.first, key.second, {}}.text() + " once");
}

void SavedParameters::read(const ModelState::Parameter& parameter, const at::Tensor& whole) const {
  if (parameter.numel() == 0) return;
  tensors->read({parameter.name, 0, parameter.numel(), whole.view({-1}), {}, {}, {}},
                StateKind::parameter);
}

SavedParameters open_parameters(const std::string& path) {
  SavedParameters saved{find_checkpoint(path), {}, nullptr};
  const std::string& folder = saved.checkpoint.folder;
  const Description description = read_description(folder);
  saved.parameters = parameters_of(folder, description);
  saved.tensors = std::make_unique<SavedTensors>(folder, description, saved.parameters);
  for (size_t i = 0; i < description.files.size(); ++i)
    saved.tensors->check_hash(i);
  return saved;
}

}  // namespace fsdp
