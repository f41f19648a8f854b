#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fsdp {

// A file that gets lines of JSON as things happen. It may be a FIFO or /dev/stdout. What a file
// holds already stays: new lines come after it.
class RunLog {
 public:
  // Opens the file; a FIFO, when somebody reads it. Throws std::runtime_error naming the file.
  explicit RunLog(std::string path);
  ~RunLog();
  RunLog(const RunLog&) = delete;  // it owns the open file

  // Writes one line at once. Values that are not finite are null. If that fails, because the disk
  // is full or the reader has gone, says so once on stderr, and writes nothing from then on.
  void write(const nlohmann::ordered_json& line);

 private:
  std::string path_;
  int file_;  // -1: closed after a failure
};

// Why `path` could not be opened so: "Permission denied"; empty if it can be, as far as that is
// known without opening it.
std::string reason_not_to_log(const std::string& path);

}  // namespace fsdp
