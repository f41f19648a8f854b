#include <agreement/agreement.h>
#include <base/text.h>
#include <exchange/hugging_face_config.h>
#include <exchange/hugging_face_folder.h>
#include <exchange/saved_adapters.h>
#include <nn/lora.h>
#include <state/untrusted_json.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace fsdp {
namespace {

const std::string kGPT2Prefix = "transformer.", kLlamaPrefix = "model.";
// The name of the head's weight. If the head is tied, its weight is the embedding, the first
// parameter of the model; some files have it a second time under this name.
const std::string kHeadName = "lm_head.weight";

// Collects the names, shapes and layouts of the tensors of a Hugging Face folder. add() appends the
// weight of a module and, if `bias` is true, its bias.
struct Tensors {
  std::vector<HuggingFaceTensor> all;

  void add(const std::string& own, const std::string& theirs, const std::vector<int64_t>& weight,
           bool bias = false, Layout layout = Layout::same, int64_t head_rows = 0) {
    all.push_back({{own + ".weight", weight}, theirs + ".weight", layout, head_rows});
    if (layout == Layout::transposed) layout = Layout::same;
    if (bias) all.push_back({{own + ".bias", {weight[0]}}, theirs + ".bias", layout, head_rows});
  }
};

std::vector<HuggingFaceTensor> tensors_of(const GPT2Options& options) {
  const int64_t d = options.d_model, ff = options.d_ff;
  Tensors tensors;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& weight, bool bias,
                       Layout layout) {
    tensors.add(name, kGPT2Prefix + name, weight, bias, layout);
  };
  add("wte", {options.vocabulary, d}, false, Layout::same);
  add("wpe", {options.context, d}, false, Layout::same);
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string block = "h." + std::to_string(layer) + '.';
    add(block + "ln_1", {d}, true, Layout::same);
    add(block + "attn.c_attn", {3 * d, d}, true, Layout::transposed);
    add(block + "attn.c_proj", {d, d}, true, Layout::transposed);
    add(block + "ln_2", {d}, true, Layout::same);
    add(block + "mlp.c_fc", {ff, d}, true, Layout::transposed);
    add(block + "mlp.c_proj", {d, ff}, true, Layout::transposed);
  }
  add("ln_f", {d}, true, Layout::same);
  if (!options.tied_head) tensors.add("lm_head", "lm_head", {options.vocabulary, d});
  return tensors.all;
}

std::vector<HuggingFaceTensor> tensors_of(const TransformerLMOptions& options) {
  const int64_t d = options.d_model, ff = options.d_ff;
  const int64_t head = options.width_of_head();
  const int64_t inner = head * options.heads, kv = head * options.kv_heads;
  const bool bias = options.qkv_bias;
  Tensors tensors;
  tensors.add("token_embeddings", kLlamaPrefix + "embed_tokens", {options.vocabulary, d});
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string own = "layers." + std::to_string(layer) + '.';
    const std::string theirs = kLlamaPrefix + own;
    tensors.add(own + "attn.q_proj", theirs + "self_attn.q_proj", {inner, d}, bias, Layout::halves,
                head);
    tensors.add(own + "attn.k_proj", theirs + "self_attn.k_proj", {kv, d}, bias, Layout::halves,
                head);
    tensors.add(own + "attn.v_proj", theirs + "self_attn.v_proj", {kv, d}, bias);
    tensors.add(own + "attn.output_proj", theirs + "self_attn.o_proj", {d, inner});
    for (const char* norm : {"q_norm", "k_norm"})
      if (options.qk_norm)
        tensors.add(own + "attn." + norm, theirs + "self_attn." + norm, {head}, false,
                    Layout::halves, head);
    tensors.add(own + "ffn.w1", theirs + "mlp.gate_proj", {ff, d});
    tensors.add(own + "ffn.w2", theirs + "mlp.down_proj", {d, ff});
    tensors.add(own + "ffn.w3", theirs + "mlp.up_proj", {ff, d});
    tensors.add(own + "ln1", theirs + "input_layernorm", {d});
    tensors.add(own + "ln2", theirs + "post_attention_layernorm", {d});
  }
  tensors.add("ln_final", kLlamaPrefix + "norm", {d});
  if (!options.tied_head) tensors.add("lm_head", "lm_head", {options.vocabulary, d});
  return tensors.all;
}

namespace fs = std::filesystem;
using Files = std::map<std::string, std::unique_ptr<SafetensorsReader>>;

const std::string kFile = "model.safetensors", kIndex = kFile + ".index.json";
// Number of bytes of the largest index file that is read.
constexpr int64_t kLongestIndex = 100'000'000;

