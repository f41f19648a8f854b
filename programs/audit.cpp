// audit FILE: computes drawn pieces of a run again, in one process, and compares them with the
// receipt that the run has left.
#include <base/text.h>
#include <command_line/child.h>
#include <command_line/command_line.h>
#include <diff/run_hashes.h>
#include <options/options.h>
#include <receipt/audit_command.h>
#include <receipt/receipt.h>
#include <receipt/recomputation.h>
#include <receipt/signature.h>
#include <state/checkpoint_folder.h>
#include <state/folder_kind.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>

namespace fsdp {
namespace {

struct Settings {
  std::string receipt, checkpoint, program;
  std::vector<std::string> options;  // words of --options
  int64_t draw{3};
  int64_t microbatches{};  // 0: draws events
  bool no_files{};
  std::optional<uint64_t> seed;
  std::string public_key_file, public_key;  // the key is empty if no option names a file
};

Settings parse(int argc, char** argv) {
  Settings settings;
  CLI::App app("Computes drawn pieces of a run again, and compares them with its receipt.",
               "fsdp audit");
  app.get_formatter()->column_width(34);
  app.add_option("FILE", settings.receipt, "the file of train --receipt")->required();
  add_number(app, "--draw", settings.draw, NumberRange<int64_t>{1, kMany},
             "events to draw (default 3)");
  add_number(app, "--seed", settings.seed,
             NumberRange<uint64_t>{0, std::numeric_limits<uint64_t>::max()},
             "seed of the draw, to draw the same events again (default: another one each time)");
  add_number(app, "--microbatches", settings.microbatches, NumberRange<int64_t>{1, kMany},
             "in place of --draw: microbatches to draw, of the first step and of the steps after a "
             "checkpoint; each is computed alone, which is the shortest audit");
  app.add_option("--checkpoint", settings.checkpoint,
                 "folder with checkpoints of the run, to begin with the latest one before an event "
                 "(default: begin with the first step)");
  app.add_option_function<std::string>(
      "--options",
      [&settings](const std::string& text) { settings.options = CLI::detail::split_up(text); },
      "options of ./fsdp train in place of the run's, as \"--text BOOK.txt\"");
  app.add_option("--public-key", settings.public_key_file,
                 "refuse a receipt that was not signed with the private key that belongs to this "
                 "public key, a PEM file");
  app.add_flag("--no-files", settings.no_files,
               "refuse a receipt whose options name files, except those that --options replaces: "
               "for a receipt of somebody else");
  app.add_option("--binary", settings.program,
                 "the program that trains (./fsdp audit names its own)")
      ->required();
  parse_command_line(app, {argv + 1, argv + argc}, [&] {
    if (access(settings.program.c_str(), X_OK) != 0)
      throw UsageError("--binary " + settings.program + ": " + std::strerror(errno));
    if (app.count("--public-key") > 0)
      settings.public_key =
          naming_option("--public-key", [&] { return public_key_in(settings.public_key_file); });
    if (settings.microbatches > 0 && app.count("--draw") > 0)
      throw UsageError("--microbatches: excludes --draw");
    if (!settings.checkpoint.empty() && step_folders(settings.checkpoint).empty())
      throw UsageError("--checkpoint " + settings.checkpoint + ": " +
                       (kind_of_folder(settings.checkpoint) == FolderKind::checkpoint
                            ? "is one checkpoint; give the folder that has it"
                            : reason_for_no_checkpoint(settings.checkpoint)));
  });
  return settings;
}

// Prints a line. The text may have names of the receipt, which may have any characters.
void say(const std::string& text) {
  std::printf("%s\n", wrap(one_line(text), 100, 2).c_str());
  std::fflush(stdout);
}

// Throws std::invalid_argument if this machine computes with other kernels than the run did, so
// that its bits may differ although nothing is wrong.
void require_same_kernels(const Kernels& of_run) {
  const Kernels here = kernels_here();
  const auto require = [](const std::string& what, const std::string& run, const std::string& own) {
    if (run != own)
      throw std::invalid_argument("the run had " + what + ' ' + run + ", and this machine has " +
                                  own + ": their bits may differ, so nothing can be audited here");
  };
  require("LibTorch", of_run.libtorch, here.libtorch);
  require("kernels for", of_run.cpu, here.cpu);
  if (of_run.processor != here.processor)
    say("note: the run was on another processor, " + of_run.processor +
        "; if events differ, this can be the reason");
}

// While this object lives, a terminal shows what the program is doing.
class OnTerminal {
 public:
  explicit OnTerminal(const std::string& text) {
    if (!shown_) return;
    std::printf("%s", text.c_str());
    std::fflush(stdout);
  }
  ~OnTerminal() {
    if (!shown_) return;
    std::printf("\r\033[K");
    std::fflush(stdout);
  }
  OnTerminal(const OnTerminal&) = delete;

