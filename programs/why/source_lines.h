#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdp {

// A function that was running, and the line that it had reached.
struct SourceLine {
  std::string function;  // without namespaces and arguments: "FlatParameter::reduce_gradient"
  std::string file;      // "" if the program has no line numbers for the function
  int line{};
};

// Finds the functions and lines of return addresses with addr2line. Remembers what it has found.
class SourceLines {
 public:
  explicit SourceLines(std::string program) : program_(std::move(program)) {}

  // Returns the functions of these frames, innermost first: for each frame those that are inlined,
  // then the one that contains them. Throws std::runtime_error if addr2line cannot be run.
  std::vector<SourceLine> of(const std::vector<uint64_t>& frames);

 private:
  void find(const std::vector<uint64_t>& frames);

  std::string program_;
  std::map<uint64_t, std::vector<SourceLine>> found_;
};

// An address, from the start of the program, at which a line of code begins.
struct CodeLine {
  uint64_t address;
  std::string file;
  int line;
};
// Returns the lines of the files in tasks/ and solutions/, as objdump lists them.
std::vector<CodeLine> code_lines(const std::string& program);

// Returns a demangled name without namespaces of the course, arguments and template arguments. A
// lambda is named after the function that contains it: "register_hooks, in a lambda".
std::string short_name(const std::string& function);

}  // namespace fsdp
