#include <nn/models.h>
#include <options/options.h>
#include <plan/train_command.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace fsdp {
namespace {

constexpr size_t kColumns = 100;
const char* const kPlain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+@%-";

std::string quoted(const std::string& word) {
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

bool on_several_hosts(const PlanSettings& settings, const TrainConfig& config) {
  return config.ranks.mode != Mode::single && config.ranks.world > settings.machine.ranks_per_host;
}

// Returns the first words of the command: ./fsdp train or, for several hosts, torchrun with its
// options and then ./fsdp train.
std::vector<std::string> beginning(const PlanSettings& settings, const TrainConfig& config) {
  if (!on_several_hosts(settings, config)) return {"./fsdp train"};
  const int of_host = settings.machine.ranks_per_host;
  const int hosts = (config.ranks.world + of_host - 1) / of_host;
  return {"torchrun",
          "--nnodes " + std::to_string(hosts),
          "--nproc-per-node " + std::to_string(of_host),
          "--rdzv-backend c10d",
          "--rdzv-endpoint HOST:29500",
          "--no-python",
          "-- ./fsdp train"};
}

// Returns whether the command needs --data pattern to train the model of the plan. Without it,
// ./fsdp train uses a text, whose 256 token ids (bytes) would enlarge the vocabulary of a small
// model.
bool text_changes_model(const PlanSettings& settings, const TrainConfig& config) {
  constexpr int64_t kBytes = 256;  // number of different token ids: a token of a text is a byte
  return settings.plans_pattern && config.model.vocabulary == 0 &&
         model_info(config.model.name).vocabulary < kBytes;
}

// Appends `words` to `pieces`. An option and its values become one piece, which in_lines() does not
// break.
void append_options(std::vector<std::string>& pieces, const std::vector<std::string>& words) {
  bool begins = true;
  for (const std::string& word : words) {
    if (begins || word.starts_with("--")) {
      pieces.push_back(quoted(word));
    } else {
      pieces.back() += ' ' + quoted(word);
    }
    begins = false;
  }
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;)
    words.push_back(word);
  return words;
}

std::string in_lines(const std::vector<std::string>& pieces) {
  std::string text, line = "  ";
  for (const std::string& piece : pieces) {
    if (line.size() + piece.size() + 3 > kColumns && line.size() > 6) {
      text += line + "\\\n";
      line = "      ";
    }
    line += piece + ' ';
  }
  line.pop_back();
  return text + line + '\n';
}

}  // namespace

std::string train_command(const PlanSettings& settings, const TrainConfig& config,
                          const std::string& options) {
  std::vector<std::string> pieces = beginning(settings, config);
  const std::string& backend = settings.machine.backend;
  if (backend == "nccl") pieces.emplace_back("--device cuda");
  if (backend == "gloo") pieces.emplace_back("--backend gloo");
  append_options(pieces, settings.train_options(config.ranks.world));
  if (!on_several_hosts(settings, config))
    pieces.push_back("--world " + std::to_string(config.ranks.world));
  if (text_changes_model(settings, config)) pieces.emplace_back("--data pattern");
  if (settings.rows_fill_context) pieces.push_back("--seq " + std::to_string(config.training.seq));
  append_options(pieces, words_of(options));
  return in_lines(pieces);
}

std::string notes_on_command(const PlanSettings& settings, const TrainConfig& config) {
  std::string text;
  if (config.ranks.mode != Mode::single && config.ranks.world > kMaxTrainingWorld)
    text += "(train runs on at most " + std::to_string(kMaxTrainingWorld) +
            " ranks; on more, only the plan exists)\n";
  if (on_several_hosts(settings, config))
    text += "(on each host; HOST is the address of one of them)\n";
  if (config.memory.offload_dir == "DIR") text += "(DIR is a folder on a disk)\n";
  if (settings.machine.backend == "nccl" && settings.machine_name.empty())
    text += "(for ranks on the CPU, give plan --backend shm)\n";
  return text;
}

}  // namespace fsdp
