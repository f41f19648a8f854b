#include <command_line/commit.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace fsdp {

std::string source_root() {
  const char* root = std::getenv("FSDP_ROOT");
  return root != nullptr ? root : ".";
}

std::string current_commit() {
  const char* command =
      "git -C \"${FSDP_ROOT:-.}\" describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> git(popen(command, "r"), pclose);
  char text[64]{};
  if (!git || std::fgets(text, sizeof text, git.get()) == nullptr) return "";
  const std::string line(text);
  return line.substr(0, line.find('\n'));
}

}  // namespace fsdp
