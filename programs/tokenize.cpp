#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <data/token_file_writer.h>
#include <state/files.h>
#include <tokenizer/tokenizer.h>
#include <tokenizer/tokenizer_folder.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

// The program of ./fsdp tokenize: writes a text as a file of token ids, which ./fsdp train --tokens
// reads.

namespace fsdp {
namespace {

struct Settings {
  std::string tokenizer, input, output;
  bool only_text{};
};

Settings parse(int argc, char** argv) {
  Settings settings;
  CLI::App app("Writes a text as a file of token ids, for train --tokens.", "fsdp tokenize");
  app.get_formatter()->column_width(34);
  app.add_option("--tokenizer", settings.tokenizer,
                 "a tokenizer.json of byte-level BPE, or a folder that has one")
      ->required();
  app.add_option("--input", settings.input,
                 "a file of text; special tokens such as <|endoftext|> may be in it")
      ->required()
      ->type_name("FILE");
  add_advice(app, "--text", "--input takes the text");
  app.add_option("--output", settings.output,
                 "the file to write: ids of 16 bits, or of 32 bits if an id does not fit")
      ->required()
      ->type_name("FILE");
  app.add_flag("--only-text", settings.only_text,
               "leave out the special tokens that the tokenizer adds before and after a text");
  parse_command_line(app, {argv + 1, argv + argc}, [&] {
    if (const auto reason = reason_not_to_read(settings.input); !reason.empty())
      throw UsageError("--input " + settings.input + ": " + reason);
    if (same_file(settings.input, settings.output))
      throw UsageError("--output " + settings.output + ": is the file of --input");
    if (would_replace_tokenizer(settings.output, settings.tokenizer))
      throw UsageError("--output " + settings.output +
                       ": is the tokenizer, or a file that belongs to it; give another file");
    check_output("--output", settings.output, reason_not_to_write(settings.output));
  });
  return settings;
}

// Prints on stderr how much of the text has been tokenized. It prints nothing in the first two
// seconds; then, on a terminal, a line that is replaced twice a second and removed at the end;
// otherwise one line only.
class Progress {
 public:
  explicit Progress(size_t all) : all_(all) {}
  ~Progress() {
    if (printed_ && terminal_) std::fputs("\r\033[K", stderr);
  }
  Progress(const Progress&) = delete;

  void add(size_t bytes) {
    done_ += bytes;
    // Reads the clock only in every 4096th call, because reading it takes as long as tokenizing a
    // short token.
    if (++calls_ % 4096 != 0 || Clock::now() < next_ || (printed_ && !terminal_)) return;
    const double percent = 100 * static_cast<double>(done_) / static_cast<double>(all_);
    std::fprintf(stderr, terminal_ ? "\r\033[Ktokenizing: %.0f %%" : "tokenizing: %.0f %% so far\n",
                 percent);
    printed_ = true;
    next_ = Clock::now() + std::chrono::milliseconds(500);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const size_t all_;  // [bytes] length of the whole text
  const bool terminal_{isatty(STDERR_FILENO) == 1};
  Clock::time_point next_{Clock::now() + std::chrono::seconds(2)};
  size_t done_{}, calls_{};  // done_: [bytes] of the text that are tokenized so far
  bool printed_{};
};

int tokenize(const Settings& settings) {
  const Tokenizer tokenizer =
      naming_option("--tokenizer", [&] { return Tokenizer(settings.tokenizer); });
  const std::string text = read_text(settings.input, std::numeric_limits<int64_t>::max());
  if (text.empty()) throw std::runtime_error(settings.input + ": is empty");
  if (text.find('\0') != std::string::npos)
    std::fprintf(stderr, "fsdp tokenize: %s has a byte of 0, so it may not be a text\n",
                 settings.input.c_str());
  TokenFileWriter file(tokenizer.size());
  {
    Progress progress(text.size());
    const auto special =
        settings.only_text ? Tokenizer::Template::leave_out : Tokenizer::Template::add;
    tokenizer.encode(text, special, [&](std::span<const int32_t> ids) {
      file.add(ids);
      for (const int32_t id : ids)
        progress.add(tokenizer.bytes_of(id).size());
    });
  }
  file.write(settings.output);
  std::printf(
      "wrote %s: %lld tokens of %lld bits, from %zu bytes of text; the ids are below %lld\n",
      settings.output.c_str(), static_cast<long long>(file.count()),
      static_cast<long long>(file.bits()), text.size(), static_cast<long long>(tokenizer.size()));
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  using namespace fsdp;
  return run_program("fsdp tokenize", [&] { return tokenize(parse(argc, argv)); });
}
