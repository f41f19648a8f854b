#include <ATen/Version.h>
#include <base/file_field.h>
#include <base/whole_file.h>
#include <digest/sha256.h>
#include <receipt/merkle_tree.h>
#include <receipt/receipt.h>
#include <receipt/signature.h>
#include <state/untrusted_json.h>
#include <torch/version.h>

#include <span>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr int64_t kMostMicrobatches = 1 << 16;  // the most microbatches in a step of ./fsdp train

// Returns the text that is hashed as a leaf of the Merkle tree. It has only the members of an event
// that do not depend on how the work is divided among the ranks.
std::string text_in_tree(const EventKey& key, const EventHash& event) {
  json text = key;
  text.update({{"unit", event.unit}, {"hash", event.hash}, {"numel", event.numel}});
  return text.dump();
}

std::string line_of(const EventKey& key, const Leaf& leaf) {
  json line = key;
  line.update(json(leaf.event));
  line["ranks"] = leaf.ranks;
  return line.dump();
}

std::string head_of(const Receipt& receipt) {
  return json{{"receipt", kVersion},         {"settings", receipt.settings},
              {"options", receipt.options},  {"world", receipt.world},
              {"hosts", receipt.hosts},      {"kernels", receipt.kernels},
              {"sampling", receipt.sampling}}
      .dump();
}

std::string seal_of(const std::string& lines, const std::string& root) {
  Sha256 seal;
  seal.update(std::as_bytes(std::span(lines)));
  seal.update(std::as_bytes(std::span(root)));
  return seal.hex();
}

std::string end_of(size_t leaves, const std::string& root, const std::string& seal,
                   const std::string& signature) {
  json end{{"leaves", leaves}, {"root", root}, {"seal", seal}};
  if (!signature.empty()) end["signature"] = signature;
  return end.dump();
}

// Returns the signature in `end`, the last line of a receipt, or "" if the line has none.
std::string signature_in(const std::string& end) {
  const json line = json::parse(end, nullptr, /*allow_exceptions=*/false);
  return line.is_object() ? line.value("signature", "") : "";
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::runtime_error(otherwise);
}

void read_head(const std::string& text, Receipt& receipt) {
  json line;
  try {
    line = read_json_object<json>(text);
  } catch (const std::runtime_error&) {  // not a JSON object, or nested too deep: require() throws
  }
  require(line.contains("receipt") && line["receipt"].is_number_integer(),
          "is not a receipt of ./fsdp train");
  require(line["receipt"] == kVersion, "has another format, " + line["receipt"].dump() + ", and " +
                                           std::to_string(kVersion) + " is read here");
  line.at("settings").get_to(receipt.settings);
  line.at("options").get_to(receipt.options);
  line.at("world").get_to(receipt.world);
  line.at("hosts").get_to(receipt.hosts);
  line.at("kernels").get_to(receipt.kernels);
  line.at("sampling").get_to(receipt.sampling);
  const Sampling& sampling = receipt.sampling;
  const json parts = receipt.settings.value("parts", json());
  require(receipt.settings.value("model", json()).is_string() && parts.is_number_integer() &&
              parts >= 1 && parts <= kMostMicrobatches,
          "has no settings of a run");
  require(sampling.every > 0 && sampling.first_step >= 0 && sampling.save_every >= 0 &&
              sampling.end_step > sampling.first_step,
          "has a sampling that no run has");
  require(!receipt.hosts.empty() && receipt.world > 0, "names no ranks");
}

void read_leaf(const std::string& text, Receipt& receipt) {
  const json line = json::parse(text);
  const auto key = line.get<EventKey>();
  const Leaf leaf{line.get<EventHash>(), line.at("ranks").get<std::vector<int>>()};
  const Sampling& sampling = receipt.sampling;
  require(line_of(key, leaf) == text, "is not written as a leaf is");
  require(key.step >= sampling.first_step && key.step < sampling.end_step,
          "has step " + std::to_string(key.step + 1) + ", which is not of this run");
  require(key.part >= -1 && key.part < receipt.settings["parts"].get<int>(),
          "has a microbatch that the run does not have");
  require(sampling.selects(key), "has an event that the receipt does not sample");
  require(receipt.leaves.empty() || receipt.leaves.rbegin()->first < key,
          "is doubled or not in order");
  require(!leaf.ranks.empty(), "names no rank");
  for (const int rank : leaf.ranks)
    require(rank >= 0 && static_cast<size_t>(rank) < receipt.hosts.size(),
            "names rank " + std::to_string(rank) + ", which the run does not have");
  receipt.leaves.emplace_hint(receipt.leaves.end(), key, leaf);
}

}  // namespace

Kernels kernels_here() {
  return {TORCH_VERSION, at::get_cpu_capability(), field_of_file("/proc/cpuinfo", "model name")};
}

std::string Receipt::root() const {
  std::vector<std::string> texts;
  for (const auto& [key, leaf] : leaves)
    texts.push_back(text_in_tree(key, leaf.event));
  return merkle_root(texts);
}

std::string write_receipt(const std::string& path, const Receipt& receipt,
                          const std::string& private_key) {
  const std::string root = receipt.root();
  std::string lines = head_of(receipt) + '\n';
  for (const auto& [key, leaf] : receipt.leaves)
    lines += line_of(key, leaf) + '\n';
  const std::string seal = seal_of(lines, root);
  const std::string signature = private_key.empty() ? "" : sign(seal, private_key);
  write_whole_file(path, lines + end_of(receipt.leaves.size(), root, seal, signature) + '\n');
  return root;
}

Receipt read_receipt(const std::string& path) {
  const std::string reason = reason_not_to_read(path);
  if (!reason.empty()) throw std::runtime_error(path + ": " + reason);
  const std::string content = content_of(path);
  if (content.empty()) throw std::runtime_error(path + ": is empty, or not a file");
  std::istringstream file(content);
  Receipt receipt;
  std::string text, next, lines;
  int64_t number = 0;
  try {
    bool more = static_cast<bool>(std::getline(file, text));
    while (more) {
      ++number;
      more = static_cast<bool>(std::getline(file, next));
      if (!more) break;  // `text` is the last line of the receipt
      number == 1 ? read_head(text, receipt) : read_leaf(text, receipt);
      lines += text + '\n';
      text = next;
    }
    require(number > 1, "is not a receipt of ./fsdp train, or cut off");
    require(content.back() == '\n' && text.find("\"seal\"") != std::string::npos,
            "is cut off: the last line of a receipt has its root and its seal");
    const std::string root = receipt.root();
    receipt.seal = seal_of(lines, root);
    receipt.signature = signature_in(text);
    require(text == end_of(receipt.leaves.size(), root, receipt.seal, receipt.signature),
            "has another root, seal or number of leaves than its lines: the file was changed");
  } catch (const std::exception& error) {
    const bool parsed = dynamic_cast<const json::exception*>(&error) == nullptr;
    throw std::runtime_error(path + ", line " + std::to_string(number) + ": " +
                             (parsed ? error.what() : "is not a line of a receipt"));
  }
  return receipt;
}

}  // namespace fsdp
