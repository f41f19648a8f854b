#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// Returns `text` in lines of at most `columns` characters. A line that is too long is broken at a
// space, or inside a word that is longer than a line; each line that begins at such a break is
// indented by `indent` spaces. The line feeds of `text` stay.
std::string wrap(const std::string& text, size_t columns, size_t indent = 0);

// Makes a text of another program or file fit for a message: replaces control characters by "?",
// and cuts the text after 500 characters.
std::string one_line(const std::string& text);

// Returns a number with its noun: "1 rank", "2 ranks".
std::string counted(int64_t count, const std::string& what);

// Joins the words: "a", "a and b" or "a, b and c" for `last` = "and".
std::string in_a_row(const std::vector<std::string>& words, const std::string& last);

}  // namespace fsdp
