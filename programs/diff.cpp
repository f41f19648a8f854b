// diff --a "OPTIONS" --b "OPTIONS": trains with each of the two lists of options, and prints where
// the bits of the two runs first differ.
#include <base/text.h>
#include <base/whole_file.h>
#include <command_line/child.h>
#include <command_line/command_line.h>
#include <diff/run_hashes.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

namespace fsdp {
namespace {

struct Run {
  std::string name;     // name of the run: "a" or "b"
  std::string options;  // the options with which ./fsdp train makes this run
  std::string program{};
  std::string record{};   // folder that the run makes with train --record; empty: it makes none
  std::string path{};     // path of the run's hashes: a folder that train --hashes wrote, or a file
  std::string failure{};  // the error that the run printed; empty if the run succeeded
  RunHashes hashes{};
};

struct Settings {
  Run a{"a", ""}, b{"b", ""};
  std::string save, record;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains twice, and prints where the bits of the two runs first differ.",
               "fsdp diff");
  app.get_formatter()->column_width(34);
  app.add_option(
         "--a", settings.a.options,
         "options of ./fsdp train, as \"--mode single --world 4\"; unless given, --model is "
         "gpt2-tiny and --steps is 2")
      ->required();
  auto* b = app.add_option("--b", settings.b.options,
                           "options of the other run, as \"--mode fsdp --world 4 --stack mine\"");
  auto* against = app.add_option("--against", settings.b.path,
                                 "in place of --b: a file of --save, or a folder of train --hashes")
                      ->excludes(b);
  auto* save = app.add_option("--save", settings.save, "write the hashes of a to this file");
  app.add_option("--record", settings.record,
                 "if the bits differ, record the ranks of b in this new folder, with what differs "
                 "first (./fsdp why reads it)")
      ->needs(b);
  app.add_option("--binary-a", settings.a.program,
                 "the program that trains (./fsdp diff names its own)")
      ->required();
  app.add_option("--binary-b", settings.b.program,
                 "the program that trains b, for example one built with another LibTorch");
  parse_command_line(app, {argv + 1, argv + argc}, [&] {
    if (b->empty() && against->empty() && save->empty())
      throw UsageError("--a needs --b, --against or --save");
    if (!save->empty()) {
      check_output("--save", settings.save, reason_not_to_write(settings.save));
      std::vector<std::string> words = CLI::detail::split_up(settings.a.options);
      for (const std::string& word : CLI::detail::split_up(settings.b.options))
        words.push_back(word);
      if (!against->empty()) words.push_back(settings.b.path);
      check_not_read("--save", settings.save, words);
      if (!against->empty() && lies_below(settings.save, settings.b.path))
        throw UsageError("--save " + settings.save +
                         ": lies in the folder of --against; give a file outside of it");
    }
    if (settings.b.program.empty()) settings.b.program = settings.a.program;
    for (const Run* run : {&settings.a, &settings.b})
      if (access(run->program.c_str(), X_OK) != 0)
        throw UsageError("--binary-" + run->name + ' ' + run->program + ": " +
                         std::strerror(errno));
    if (!against->empty() && access(settings.b.path.c_str(), R_OK) != 0)
      throw UsageError("--against " + settings.b.path + ": " + std::strerror(errno));
  });
  return settings;
}

std::vector<std::string> command_of(const Run& run, const std::string& capture) {
  std::vector<std::string> command = CLI::detail::split_up(run.options);
  const auto given = [&](const char* option) {
    return run.options.find(option) != std::string::npos;
  };
  command.insert(command.begin(), std::filesystem::absolute(run.program).string());
  if (!given("--steps")) command.insert(command.end(), {"--steps", "2"});
  if (!given("--model") && !given("--recipe") && !given("--config") && !given("--init") &&
      !given("--resume"))
    command.insert(command.end(), {"--model", "gpt2-tiny"});
  if (!run.path.empty()) command.insert(command.end(), {"--hashes", run.path});
  if (!capture.empty()) command.insert(command.end(), {"--capture", capture});
  if (!run.record.empty()) command.insert(command.end(), {"--record", run.record});
  return command;
}

// Asks the train program for the settings that decide which numbers the run computes. Returns null
// if the program fails to print them, because the training then fails too and prints the reason;
// and if no training is needed (--against).
nlohmann::json settings_of(const Run& run, const std::string& folder) {
  if (run.options.empty()) return nullptr;
  Run asked = run;
  asked.path.clear();
  std::vector<std::string> command = command_of(asked, "");
  command.emplace_back("--print-settings");
  const std::string output = folder + "/settings";
  if (!run_child(command, output).ok()) return nullptr;
  std::istringstream lines(content_of(output));
  nlohmann::json settings;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with('{')) settings = nlohmann::json::parse(line, nullptr, false);
  return settings.is_object() ? settings : nlohmann::json();
}

// Throws std::invalid_argument if settings that decide the numbers differ between the two runs.
// diff() calls it before it trains, so that the error comes early.
void compare_settings(const Run& a, const Run& b, const std::string& folder) {
  const nlohmann::json of_a = settings_of(a, folder), of_b = settings_of(b, folder);
  if (of_a.is_object() && of_b.is_object()) require_equal_settings(of_a, of_b);
}

