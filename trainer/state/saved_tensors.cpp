#include <base/plain_error.h>
#include <base/text.h>
#include <state/saved_tensors.h>
#include <state/untrusted_json.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

std::string shape_text(const std::vector<int64_t>& sizes) {
  return Json(sizes).dump();
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw std::runtime_error(where + ": " + one_line(what));
}

// Returns the parameters that checkpoint.json lists. Throws if a parameter occurs twice or if its
// number of elements does not fit an int64.
std::vector<ModelState::Parameter> parameters_of(const std::string& folder,
                                                 const Description& description) {
  std::vector<ModelState::Parameter> parameters;
  std::set<std::string> names;
  try {
    for (const Json& parameter : description.json.at("parameters")) {
      parameters.push_back({parameter.at("name"), counts_of(parameter.at("shape"))});
      const auto& [name, sizes, dtype] = parameters.back();
      if (!names.insert(name).second)
        throw std::runtime_error("has the parameter " + name + " twice");
      if (!product(sizes)) throw std::runtime_error("the parameter " + name + " is too large");
    }
  } catch (const std::exception& error) {
    refuse(folder + '/' + kDescriptionFile, plain_text(error));
  }
  return parameters;
}

// Returns a ReadItem for each of the ranges in `saved` that lies wholly inside `range`. The item
// reads the whole saved range. `saved` has the ranges of one parameter.
std::vector<ReadItem> items_inside(const ElementRange& range,
                                   const std::vector<ElementRange>& saved) {
  std::vector<ReadItem> items;
  for (size_t i = 0; i < saved.size(); ++i) {
    const auto& [parameter, begin, end] = saved[i];
    if (range.begin <= begin && begin < end && end <= range.end)
      items.push_back({i, 0, begin - range.begin, end - begin});
  }
  return items;
}

}  // namespace

void check_file(const std::string& folder, const SavedFile& saved) {
  const FileReader file(folder + '/' + saved.name);
  if (file.size() != saved.bytes)
    throw std::runtime_error(file.path() + ": has " + std::to_string(file.size()) + " bytes, not " +
                             std::to_string(saved.bytes));
  if (file.sha256() != saved.sha256)
    throw std::runtime_error(file.path() + ": is damaged; its SHA-256 is not the one in " +
                             kSumsFile);
}

SavedTensors::SavedTensors(const std::string& folder, const Description& description,
                           const std::vector<ModelState::Parameter>& parameters, Locate locate)
    : folder_(folder), saved_files_(description.files), locate_(std::move(locate)) {
  check_parameters(parameters_of(folder, description), parameters);
  for (const auto& parameter : parameters)
    parameters_[parameter.name] = &parameter;
  for (const SavedFile& file : saved_files_)
    add_file(file);
  for (const StateKind kind : kStateKinds)
    check_cover(kind);
  for (const auto& parameter : parameters)
    if (parameter.numel() > 0) this->saved(parameter.name, StateKind::parameter);
}

// If `range` consists of whole saved ranges, items_of() does not call locate(), because locate() is
// an extension task. So student code without locate() can resume with the same ranks and units, and
// every program can read whole parameters.
std::vector<ReadItem> SavedTensors::items_of(const StateRange& range, StateKind kind) const {
  const auto& ranges = saved(range.parameter, kind).ranges;
  const ElementRange wanted{range.parameter, range.begin, range.end};
  auto items = items_inside(wanted, ranges);
  int64_t missing = range.end - range.begin;
  for (const ReadItem& item : items)
    missing -= item.length;
  if (missing > 0) items = locate_(wanted, ranges);
  return items;
}

void SavedTensors::read(const StateRange& range, StateKind kind) const {
  const at::Tensor& tensor = tensor_of(range, kind);
  const bool step = kind == StateKind::step;
  for (const ReadItem& item : items_of(range, kind)) {
    const auto& [file, entry] = saved(range.parameter, kind).places.at(item.saved_index);
    const at::Tensor part = step ? tensor : tensor.narrow(0, item.dest_offset, item.length);
    const at::Tensor on_cpu = part.is_cpu() ? part : at::empty_like(part, at::kCPU);
    file->read(*entry, step ? 0 : item.saved_offset, on_cpu);
    if (!part.is_cpu()) part.copy_(on_cpu);
    if (step) return;
  }
}

void SavedTensors::check_parameters(const std::vector<ModelState::Parameter>& saved,
                                    const std::vector<ModelState::Parameter>& own) const {
  const std::string file = folder_ + '/' + kDescriptionFile;
  for (size_t i = 0; i < std::max(saved.size(), own.size()); ++i) {
    if (i >= saved.size()) refuse(file, "lacks the model's parameter " + own[i].name);
    if (i >= own.size() || saved[i].name != own[i].name)
      refuse(file, "has the parameter " + saved[i].name + ", and the model has " +
                       (i < own.size() ? own[i].name : "none") + " in this place");
    if (saved[i].sizes != own[i].sizes)
      refuse(file, "the parameter " + own[i].name + " has the shape " + shape_text(saved[i].sizes) +
                       ", and in the model " + shape_text(own[i].sizes));
  }
}

void SavedTensors::add_file(const SavedFile& file) {
  files_.push_back(std::make_unique<SafetensorsReader>(folder_ + '/' + file.name));
  const SafetensorsReader& reader = *files_.back();
  for (const auto& [text, entry] : reader.entries()) {
    try {
      add(TensorName::parse(text), reader, entry);
    } catch (const std::runtime_error& error) {
      refuse(reader.file().path(), "tensor " + text + ": " + plain_text(error));
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
  const auto dtype = name.kind == StateKind::parameter ? parameter.dtype : at::kFloat;
  if (entry.dtype != dtype) throw std::runtime_error("is not " + safetensors_dtype(dtype));
  std::vector<int64_t> sizes = parameter.sizes;
  if (name.range) sizes = {end - begin};
  if (name.kind == StateKind::step) sizes = {};
  if (entry.sizes != sizes)
    throw std::runtime_error("has the shape " + shape_text(entry.sizes) + ", not " +
                             shape_text(sizes));
  Saved& saved = saved_[static_cast<size_t>(name.kind)][name.parameter];
  saved.ranges.push_back({name.parameter, begin, end});
  saved.places.push_back({&file, &entry});
}

void SavedTensors::check_cover(StateKind kind) const {
  for (const auto& [parameter, saved] : saved_[static_cast<size_t>(kind)]) {
    auto ranges = saved.ranges;
    std::ranges::sort(ranges, {}, [](const ElementRange& r) { return std::pair(r.begin, r.end); });
    // Number of elements that the ranges cover from element 0 on; -1: there is a gap or an overlap.
    int64_t covered = 0;
    for (const ElementRange& range : ranges)
      covered = range.begin == covered ? range.end : -1;
    if (covered != parameters_.at(parameter)->numel())
      refuse(folder_, "the files do not have every element of " +
                          TensorName{parameter, kind, {}}.text() + " once");
  }
}

const SavedTensors::Saved& SavedTensors::saved(const std::string& parameter, StateKind kind) const {
  const auto& of_kind = saved_[static_cast<size_t>(kind)];
  const auto found = of_kind.find(parameter);
  if (found == of_kind.end())
    refuse(folder_, "has no tensor " + TensorName{parameter, kind, {}}.text());
  return found->second;
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
  for (const SavedFile& file : description.files)
    check_file(folder, file);
  saved.tensors = std::make_unique<SavedTensors>(folder, description, saved.parameters, nullptr);
  return saved;
}

}  // namespace fsdp
