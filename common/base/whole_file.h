#pragma once

#include <functional>
#include <string>

namespace fsdp {

// Writes `path` so that it appears whole or not at all: under another name, which no other file
// has, in the same folder first. A file that was there keeps its mode and its owner, a link goes on
// naming it. What is no plain file, as /dev/null, /dev/stdout or a FIFO, is written to as it is.
// Throws std::runtime_error "PATH: can't be written: No space left on device".
void write_whole_file(const std::string& path, const std::string& content);

// Writes a file as write_whole_file() of a text does, but in pieces: `content` is called once, and
// passes each piece to the function that it gets.
using WritePiece = std::function<void(const std::string& piece)>;
void write_whole_file(const std::string& path,
                      const std::function<void(const WritePiece&)>& content);

// Why that would fail now: "Permission denied"; empty if it can be done, as far as that is known
// without opening what is no plain file.
std::string reason_not_to_write(const std::string& path);

// Returns why the file can't be read: "No such file or directory"; empty if it can be.
std::string reason_not_to_read(const std::string& path);

// Returns why `folder` could not be made, with all folders above it that are missing, or why no
// file could be written into it: "Read-only file system"; empty if it can be done now. Leaves
// nothing behind.
std::string reason_not_to_fill(const std::string& folder);

// Returns whether `path` names a plain file that is not empty. A path to what a process has open,
// as /dev/stdout, names no plain file, even if it leads to one.
bool holds_something(const std::string& path);

// What the file holds; "" if it can't be read.
std::string content_of(const std::string& path);

// Whether two paths name one plain file, be it there already or not.
bool same_file(const std::string& one, const std::string& other);

}  // namespace fsdp