// Runs the train program with the options of `run`. The program writes its hashes and its output
// into `folder`; then train() reads the hashes into run.hashes. Throws UsageError if the program
// rejects the options, and std::runtime_error if it fails before it writes hashes. If it fails
// later, run.failure has its error.
void train(Run& run, const std::string& folder, const std::string& capture = "") {
  run.path = folder + '/' + run.name;
  std::filesystem::remove_all(run.path);  // removes the hashes of an earlier training
  const std::string log = folder + "/output";
  const ChildProgram::End end = run_child(command_of(run, capture), log);
  run.failure = end.ok() ? "" : error_in(log, "fsdp train");
  if (!end.ok() && run.failure.empty()) run.failure = "it " + end.text();
  if (end.code == 2) throw UsageError("--" + run.name + ": " + run.failure);
  try {
    run.hashes = read_hashes(run.path);
  } catch (const std::runtime_error&) {
    if (end.ok()) throw;
    // The hashes of the run can't be read, because the run failed before it wrote them.
    throw std::runtime_error(run.name + " failed: " + run.failure);
  }
}

void say(const std::string& text) {
  std::printf("%s\n", wrap(text, 100, 2).c_str());
  std::fflush(stdout);
}

// Writes what differs first in run b, the event `key`, into the folder b.record, for ./fsdp why
// (programs/why/question.h).
void keep_difference(const EventKey& key, const Run& a, const Run& b) {
  nlohmann::json wrong{{"test", "b (" + b.options + ')'},
                       {"run", 0},
                       {"rank", 0},
                       {"name", place_of(key, a.hashes, b.hashes)},
                       {"text", differing_values(key, a.hashes, b.hashes).front()}};
  if (const auto found = first_differing_element(key, a.hashes, b.hashes)) {
    char is[32], expected[32];
    std::snprintf(is, sizeof is, "%.9g", found->b);
    std::snprintf(expected, sizeof expected, "%.9g", found->a);
    wrong.update({{"rank", found->rank},
                  {"element", found->element},
                  {"right", found->right},
                  {"place", found->index},
                  {"is", is},
                  {"microbatches", found->of_microbatches},
                  {"others", found->others},
                  {"expected", expected},
                  {"text", found->index + " is " + is + ", and " + expected + " in a"}});
  }
  write_whole_file(b.record + "/wrong", wrong.dump());
}

// Records run b, which has failed, for ./fsdp why.
void keep_failure(Run& b, const Settings& settings, const std::string& folder) {
  b.record = settings.record;
  train(b, folder);
  const std::string begin = "rank ";
  const bool names_rank = b.failure.starts_with(begin);
  const int64_t rank = names_rank ? std::strtol(b.failure.c_str() + begin.size(), nullptr, 10) : 0;
  const nlohmann::json wrong{
      {"test", "b (" + b.options + ')'}, {"rank", rank}, {"name", ""}, {"text", b.failure}};
  write_whole_file(b.record + "/wrong", wrong.dump());
}

void show_values(const EventKey& key, Run& a, Run& b, const Settings& settings,
                 const std::string& folder) {
  const std::string name = nlohmann::json(key).dump();
  train(a, folder, name);
  if (!b.options.empty()) {
    b.record = settings.record;
    train(b, folder, name);
    if (!b.record.empty()) keep_difference(key, a, b);
  }
  for (const std::string& line : differing_values(key, a.hashes, b.hashes))
    say("  " + line);
  if (b.options.empty())
    say("  values of b come from a folder of train --hashes DIR --capture '" + name + '\'');
}

int compare_and_tell(Settings& settings, const std::string& folder) {
  Run &a = settings.a, &b = settings.b;
  const bool failed = !a.failure.empty() || !b.failure.empty();
  const Comparison found = compare(a.hashes, b.hashes, failed);
  for (const Run* run : {&a, &b})
    if (!run->failure.empty()) say(run->name + " failed: " + run->failure);
  for (const std::string& kind : found.left_out)
    say("left out: " + kind);
  if (found.first) {
    say("the bits first differ in " + place_of(*found.first, a.hashes, b.hashes));
    show_values(*found.first, a, b, settings, folder);
  } else {
    say((failed ? "before the failure the bits are equal: " : "the bits are equal: ") +
        counted(found.equal, "event"));
    if (!b.failure.empty() && !settings.record.empty()) keep_failure(b, settings, folder);
    if (found.end) say("the failed run ended before " + place_of(*found.end, a.hashes, b.hashes));
  }
  return found.first || failed ? 1 : 0;
}

int diff(Settings settings) {
  Run &a = settings.a, &b = settings.b;
  const OwnFolder own("fsdp-diff");
  const std::string folder = own.path();
  compare_settings(a, b, folder);
  train(a, folder);
  if (!settings.save.empty()) {
    if (!a.failure.empty()) throw std::runtime_error("a failed: " + a.failure);
    std::string all;
    for (const auto& file : std::filesystem::directory_iterator(a.path))
      all += content_of(file.path().string());
    write_whole_file(settings.save, all);
  }
  if (b.options.empty() && b.path.empty()) return 0;
  if (b.options.empty()) b.hashes = read_hashes(b.path);
  if (!b.options.empty()) train(b, folder);
  return compare_and_tell(settings, folder);
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp diff", [&] {
    try {
      return fsdp::diff(fsdp::parse(argc, argv));
    } catch (const std::invalid_argument& error) {  // the runs can't be compared: exit status 2
      throw fsdp::UsageError(error.what());
    }
  });
}
