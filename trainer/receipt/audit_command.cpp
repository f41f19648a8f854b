#include <base/text.h>
#include <command_line/config_file.h>
#include <receipt/audit_command.h>
#include <state/checkpoint_folder.h>

#include <filesystem>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

// Returns the first setting that differs between the run of a checkpoint and the receipt's run, in
// words; "" if none differs. nlohmann::json compares objects without the order of their members.
std::string difference_from_receipt(const nlohmann::json& saved, const nlohmann::json& receipt) {
  static const std::set<std::string> may_differ{"parts", "steps", "loss_scaler"};
  const auto value_in = [](const nlohmann::json& settings, const std::string& name) {
    return settings.is_object() ? settings.value(name, nlohmann::json()) : nlohmann::json();
  };
  const auto text_of_value = [](const nlohmann::json& value) {
    return value.is_null() ? "none" : value.dump();
  };
  for (const nlohmann::json* settings : {&receipt, &saved}) {
    for (const auto& [name, value] : settings->items()) {
      const auto theirs = value_in(saved, name), own = value_in(receipt, name);
      if (may_differ.contains(name) || theirs == own) continue;
      if (name == "text_sha256") return "it was trained on another text";
      return "it was trained with " + name + ' ' + text_of_value(theirs) +
             ", and the receipt's run with " + text_of_value(own);
    }
  }
  return "";
}

}  // namespace

void require_checkpoint_of_run(const Receipt& receipt, const Checkpoint& checkpoint,
                               const std::string& folder) {
  const std::string difference = difference_from_receipt(checkpoint.run, receipt.settings);
  if (difference.empty()) return;
  throw std::invalid_argument("--checkpoint " + folder + ": its checkpoint of step " +
                              std::to_string(checkpoint.step) +
                              " is of another run than the receipt: " + one_line(difference) +
                              "; give --checkpoint the folder with the checkpoints of the "
                              "receipt's run");
}

std::set<std::string> names_in(const std::vector<std::string>& words) {
  std::set<std::string> names;
  for (const std::string& word : words)
    if (word.starts_with("--")) names.insert(word.substr(2, word.find('=') - 2));
  return names;
}

std::vector<std::string> audit_command(const AuditSources& sources, const Receipt& receipt,
                                       const Recomputation& piece, const std::string& hashes) {
  const bool resumes = piece.first_step > 0;
  std::vector<std::string> command{std::filesystem::absolute(sources.program).string()};
  std::set<std::string> replaced = names_in(sources.options);
  // The checkpoint has the parameters, so the command needs neither --init nor --model.
  if (resumes) replaced.insert({"init", "model"});
  for (const ConfigLine& line : read_config(receipt.options)) {
    if (replaced.contains(line.name)) continue;
    // Writes "--name=value" as one word, because a value that begins with dashes would be parsed as
    // another option if it were a word of its own.
    for (const std::string& value : line.values)
      command.push_back("--" + line.name + '=' + value);
  }
  if (resumes) {
    const auto folders = step_folders(sources.checkpoints);
    command.insert(command.end(), {"--model", receipt.settings.at("model").get<std::string>(),
                                   "--resume", folders.at(piece.first_step)});
  }
  command.insert(command.end(),
                 {"--mode", "single", "--world", std::to_string(receipt.world), "--microbatches",
                  receipt.settings.at("parts").dump(), "--stop-after",
                  std::to_string(piece.end_step), "--hashes", hashes});
  if (piece.microbatch)
    command.insert(command.end(), {"--only-microbatch", std::to_string(*piece.microbatch)});
  command.insert(command.end(), sources.options.begin(), sources.options.end());
  return command;
}

std::string text_of(const Recomputation& piece) {
  const std::string first = std::to_string(piece.first_step + 1);
  if (piece.microbatch)
    return "step " + first + ", microbatch " + std::to_string(*piece.microbatch);
  return piece.end_step == piece.first_step + 1
             ? "step " + first
             : "steps " + first + " to " + std::to_string(piece.end_step);
}

std::string makers(const Receipt& receipt, const std::vector<int>& ranks) {
  std::string text = "made by";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i > 0 ? ", rank " : " rank ") + std::to_string(ranks[i]) + " on " +
            receipt.hosts.at(static_cast<size_t>(ranks[i]));
  return text;
}

}  // namespace fsdp