std::string shape_of(const std::vector<int64_t>& sizes) {
  return nlohmann::json(sizes).dump();
}

[[noreturn]] void refuse(const SafetensorsReader& file, const std::string& tensor,
                         const std::string& what) {
  throw std::runtime_error(file.file().path() + ": " + one_line("tensor " + tensor + ": " + what));
}

// Returns whether `name` is a buffer that older versions of transformers save: the causal mask, or
// the frequencies of rotary positions.
bool is_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// Reads the index file `path`. Returns the name of each tensor -> the name of the file that has it,
// in the folder of the index file.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::string text = read_text(path, kLongestIndex);
  try {
    return read_json_object<nlohmann::json>(text)
        .at("weight_map")
        .get<std::map<std::string, std::string>>();
  } catch (const std::exception&) {
    throw std::runtime_error(path + ": has no weight_map from tensors to files");
  }
}

// Throws std::runtime_error if the folder has weights only in PyTorch's pickle format.
void refuse_pickles(const std::string& folder) {
  if (fs::exists(folder + '/' + kFile) || fs::exists(folder + '/' + kIndex)) return;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (fs::exists(folder + '/' + name))
      throw std::runtime_error(folder + '/' + name +
                               ": is not read; load the folder with transformers and save it again "
                               "by save_pretrained(), which writes " +
                               kFile);
}

Files open_files(const std::string& folder) {
  refuse_pickles(folder);
  Files files;
  if (fs::exists(folder + '/' + kFile) || !fs::exists(folder + '/' + kIndex)) {
    files[kFile] = std::make_unique<SafetensorsReader>(folder + '/' + kFile);
    return files;
  }
  const std::string index = folder + '/' + kIndex;
  const auto places = read_index(index);
  for (const auto& [tensor, file] : places) {
    if (fs::path(file).filename() != file || one_line(file) != file)
      throw std::runtime_error(index + ": " + one_line("tensor " + tensor + ": is in " + file) +
                               ", which is not in this folder");
    auto& reader = files[file];
    if (!reader) reader = std::make_unique<SafetensorsReader>(folder + '/' + file);
    if (!reader->entries().contains(tensor))
      refuse(*reader, tensor, "is missing, but " + kIndex + " names this file for it");
  }
  for (const auto& [name, reader] : files)
    for (const auto& [tensor, entry] : reader->entries())
      if (const auto place = places.find(tensor); place == places.end() || place->second != name)
        refuse(*reader, tensor, "is here, but " + kIndex + " does not name this file for it");
  return files;
}

}  // namespace

std::vector<int64_t> HuggingFaceTensor::sizes() const {
  std::vector<int64_t> sizes = own.sizes;
  if (layout == Layout::transposed) std::swap(sizes.at(0), sizes.at(1));
  return sizes;
}

at::Tensor HuggingFaceTensor::stored(const at::Tensor& own_values) const {
  if (layout == Layout::transposed) return own_values.t().contiguous();
  if (layout == Layout::same) return own_values;
  const auto pairs = own_values.unflatten(0, {-1, head_rows / 2, 2});
  return pairs.transpose(1, 2).reshape(own.sizes);
}

int64_t HuggingFaceTensor::row(int64_t own_row) const {
  const int64_t in_head = own_row % head_rows;
  return own_row - in_head + in_head / 2 + in_head % 2 * (head_rows / 2);
}

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& shape) {
  return std::visit([](const auto& options) { return tensors_of(options); }, shape);
}

std::vector<std::string> linear_layers(const ModelShape& shape) {
  const std::string end = ".weight";
  std::vector<std::string> layers;
  for (const HuggingFaceTensor& tensor : hugging_face_tensors(shape)) {
    const std::string& name = tensor.own.name;
    const bool is_embedding = name.starts_with("wte.") || name.starts_with("wpe.") ||
                              name.starts_with("token_embeddings.");
    if (tensor.own.sizes.size() == 2 && !is_embedding)
      layers.push_back(name.substr(0, name.size() - end.size()));
  }
  return layers;
}

std::vector<ModelState::Parameter> parameters_of(const std::vector<HuggingFaceTensor>& tensors) {
  std::vector<ModelState::Parameter> parameters;
  for (const HuggingFaceTensor& tensor : tensors)
    parameters.push_back(tensor.own);
  return parameters;
}

