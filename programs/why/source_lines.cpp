#include <base/child_program.h>
#include <unistd.h>
#include <why/source_lines.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

std::string output_of(const std::vector<std::string>& command) {
  ChildProgram child([&](int pipe) {
    dup2(pipe, STDOUT_FILENO);
    return command;
  });
  std::string output;
  std::array<char, 4096> bytes{};
  const auto deadline = ChildProgram::Clock::now() + 60s;
  while (const auto count = child.read(bytes.data(), bytes.size(), deadline)) {
    if (*count == 0) break;
    output.append(bytes.data(), *count);
  }
  if (!child.end(5s).ok())
    throw std::runtime_error("why: " + command.front() +
                             " cannot be run; install the package binutils");
  return output;
}

std::string hex(uint64_t number) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(number));
  return text.data();
}

// If `function` is the code of std::function that calls a lambda, returns the name of the lambda,
// which is one of its template arguments; else "".
std::string lambda_called_by(const std::string& function) {
  const size_t lambda = std::min(function.rfind("{lambda"), function.rfind("$_"));
  if (function.find("_Function_handler<") == std::string::npos || lambda == std::string::npos)
    return "";
  size_t begin = lambda;
  for (int depth = 0; begin > 0; --begin) {
    const char c = function[begin - 1];
    if (depth == 0 && (c == ' ' || c == '<')) break;
    if (c == ')' || c == '>') ++depth;
    if (c == '(' || c == '<') --depth;
  }
  return function.substr(begin);
}

}  // namespace

std::string short_name(const std::string& function) {
  if (const std::string called = lambda_called_by(function); !called.empty())
    return short_name(called);
  // GCC's names of lambdas have "{lambda(int)#1}", those of clang "$_0".
  const size_t lambda = std::min(function.find("{lambda"), function.find("$_"));
  std::string name = function.substr(0, lambda);
  std::string kept;
  int depth = 0;
  for (const char c : name) {
    if (c == '(' || c == '<') ++depth;
    if (depth == 0) kept += c;
    if (c == ')' || c == '>') --depth;
  }
  for (const std::string space : {"fsdp::", " const", "std::", "static "})
    for (size_t at = 0; (at = kept.find(space)) != std::string::npos;)
      kept.erase(at, space.size());
  // Removes the return type, which is part of the name of a template's function.
  if (kept.find("operator") == std::string::npos) kept.erase(0, kept.rfind(' ') + 1);
  while (kept.starts_with("::"))
    kept.erase(0, 2);  // removes what is left of the name of an anonymous namespace
  while (kept.ends_with("::"))
    kept.erase(kept.size() - 2);
  return kept + (lambda == std::string::npos ? "" : ", in a lambda");
}

std::string without_lambda(const std::string& name) {
  return name.substr(0, name.find(','));
}

std::string code_of(const SourceLine& line) {
  std::ifstream file(line.file);
  std::string text;
  for (int i = 0; i < line.line && std::getline(file, text); ++i) {
  }
  const size_t begin = text.find_first_not_of(' ');
  return file && begin != std::string::npos ? text.substr(begin) : "";
}

std::vector<CodeLine> code_lines(const std::string& program) {
  std::istringstream table(output_of({"objdump", "--dwarf=decodedline", program}));
  std::vector<CodeLine> lines;
  std::string file;
  bool wanted = false;
  for (std::string row; std::getline(table, row);) {
    if (row.ends_with(':')) {
      wanted = row.starts_with('/') && (row.find("/tasks/task") != std::string::npos ||
                                        row.find("/tasks/extensions/") != std::string::npos ||
                                        row.find("/solutions/") != std::string::npos);
      file = std::filesystem::path(row.substr(0, row.size() - 1)).lexically_normal();
      continue;
    }
    // A row of objdump's table has the file's name, the line, the address and more. It ends in `x`
    // if a statement begins at the address.
    const size_t at = row.find(" 0x"), space = row.find(' ');
    if (wanted && at != std::string::npos && row.ends_with('x'))
      lines.push_back({std::stoull(row.substr(at), nullptr, 16), file,
                       static_cast<int>(std::strtol(row.c_str() + space, nullptr, 10))});
  }
  return lines;
}

std::vector<SourceLine> SourceLines::of(const std::vector<uint64_t>& frames) {
  std::vector<uint64_t> unknown;
  for (const uint64_t frame : std::set<uint64_t>(frames.begin(), frames.end()))
    if (!found_.contains(frame)) unknown.push_back(frame);
  if (!unknown.empty()) find(unknown);
  std::vector<SourceLine> lines;
  for (const uint64_t frame : frames)
    lines.insert(lines.end(), found_[frame].begin(), found_[frame].end());
  return lines;
}

void SourceLines::find(const std::vector<uint64_t>& frames) {
  std::vector<std::string> command{"addr2line", "-a", "-f", "-C", "-i", "-e", program_};
  for (const uint64_t frame : frames)
    // A frame is a return address: the address of the instruction after the call. So this function
    // looks up the address before it, which belongs to the call.
    command.push_back(hex(frame - 1));
  std::istringstream output(output_of(command));
  std::vector<SourceLine>* lines = nullptr;
  for (std::string function, place; std::getline(output, function);) {
    if (function.starts_with("0x")) {
      lines = &found_[std::stoull(function, nullptr, 16) + 1];
      continue;
    }
    if (lines == nullptr || !std::getline(output, place)) break;
    const size_t colon = place.rfind(':');
    const auto line = static_cast<int>(std::strtol(place.c_str() + colon + 1, nullptr, 10));
    const std::string file = std::filesystem::path(place.substr(0, colon)).lexically_normal();
    lines->push_back({short_name(function), line > 0 ? file : "", line});
  }
}

}  // namespace fsdp
