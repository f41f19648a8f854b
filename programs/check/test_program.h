#pragma once

#include <base/child_program.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// A file in memory, which another process can write to.
class MemoryFile {
 public:
  MemoryFile();  // throws std::system_error
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int number() const { return file_; }
  int64_t size() const;                                // [bytes]
  std::string text(int64_t begin, int64_t end) const;  // at most the first 64 KiB of it

 private:
  int file_;
};

// A running test program: the records that it writes as results, and what it prints.
class TestProgram {
 public:
  using Clock = ChildProgram::Clock;

  TestProgram(const std::string& path, const std::vector<std::string>& arguments);

  enum class Read { record, end, timeout, flood };

  // Waits for the next record, or returns why there is none: the program has ended, `deadline` has
  // come, or the program has printed more than 256 MiB. Throws std::runtime_error if the program
  // wrote something that is no record.
  Read next(nlohmann::json& record, Clock::time_point deadline);

  const MemoryFile& printed() const { return printed_; }  // its standard output and error

  ChildProgram::End end(std::chrono::milliseconds moment) { return child_.end(moment); }

 private:
  MemoryFile printed_;
  ChildProgram child_;   // its pipe carries the records
  std::string records_;  // bytes that are no whole line yet
};

}  // namespace fsdp