HuggingFaceFolder::HuggingFaceFolder(const std::string& folder)
    : shape_(read_hugging_face_config(folder)),
      tensors_(hugging_face_tensors(shape_)),
      files_(open_files(folder)) {
  const bool gpt2 = std::holds_alternative<GPT2Options>(shape_);
  // Names of tensors in the files may lack this prefix.
  const std::string& prefix = gpt2 ? kGPT2Prefix : kLlamaPrefix;
  const auto without_prefix = [&](const std::string& name) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  };
  std::map<std::string, const HuggingFaceTensor*> expected{{kHeadName, &tensors_.front()}};
  for (const HuggingFaceTensor& tensor : tensors_)
    expected[without_prefix(tensor.name)] = &tensor;
  for (const auto& [file_name, file] : files_) {
    for (const auto& [name, entry] : file->entries()) {
      if (is_buffer(name)) continue;
      const auto tensor = expected.find(without_prefix(name));
      if (tensor == expected.end())
        refuse(*file, name,
               "belongs to no parameter of the model that " + kConfigFile + " describes");
      add({name, tensor->second, file.get(), &entry}, tensor->first == kHeadName);
    }
  }
  for (const HuggingFaceTensor& tensor : tensors_)
    if (!sources_.contains(tensor.own.name))
      throw std::runtime_error(folder + '/' + (files_.contains(kFile) ? kFile : kIndex) +
                               ": has no tensor " + tensor.name);
}

void HuggingFaceFolder::add(const Source& source, bool head) {
  const auto& [name, tensor, file, entry] = source;
  const auto dtype = entry->dtype;
  if (dtype != at::kFloat && dtype != at::kHalf && dtype != at::kBFloat16)
    refuse(*file, name, "has a dtype that is not F32, F16 or BF16");
  if (entry->sizes != tensor->sizes())
    refuse(*file, name,
           "has the shape " + shape_of(entry->sizes) + ", not " + shape_of(tensor->sizes()));
  const auto [other, is_new] = sources_.insert({head ? kHeadName : tensor->own.name, source});
  if (!is_new) refuse(*file, name, "is also here as " + other->second.name);
}

void HuggingFaceFolder::check_head(int part, int parts) const {
  const auto head = sources_.find(kHeadName);
  if (head == sources_.end() || tensors_.back().own.name == kHeadName) return;
  constexpr int64_t kPiece = 1 << 20;  // number of elements that are compared at a time
  const Source& embedding = sources_.at(tensors_.front().own.name);
  const int64_t numel = embedding.entry->numel;
  for (int64_t begin = part * kPiece; begin < numel; begin += parts * kPiece) {
    const int64_t end = std::min(begin + kPiece, numel);
    if (!head->second.read(begin, end)
             .to(at::kFloat)
             .equal(embedding.read(begin, end).to(at::kFloat)))
      refuse(*head->second.file, head->second.name,
             "differs from " + embedding.name + ", and they are one parameter here");
  }
}

at::Tensor HuggingFaceFolder::Source::read(int64_t begin, int64_t end) const {
  if (tensor->layout == Layout::transposed) return read_columns(begin, end);
  const at::Tensor elements = at::empty({end - begin}, entry->dtype);
  if (tensor->layout == Layout::same) {
    file->read(*entry, begin, elements);
    return elements;
  }
  const int64_t columns = entry->numel / entry->sizes[0];
  for (int64_t next, from = begin; from < end; from = next) {
    const int64_t row = from / columns;
    next = std::min((row + 1) * columns, end);
    file->read(*entry, (tensor->row(row) - row) * columns + from,
               elements.slice(0, from - begin, next - begin));
  }
  return elements;
}

at::Tensor HuggingFaceFolder::Source::read_columns(int64_t begin, int64_t end) const {
  const int64_t in = entry->sizes[0], out = entry->sizes[1];
  // The rows of our parameter that have the elements from `begin` to `end`.
  const int64_t first = begin / in, last = (end + in - 1) / in;
  const at::Tensor columns = at::empty({in, last - first}, entry->dtype);
  for (int64_t row = 0; row < in; ++row)
    file->read(*entry, row * out + first, columns[row]);
  return columns.t().reshape({-1}).narrow(0, begin - first * in, end - begin);
}

void HuggingFaceFolder::read(const StateRange& range) const {
  range.value.copy_(sources_.at(range.parameter).read(range.begin, range.end));
}

void load_hugging_face(const std::string& folder, const ModelState& state, Communicator& comm) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<HuggingFaceFolder> saved;
  agree_on(comm, [&] {
    saved = std::make_unique<HuggingFaceFolder>(folder);
    if (saved->parameters() != without_adapters(state.parameters))
      throw std::runtime_error(folder + '/' + kConfigFile + ": describes another model");
    saved->check_head(comm.rank(), comm.world_size());
  });
  agree_on(comm, [&] {
    for (const StateRange& range : state.ranges)
      if (!is_lora(range.parameter)) saved->read(range);
  });
}

}  // namespace fsdp
