#include <gtest/gtest.h>
#include <tokenizer/added_tokens.h>

namespace fsdp {
namespace {

// The parts into which AddedTokens splits a text. The number is the id of the added token, or -1 if
// the part is not an added token.
using Parts = std::vector<std::pair<std::string, int32_t>>;

const AddedTokens kTokens({{.content = "<l>", .id = 1, .lstrip = true},
                           {.content = "<r>", .id = 2, .rstrip = true},
                           {.content = "<<", .id = 3},
                           {.content = "", .id = 4}});

Parts parts_of(const std::string& text) {
  Parts parts;
  kTokens.split(text, [&](std::string_view part, const AddedToken* token) {
    parts.emplace_back(part, token == nullptr ? -1 : token->id);
  });
  return parts;
}

TEST(AddedTokens, a_text_is_split_at_added_tokens_that_include_the_spaces_beside_them) {
  EXPECT_EQ(parts_of("a <l> <r> b"),
            Parts({{"a", -1}, {" <l>", 1}, {" ", -1}, {"<r> ", 2}, {"b", -1}}));
  EXPECT_EQ(parts_of(""), Parts());
}

TEST(AddedTokens, an_added_token_with_rstrip_takes_the_spaces_before_the_next_added_token) {
  EXPECT_EQ(parts_of("<r>  <l>"), Parts({{"<r>  ", 2}, {"<l>", 1}}));
  EXPECT_EQ(parts_of("<r>  <r>"), Parts({{"<r>  ", 2}, {"<r>", 2}}));
}

TEST(AddedTokens, the_search_for_added_tokens_continues_after_the_end_of_a_found_one) {
  EXPECT_EQ(parts_of("<<<l>"), Parts({{"<<", 3}, {"<l>", 1}}));
  EXPECT_EQ(parts_of("<<l>"), Parts({{"<<", 3}, {"l>", -1}}));
}

}  // namespace
}  // namespace fsdp
