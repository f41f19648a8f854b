#include <base/plain_error.h>
#include <base/standard_output.h>
#include <base/whole_file.h>
#include <command_line/child.h>
#include <command_line/run_program.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

namespace fsdp {

void check_output(const std::string& option, const std::string& path, const std::string& reason) {
  if (path == "-") throw UsageError(option + " -: - is not a file; give /dev/stdout");
  if (!reason.empty()) throw UsageError(option + ' ' + path + ": " + reason);
}

void check_not_read(const std::string& option, const std::string& path,
                    const std::vector<std::string>& words) {
  static const std::string kHuggingFace = "hf:";
  for (const std::string& word : words) {
    const bool has_value = word.starts_with("--") && word.find('=') != std::string::npos;
    const std::string name = has_value ? word.substr(word.find('=') + 1) : word;
    const bool is_folder = name.starts_with(kHuggingFace);
    if (is_folder ? lies_below(path, name.substr(kHuggingFace.size())) : same_file(path, name))
      throw UsageError(option + ' ' + path + ": would replace " +
                       (is_folder ? "a file of the model " : "the file ") + name +
                       ", which is read; give another file");
  }
}

int run_program(const std::string& name, const std::function<int()>& body) {
  // With SIGXFSZ ignored, a write beyond the limit on file sizes (RLIMIT_FSIZE) fails with EFBIG,
  // which is reported, and does not kill the process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int status = body();
    const std::string lost = lost_output();
    if (status == 0 && !lost.empty()) throw std::runtime_error(lost);
    return status;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), plain_text(error).c_str());
    return 1;
  } catch (const Interrupted& interrupted) {
    std::signal(interrupted.signal, SIG_DFL);
    raise(interrupted.signal);
    _exit(128 + interrupted.signal);
  }
}

}  // namespace fsdp
