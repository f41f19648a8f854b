#include <state/agreement.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <state/safetensors.h>
#include <state/tensor_name.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

// Neighbouring elements of a parameter, or the step count of such, in one of the files.
struct Source {
  int64_t begin, end;  // [elements] of the parameter
  const SafetensorsReader* file;
  const SafetensorsReader::Entry* entry;
};

std::string shape_text(const std::vector<int64_t>& sizes) {
  return Json(sizes).dump();
}

// The tensors of a checkpoint, by parameter and kind. The constructor compares them with the
// parameters and reads nothing but headers.
class SavedTensors {
 public:
  SavedTensors(const std::string& folder, const Description& description,
               const std::vector<ModelState::Parameter>& parameters)
      : folder_(folder) {
    check_parameters(description.json.at("parameters"), parameters);
    for (const auto& parameter : parameters)
      parameters_[parameter.name] = &parameter;
    for (const SavedFile& file : description.files)
      add_file(file);
    for (auto& [key, sources] : sources_)
      check_cover(key, sources);
    for (const auto& parameter : parameters)
      if (parameter.numel() > 0) sources_of(parameter.name, StateKind::parameter);
  }

  // Throws std::runtime_error unless the hash of file `index` is the one that it should have.
  void check_hash(size_t index, const std::string& sha256) const {
    const FileReader& file = files_[index]->file();
    if (file.sha256() != sha256)
      throw std::runtime_error(file.path() + ": is damaged; its SHA-256 is not the one in " +
                               kSumsFile);
  }

  const std::vector<Source>& sources_of(const std::string& parameter, StateKind kind) const {
    const auto sources = sources_.find({parameter, kind});
    if (sources == sources_.end())
      throw std::runtime_error(folder_ + ": has no tensor " +
                               TensorName{parameter, kind, {}}.text());
    return sources->second;
  }

  // Fills the range's tensor of this kind.
  void read(const StateRange& range, StateKind kind) const {
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

 private:
  using Key = std::pair<std::string, StateKind>;

  void check_parameters(const Json& saved, const std::vector<ModelState::Parameter>& own) const {
    const std::string file = folder_ + '/' + kDescriptionFile + ": ";
    for (size_t i = 0; i < std::max(saved.size(), own.size()); ++i) {
      if (i >= saved.size())
        throw std::runtime_error(file + "lacks the model's parameter " + own[i].name);
      const std::string name = saved[i].at("name");
      if (i >= own.size() || name != own[i].name)
        throw std::runtime_error(file + "has the parameter " + name + ", and the model has " +
                                 (i < own.size() ? own[i].name : "none") + " in this place");
      const std::vector<int64_t> sizes = saved[i].at("shape");
      if (sizes != own[i].sizes)
        throw std::runtime_error(file + "the parameter " + name + " has the shape " +
                                 shape_text(sizes) + ", and in the model " +
                                 shape_text(own[i].sizes));
    }
  }

  void add_file(const SavedFile& file) {
    if (file.name.find('/') != std::string::npos)
      throw std::runtime_error(folder_ + '/' + kDescriptionFile +
                               ": names a file of another folder");
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

  void add(const TensorName& name, const SafetensorsReader& file,
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

  void check_cover(const Key& key, std::vector<Source>& sources) const {
    std::sort(sources.begin(), sources.end(),
              [](const Source& a, const Source& b) { return a.begin < b.begin; });
    int64_t end = 0;
    for (const Source& source : sources)
      end = source.begin == end ? source.end : -1;
    if (end != parameters_.at(key.first)->numel())
      throw std::runtime_error(folder_ + ": the files do not have every element of " +
                               TensorName{key.first, key.second, {}}.text() + " once");
  }

  std::string folder_;
  std::map<std::string, const ModelState::Parameter*> parameters_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<Key, std::vector<Source>> sources_;  // in the order of the elements
};

}  // namespace

void load_checkpoint(const std::string& folder, const ModelState& state, Communicator& comm) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<SavedTensors> saved;
  const auto each = [&](const std::function<void(const StateRange&, StateKind)>& action) {
    for (const StateRange& range : state.ranges)
      for (const StateKind kind : kStateKinds)
        if (tensor_of(range, kind).defined()) action(range, kind);
  };
  agree_on(comm, [&] {
    const Description description = read_description(folder);
    try {
      saved = std::make_unique<SavedTensors>(folder, description, state.parameters);
    } catch (const Json::exception& error) {
      throw std::runtime_error(folder + '/' + kDescriptionFile + ": " + error.what());
    }
    each(
        [&](const StateRange& range, StateKind kind) { saved->sources_of(range.parameter, kind); });
    // Each rank reads its part of the files to the end.
    for (auto i = static_cast<size_t>(comm.rank()); i < description.files.size();
         i += static_cast<size_t>(comm.world_size()))
      saved->check_hash(i, description.files[i].sha256);
    return std::string();
  });
  agree_on(comm, [&] {
    each([&](const StateRange& range, StateKind kind) { saved->read(range, kind); });
    return std::string();
  });
}

}  // namespace fsdp
