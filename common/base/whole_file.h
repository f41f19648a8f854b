#pragma once

#include <functional>
#include <string>

namespace fsdp {

// Writes a file so that it appears whole or not at all.
// - First writes a new file under an unused name in the same folder; then moves it to `path`.
// - A file that is replaced passes on its mode and, if possible, its owner. A symbolic link stays,
//   and the file that it names is replaced.
// - If `path` is not a regular file (/dev/null, /dev/stdout, a FIFO), writes to it directly.
// Throws: std::runtime_error "PATH: can't be written: No space left on device".
void write_whole_file(const std::string& path, const std::string& content);

// Writes a file in pieces, and otherwise as write_whole_file() with a string does. Calls `content`
// once, unless the file cannot be opened, with a function to which `content` passes each piece.
using WritePiece = std::function<void(const std::string& piece)>;
void write_whole_file(const std::string& path,
                      const std::function<void(const WritePiece&)>& content);

// Returns why write_whole_file() would fail now: "Permission denied"; "" if it would work. If
// `path` is not a regular file, does not open it, and checks only its permissions.
std::string reason_not_to_write(const std::string& path);

// Returns why the file can't be read: "No such file or directory"; "" if it can be.
std::string reason_not_to_read(const std::string& path);

// Returns why `folder`, with all missing folders above it, could not be made, or why no file could
// be written into it: "Read-only file system"; "" if both would work now. Leaves nothing behind.
std::string reason_not_to_fill(const std::string& folder);

// Returns whether `path` names a regular file that is not empty. A path to an open file of a
// process, such as /dev/stdout, does not count as a regular file, even if it leads to one.
bool holds_something(const std::string& path);

// Returns the content of the file; "" if it can't be read.
std::string content_of(const std::string& path);

// Returns whether two paths name the same regular file. The file need not exist yet.
bool same_file(const std::string& one, const std::string& other);

// Returns whether a file written to `path` would lie in `folder` or in a folder below it, or would
// replace a file that an entry of `folder` links to. The file need not exist yet. A path that does
// not name a regular file, such as /dev/null, lies in no folder.
bool lies_below(const std::string& path, const std::string& folder);

}  // namespace fsdp
