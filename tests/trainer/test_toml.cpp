#include <command_line/toml.h>
#include <gtest/gtest.h>

#include <common/expect_text.h>

namespace fsdp {
namespace {

using Texts = std::vector<std::string>;

TEST(Toml, texts_numbers_arrays_and_tables_of_a_toml_file_are_read) {
  const TomlTable file = parse_toml(
      "# a comment\r\na = \"x # \\\"y\\\" \\\\\"  # and another\nb = 'C:\\n'\n"
      "\"the c\" = -12\nd = [ \"p\",  # the first\n  'q',\n]\ne = [[\"1\", \"\"], []]\n"
      "f = true\ng = \"\"\"\ntwo\nlines\"\"\"\nh = { i = 1, j = { k = \"l\" } }\n",
      "file.toml");
  EXPECT_EQ(file.keys(), (Texts{"a", "b", "the c", "d", "e", "f", "g", "h"}));
  EXPECT_EQ(file.text("a"), "x # \"y\" \\");
  EXPECT_EQ(file.text("b"), "C:\\n");
  EXPECT_EQ(file.number("the c"), -12);
  EXPECT_EQ(file.texts("d"), (Texts{"p", "q"}));
  EXPECT_EQ(file.lists_of_texts("e"), (std::vector<Texts>{{"1", ""}, {}}));
  EXPECT_TRUE(file.flag("f"));
  EXPECT_EQ(file.text("g"), "two\nlines");
  EXPECT_EQ(file.table("h").table("j").text("k"), "l");
  EXPECT_FALSE(file.flag("z"));
  EXPECT_EQ(file.text("z", "none"), "none");
  EXPECT_TRUE(file.texts("z").empty() && file.tables("z").empty());
}

TEST(Toml, a_nested_toml_table_belongs_to_the_last_table_above_it) {
  const TomlTable file = parse_toml(
      "[[task]]\nn = 1\n[[task.problem]]\nn = 2\n[task.problem.more]\nn = 3\n"
      "[[task]]\nn = 4\n[[task.problem]]\nn = 5\n[[task.problem]]\nn = 6\n[last]\nn = 7\n",
      "file.toml");
  const auto tasks = file.tables("task");
  ASSERT_EQ(tasks.size(), 2U);
  ASSERT_EQ(tasks[0].tables("problem").size(), 1U);
  EXPECT_EQ(tasks[0].tables("problem")[0].table("more").number("n"), 3);
  ASSERT_EQ(tasks[1].tables("problem").size(), 2U);
  EXPECT_EQ(tasks[1].tables("problem")[1].number("n"), 6);
  EXPECT_EQ(file.table("last").number("n"), 7);
}

TEST(Toml, a_mistake_in_a_toml_file_is_refused_with_its_line) {
  const auto why = [](const std::string& text) {
    return error_of<TomlError>([&] { parse_toml(text, "f.toml"); });
  };
  EXPECT_EQ(why("a = 1\nb 2\n"), "f.toml:2: = and a value must follow the key b");
  EXPECT_EQ(why("a = small\n"),
            "f.toml:1: small is not a whole number, true or false; a text needs quotes");
  EXPECT_EQ(why("a =\n"), "f.toml:1: a value is missing");
  EXPECT_EQ(why("a = \"x\nb = 1\n"), "f.toml:1: the text of line 1 has no quote at its end");
  EXPECT_EQ(why("a = '''x\nb\n"), "f.toml:3: the text of line 1 has no quote at its end");
  EXPECT_EQ(why("a = 1 2\n"), "f.toml:1: the line has more than one value");
  EXPECT_EQ(why("\na = [1,\n\n"), "f.toml:4: the array of line 2 has no ]");
  EXPECT_EQ(why("a = [1 2]\n"), "f.toml:1: a comma must separate the values of an array");
  EXPECT_EQ(why("a = { b = 1\n}\n"), "f.toml:1: a table in braces has no } in its line");
  EXPECT_EQ(why("a = 1\n\na = 2\n"), "f.toml:3: a is in line 1 too; give it once");
  EXPECT_EQ(why("[a\n"), "f.toml:1: a heading of a table has no ] at its end");
  EXPECT_EQ(why("[[a.b]]\n"), "f.toml:1: there is no table a above, which this one is part of");
  EXPECT_EQ(
      why("a = \"\\d\"\n"),
      "f.toml:1: a quote, a backslash, n or t must follow a backslash; write '' around a text "
      "without escapes");
}

TEST(Toml, a_missing_toml_value_or_one_of_another_type_is_refused_with_table_and_line) {
  const TomlTable row =
      parse_toml("[[row]]\na = 1\n\nb = [\"x\", 2]\n", "f.toml").tables("row").at(0);
  const auto why = [](const auto& call) { return error_of<TomlError>(call); };
  EXPECT_EQ(why([&] { (void)row.text("c"); }), "f.toml:1: [[row]] lacks c");
  EXPECT_EQ(why([&] { (void)row.text("a"); }),
            "f.toml:2: [[row]] has a a that is not a text in quotes");
  EXPECT_EQ(why([&] { (void)row.number("b"); }),
            "f.toml:4: [[row]] has a b that is not a whole number");
  EXPECT_EQ(why([&] { (void)row.flag("a"); }),
            "f.toml:2: [[row]] has a a that is not true or false");
  EXPECT_EQ(why([&] { (void)row.texts("b"); }),
            "f.toml:4: [[row]] has a b that is not an array of texts, as in [\"a\", \"b\"]");
  EXPECT_EQ(why([&] { (void)row.tables("b"); }),
            "f.toml:4: [[row]] has a b that is not an array of tables");
  EXPECT_EQ(why([&] {
              row.allow_only({"a", "c"});
            }),
            "f.toml:4: [[row]] has no key b; it may have a and c");
}

}  // namespace
}  // namespace fsdp
