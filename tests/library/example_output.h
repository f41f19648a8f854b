#pragma once

#include <base/child_program.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

// Runs a program of examples/ that a page of docs/ shows.
namespace fsdp {

// Returns what `example` prints. The build puts its program beside the program of the tests.
inline std::string output_of(const std::string& example, const std::string& folder) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename(example);
  ChildProgram child([&](int pipe) {
    dup2(pipe, STDOUT_FILENO);
    setenv("OMP_NUM_THREADS", "1", 1);  // so that a rank uses at most one core
    return std::vector{program, folder};
  });
  std::string output;
  char bytes[4096];
  const auto deadline = ChildProgram::Clock::now() + std::chrono::minutes(2);
  while (const auto count = child.read(bytes, sizeof(bytes), deadline)) {
    if (*count == 0) break;
    output.append(bytes, *count);
  }
  const auto end = child.end(std::chrono::minutes(1));
  EXPECT_EQ(end.code, 0) << end.text();
  return output;
}

}  // namespace fsdp
