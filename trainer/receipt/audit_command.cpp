#include <command_line/config_file.h>
#include <receipt/audit_command.h>
#include <state/checkpoint_folder.h>

#include <filesystem>
#include <set>

namespace fsdp {

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