 private:
  bool shown_{isatty(STDOUT_FILENO) == 1};
};

// Trains the piece in a child process, and returns its hashes. Throws std::runtime_error with the
// message of the child if it fails.
RunHashes computed(const Settings& settings, const Receipt& receipt, const Recomputation& piece) {
  const OnTerminal progress("computing " + text_of(piece) + " again");
  const OwnFolder own("fsdp-audit");
  const std::string hashes = own.path() / "hashes", log = own.path() / "output";
  const AuditSources sources{settings.program, settings.checkpoint, settings.options};
  const auto end = run_child(audit_command(sources, receipt, piece, hashes), log);
  if (end.ok()) return read_hashes(hashes);
  const std::string error = error_in(log, "fsdp train");
  throw std::runtime_error(
      text_of(piece) + " can't be computed again: " + (error.empty() ? "it " + end.text() : error));
}

// Returns the steps before which the state is known: the first step of a run that begins with its
// seed, and those at which a checkpoint was saved.
std::set<int64_t> known_steps(const Settings& settings, const Receipt& receipt) {
  std::set<int64_t> known;
  if (receipt.sampling.first_step == 0) known.insert(0);
  if (settings.checkpoint.empty()) return known;
  for (const auto& [step, folder] : step_folders(settings.checkpoint))
    if (step >= receipt.sampling.first_step && step < receipt.sampling.end_step) known.insert(step);
  return known;
}

// Throws std::invalid_argument if the receipt has options with which no audit should run the
// program.
void require_safe_options(const Settings& settings, const Receipt& receipt) {
  try {
    check_audited_options(receipt.options, settings.no_files, names_in(settings.options));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(settings.receipt + ": its options: " + error.what());
  }
}

// Draws what is computed again, and says how much this is.
std::vector<Recomputation> drawn_pieces(const Settings& settings, const Receipt& receipt) {
  const uint64_t seed = settings.seed.value_or(std::random_device()());
  const std::set<int64_t> known = known_steps(settings, receipt);
  const std::string with_seed = " drawn with --seed " + std::to_string(seed);
  if (settings.microbatches > 0) {
    auto pieces =
        draw_microbatches(receipt, static_cast<size_t>(settings.microbatches), seed, known);
    say(std::to_string(pieces.size()) + (pieces.size() == 1 ? " microbatch" : " microbatches") +
        with_seed);
    return pieces;
  }
  Draw drawn = draw(receipt, static_cast<size_t>(settings.draw), seed, known);
  say(counted(static_cast<int64_t>(drawn.events.size()), "event") + with_seed);
  return drawn.recomputations;
}

// Throws std::invalid_argument unless the receipt was signed with the key that --public-key names.
void require_signature(const Settings& settings, const Receipt& receipt) {
  if (settings.public_key.empty()) {
    if (!receipt.signature.empty()) say("it is signed; --public-key checks with which key");
    return;
  }
  if (receipt.signature.empty())
    throw std::invalid_argument(settings.receipt + ": is not signed, and --public-key is given");
  if (!is_signed_by(settings.public_key, receipt.seal, receipt.signature))
    throw std::invalid_argument(settings.receipt +
                                ": was not signed with the key that belongs to " +
                                settings.public_key_file);
  say("signed with the key that belongs to " + settings.public_key_file);
}

int audit(const Settings& settings) {
  const Receipt receipt = read_receipt(settings.receipt);
  say(settings.receipt + ": steps " + std::to_string(receipt.sampling.first_step + 1) + " to " +
      std::to_string(receipt.sampling.end_step) + " of " +
      receipt.settings.at("model").get<std::string>() + " on " + counted(receipt.world, "rank") +
      ", " + counted(static_cast<int64_t>(receipt.leaves.size()), "event") + ", root " +
      receipt.root());
  require_signature(settings, receipt);
  require_safe_options(settings, receipt);
  require_same_kernels(receipt.kernels);
  const std::vector<Recomputation> pieces = drawn_pieces(settings, receipt);
  const auto start = std::chrono::steady_clock::now();
  for (const Recomputation& piece : pieces) {
    const Verdict verdict = compare_with(receipt, piece, computed(settings, receipt, piece));
    say(text_of(piece) + ": " + counted(verdict.equal, "event") + " equal");
    if (!verdict.wrong.empty()) {
      say("WRONG: " + verdict.wrong);
      if (!verdict.ranks.empty()) say("  " + makers(receipt, verdict.ranks));
      return 1;
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  char text[48];
  std::snprintf(text, sizeof text, "computed again in %.1f s", seconds.count());
  say(text);
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp audit", [&] {
    try {
      return fsdp::audit(fsdp::parse(argc, argv));
    } catch (const std::exception& error) {  // the receipt can't be audited here
      throw fsdp::UsageError(error.what());
    }
  });
}
