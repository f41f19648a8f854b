#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// `text` in lines of at most `columns` characters. A line that is too long is broken at a space, or
// inside a word that is longer than a line; each line that this begins is indented by `indent`
// spaces. The line feeds of `text` stay.
std::string wrap(const std::string& text, size_t columns, size_t indent = 0);

// For a message, what somebody else has written: without control characters, and at most 500
// characters of it.
std::string one_line(const std::string& text);

std::string counted(int64_t count, const std::string& what);  // "1 rank", "2 ranks"

// "a", "a and b", "a, b and c" for `last` = "and".
std::string in_a_row(const std::vector<std::string>& words, const std::string& last);

}  // namespace fsdp
