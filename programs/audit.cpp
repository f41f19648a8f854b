// audit FILE: draws pieces of a training run at random, computes them again in one process, and
// compares their hashes with FILE, the receipt that the run wrote.
#include <base/text.h>
#include <command_line/child.h>
#include <command_line/command_line.h>
#include <diff/run_hashes.h>
#include <options/options.h>
#include <receipt/audit_command.h>
#include <receipt/receipt.h>
#include <receipt/recomputation.h>
#include <receipt/signature.h>
#include <state/checkpoint.h>
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
  std::vector<std::string> options;  // the value of --options (options of train), split into words
  int64_t draw{3};
  // Number of microbatches that audit() draws at random to compute them again; 0: audit() draws
  // events and not microbatches.
  int64_t microbatches{};
  bool no_files{};
  std::optional<uint64_t> seed;
  // public_key: content of the file that --public-key names; empty if the option is not given.
  std::string public_key_file, public_key;
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

// Prints the text on stdout, in lines of at most 100 columns. one_line() makes it printable first,
// because it can contain a name from the receipt, which may have any characters.
void say(const std::string& text) {
  std::printf("%s\n", wrap(one_line(text), 100, 2).c_str());
  std::fflush(stdout);
}

// Throws std::invalid_argument if the run used another version of LibTorch than this machine, or
// kernels for other instructions (such as AVX512), because the bits may then differ although
// nothing is wrong. If only the processor differs, prints a note.
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

// If stdout is a terminal, shows `text` there until the destructor erases it; else prints nothing.
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

// Runs the train program on `piece` in a child process, and returns the hashes that it writes. If
// the train program fails, throws std::runtime_error with its error.
RunHashes computed(const Settings& settings, const Receipt& receipt, const Recomputation& piece) {
  const OnTerminal progress("computing " + text_of(piece) + " again");
  const OwnFolder own("fsdp-audit");
  const std::string hashes = own.path() / "hashes", log = own.path() / "output";
  const AuditSources sources{settings.program, settings.checkpoint, settings.options};
  const auto end = run_child(audit_command(sources, receipt, piece, hashes), log);
  if (end.ok()) return read_hashes(hashes);
  const std::string error = error_in(log, "fsdp train");
  // Status 2 says that ./fsdp train refuses an option. Most of its options are those of the
  // receipt.
  const std::string advice = end.code == 2 ? "; audit --options replaces an option of the run" : "";
  throw std::runtime_error(text_of(piece) + " can't be computed again: " +
                           (error.empty() ? "it " + end.text() : error + advice));
}

// Throws std::invalid_argument if a piece begins with a checkpoint that is not of the receipt's
// run, and std::runtime_error if this checkpoint can't be read.
void require_checkpoints_of_run(const Settings& settings, const Receipt& receipt,
                                const std::vector<Recomputation>& pieces) {
  for (const Recomputation& piece : pieces)
    if (piece.first_step > 0)
      require_checkpoint_of_run(
          receipt, find_checkpoint(step_folders(settings.checkpoint).at(piece.first_step)),
          settings.checkpoint);
}

// Returns the steps, counted from 0, from whose start an audit can compute: step 0 if the receipt
// begins there, because then the seed gives the state; and each step of the receipt before which a
// checkpoint in the folder of --checkpoint was saved.
std::set<int64_t> known_steps(const Settings& settings, const Receipt& receipt) {
  std::set<int64_t> known;
  if (receipt.sampling.first_step == 0) known.insert(0);
  if (settings.checkpoint.empty()) return known;
  for (const auto& [step, folder] : step_folders(settings.checkpoint))
    if (step >= receipt.sampling.first_step && step < receipt.sampling.end_step) known.insert(step);
  return known;
}

// Throws std::invalid_argument if check_audited_options() rejects an option of the receipt. The
// author of the receipt may be unknown, and the audit runs ./fsdp train with these options.
void require_safe_options(const Settings& settings, const Receipt& receipt) {
  try {
    check_audited_options(receipt.options, settings.no_files, names_in(settings.options));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(settings.receipt + ": its options: " + error.what());
  }
}

// Draws the pieces that the audit computes again. Prints how many events or microbatches were
// drawn, and the seed of the draw.
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

// If --public-key is given, throws std::invalid_argument unless the receipt was signed with the
// private key that belongs to that public key.
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
  require_checkpoints_of_run(settings, receipt, pieces);
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
    } catch (const std::exception& error) {  // the receipt can't be audited here: exit status 2
      throw fsdp::UsageError(error.what());
    }
  });
}
