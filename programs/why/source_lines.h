#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdp {

// A function on the call stack, and the source line that it had reached.
struct SourceLine {
  std::string function;  // without namespaces and arguments: "FlatParameter::reduce_gradient"
  std::string file;      // "" if the program has no line numbers for the function
  int line{};
};

// Returns the source text of the line, without its indentation; "" if the file cannot be read.
std::string code_of(const SourceLine& line);

// Finds with addr2line the functions and source lines of return addresses. Keeps the results, so
// each address is looked up only once.
class SourceLines {
 public:
  explicit SourceLines(std::string program) : program_(std::move(program)) {}

  // Returns the functions that belong to these return addresses, innermost first: for each address
  // the functions that the compiler has inlined there, then the function that contains them. Throws
  // std::runtime_error if addr2line cannot be run.
  std::vector<SourceLine> of(const std::vector<uint64_t>& frames);

 private:
  void find(const std::vector<uint64_t>& frames);

  std::string program_;
  std::map<uint64_t, std::vector<SourceLine>> found_;
};

// An address at which the code of a source line begins, counted from the start of the program.
struct CodeLine {
  uint64_t address;
  std::string file;
  int line;
};
// Returns the source lines of tasks/ and solutions/ in the program, as objdump lists them.
std::vector<CodeLine> code_lines(const std::string& program);

// Shortens a demangled name: removes the namespaces fsdp and std, the arguments and the template
// arguments. A lambda is named after the function that contains it: "register_hooks, in a lambda".
std::string short_name(const std::string& function);
// Removes from a name that short_name() returned the words that say that a lambda was running.
std::string without_lambda(const std::string& name);

}  // namespace fsdp
