#include <command_line/config_file.h>
#include <gtest/gtest.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include "parsed.h"

// Tests the files of options that --config reads.
namespace fsdp {
namespace {

using Lines = std::vector<std::pair<std::string, std::vector<std::string>>>;

Lines lines_in(const std::string& text) {
  Lines lines;
  for (const ConfigLine& line : read_config(text))
    lines.emplace_back(line.name, line.values);
  return lines;
}

TEST(ConfigFile, an_option_in_a_config_file_can_have_one_value_or_an_array) {
  EXPECT_EQ(lines_in("# a comment\n\n  steps = 200  # and another\nlr=1e-4\r\n"
                     "\"no-decay\" = 'a#b|\\.c'\nlink = \"2ms,200MB/s\"\nallow-nan = true\n"
                     "text = [ \"a b\", # the first\n  'c',\n]\nseed = 7"),
            (Lines{{"steps", {"200"}},
                   {"lr", {"1e-4"}},
                   {"no-decay", {"a#b|\\.c"}},
                   {"link", {"2ms,200MB/s"}},
                   {"allow-nan", {"true"}},
                   {"text", {"a b", "c"}},
                   {"seed", {"7"}}}));
  EXPECT_EQ(read_config("#\n\na = 1\n#").front().number, 3);
  EXPECT_EQ(lines_in(""), Lines());
}

TEST(ConfigFile, a_line_of_a_config_file_belongs_to_the_table_that_began_last) {
  std::vector<std::pair<std::string, std::string>> tables;
  for (const ConfigLine& line : read_config(
           "seed = 1\n[ ranks ]  # a comment\nmode = \"ddp\"\nworld = 2\n\n[data]\ntext = [\n"
           "\"a\"]\n"))
    tables.emplace_back(line.table, line.name);
  EXPECT_EQ(tables, (std::vector<std::pair<std::string, std::string>>{
                        {"", "seed"}, {"ranks", "mode"}, {"ranks", "world"}, {"data", "text"}}));
}

TEST(ConfigFile,
     a_config_file_can_have_an_option_in_the_table_of_its_subject_or_before_all_tables) {
  const TemporaryFolder folder;
  const std::string flat = "mode = \"fsdp\"\nworld = 2\nsteps = 7\nlr = 0.5\nlimit = 3\n";
  const std::string tables =
      "steps = 7\n[sharding]\nlimit = 3\n[ranks]\nmode = \"fsdp\"\nworld = 2\n[optimizer]\nlr = 0.5\n";
  for (const std::string& text : {flat, tables}) {
    const TrainConfig config = parse({"--config", folder.write("o.toml", text)});
    EXPECT_EQ(config.ranks.mode, Mode::fsdp) << text;
    EXPECT_EQ(config.ranks.world, 2) << text;
    EXPECT_EQ(config.training.steps, 7) << text;
    EXPECT_EQ(config.optimizer.lr, 0.5) << text;
    EXPECT_EQ(config.sharding.limit, 3) << text;
  }
}

TEST(ConfigFile, a_config_file_with_an_option_in_the_wrong_table_is_refused) {
  const TemporaryFolder folder;
  for (const std::string table : {"data", "optimiser", "help"})
    EXPECT_EQ(refused({"--config", folder.write("o.toml", "[" + table + "]\nlr = 0.5\n")}),
              "--config " + folder.path() + "/o.toml: line 2: lr belongs in [optimizer], not in [" +
                  table + "]");
}

TEST(ConfigFile, a_malformed_line_of_a_config_file_is_refused_with_its_number) {
  const auto why = [](const std::string& text) {
    return error_of<std::invalid_argument>([&] { read_config(text); });
  };
  EXPECT_EQ(why("steps = 3\nworld 2\n"),
            "line 2: expected NAME = VALUE, as in steps = 200, not 'world 2'");
  EXPECT_EQ(why("mode = fsdp"), "line 1: a text needs quotes: mode = \"fsdp\"");
  for (const std::string table :
       {"[training", "[]", "[a.b] x", "[[training]]", "[\"a\"]", "[a] b = 1"})
    EXPECT_EQ(why("\n" + table + "\n"),
              "line 2: a table is a name in brackets, as [training], not '" + table + "'");
  EXPECT_EQ(why("[data]\n[ranks]\n[data]"), "line 3: [data] is in line 1 too; give it once");
  EXPECT_EQ(why("seed = 1\n[training]\nseed = 2"), "line 3: seed is in line 1 too; give it once");
  EXPECT_EQ(why("text = \"a\nb\""), "line 1: a text has no quote at its end");
  EXPECT_EQ(why("text = [\"a\" \"b\"]"), "line 1: a comma must separate the values of text");
  EXPECT_EQ(why("text = [\"a\",\n"), "line 1: the values of text have no ] at their end");
  EXPECT_EQ(why("lr = 1 2"),
            "line 1: lr has more than one value; several need brackets, as in [\"a\", \"b\"]");
  EXPECT_EQ(why("lr =\nseed = 1"), "line 1: lr has no value");
  EXPECT_EQ(why("a = 1\nb = 2\na = 3"), "line 3: a is in line 1 too; give it once");
}

TEST(ConfigFile, an_error_in_a_config_file_names_the_file_and_the_line) {
  const TemporaryFolder folder;
  const auto why = [&](const std::string& text, Arguments arguments = {}) {
    arguments.insert(arguments.end(), {"--config", folder.write("o.toml", text)});
    return refused(arguments);
  };
  const std::string file = folder.path() + "/o.toml";
  EXPECT_EQ(why("seed = 1\nstepz = 3\n"), "--config " + file +
                                              ": line 2: there is no option stepz; the nearest one "
                                              "is steps");
  EXPECT_EQ(
      why("world 2\n"),
      "--config " + file + ": line 1: expected NAME = VALUE, as in steps = 200, not 'world 2'");
  EXPECT_EQ(why("seed = 1\nsteps = \"many\"\n"),
            "--steps must be a whole number, not many (line 2 of " + file + ")");
  EXPECT_EQ(why("keep = 2\n"), "--keep: needs --checkpoint-dir (line 1 of " + file + ")");
  EXPECT_EQ(why("steps = 3\n", {"--steps", "many"}), "--steps must be a whole number, not many");
  EXPECT_EQ(why("config = \"x\"\n"),
            "--config " + file + ": line 1: config can't be set in a file");
  EXPECT_EQ(refused({"--config", folder.path() + "/none"}),
            "--config " + folder.path() + "/none: No such file or directory");
  EXPECT_EQ(refused({"--config", folder.path()}), "--config " + folder.path() + ": Is a directory");
}

TEST(ConfigFile, the_options_that_a_run_saves_omit_those_that_name_result_files) {
  const TemporaryFolder folder;
  const auto at = [&](const std::string& name) { return folder.path() + '/' + name; };
  const TrainConfig config =
      parsed({"--steps", "3", "--log", at("log"), "--json", at("json"), "--trace", at("t.txt"),
              "--profile", at("p.json"), "--checkpoint-dir", at("run"), "--keep-fp32", "\\.ln",
              "--param-dtype", "bf16"});
  EXPECT_EQ(config.reports.saved_options,
            "steps = 3\nparam-dtype = \"bf16\"\nkeep-fp32 = \"\\.ln\"\n"
            "checkpoint-dir = \"" +
                at("run") + "\"\n");
}

}  // namespace
}  // namespace fsdp
