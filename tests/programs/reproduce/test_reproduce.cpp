#include <base/whole_file.h>
#include <command_line/child.h>
#include <gtest/gtest.h>
#include <reproduce/read_rows.h>
#include <reproduce/settings.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <algorithm>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// Runs the program `reproduce` in an empty repository. The row "zero" runs no training.
class Reproduce : public testing::Test {
 protected:
  void run(const std::string& options) const {
    const std::string program =
        fs::read_symlink("/proc/self/exe").replace_filename("reproduce").string();
    const std::string command =
        "FSDP_ROOT=" + folder_.path() + " exec " + program + " --train /bin/true " + options;
    EXPECT_TRUE(run_child({"sh", "-c", command}, log()).ok()) << content_of(log());
  }
  std::string output() const { return content_of(log()); }
  // Returns the files that a run has left, without the log.
  std::vector<std::string> files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
      if (entry.is_regular_file() && entry.path() != log())
        files.push_back(entry.path().lexically_relative(folder_.path()).string());
    std::ranges::sort(files);
    return files;
  }
  fs::path log() const { return folder_.path() + "/log"; }
  std::string at(const std::string& name) const { return folder_.path() + '/' + name; }

  TemporaryFolder folder_;
};

using Names = std::vector<std::string>;

TEST_F(Reproduce, reproduce_writes_results_below_build_so_that_a_clone_stays_clean) {
  run("--only zero");
  EXPECT_EQ(files(), (Names{"build/reproduce/zero.json", "build/reproduce/zero.md"}));
  EXPECT_CONTAINS(output(), "ok: zero\nall ok: written to " + at("build/reproduce") + "\n");
}

TEST_F(Reproduce, reproduce_replaces_tracked_results_only_with_the_option_write) {
  run("--only zero --write");
  EXPECT_EQ(files(), (Names{"writeup/zero.json", "writeup/zero.md"}));
  EXPECT_CONTAINS(output(), "all ok: written to " + at("writeup") + "\n");
  const std::string tracked = content_of(at("writeup/zero.json"));
  run("--only zero");
  EXPECT_EQ(content_of(at("writeup/zero.json")), tracked);
}

TEST_F(Reproduce, reproduce_lists_the_tracked_verdict_of_a_row_until_the_row_has_run) {
  folder_.write("writeup/zero.json", "{\"verdict\":\"NOT OK\"}\n");
  run("--list");
  EXPECT_CONTAINS(output(), "arithmetic   0 NOT OK  ./fsdp reproduce --only zero\n");
  run("--only zero");
  run("--list");
  EXPECT_CONTAINS(output(), "arithmetic   0 ok      ./fsdp reproduce --only zero\n");
}

TEST(ReproduceOption, contradicting_reproduce_options_are_refused) {
  const auto why = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--train", "/bin/true"});
    return error_of([&] { parse_reproduce(arguments, rows_of_tables_toml().rows); });
  };
  EXPECT_CONTAINS(why({"--write", "--out", "a"}), "--write");
  EXPECT_EQ(why({"--write", "--list"}), "--write: --list writes nothing");
  EXPECT_EQ(why({"--audit", "ddp", "--write"}),
            "--audit: runs nothing, so it excludes --write and --full");
  EXPECT_CONTAINS(why({"--audit", "ddp", "--only", "ddp"}), "--audit");
  EXPECT_EQ(why({"--world", "4"}), "--world: needs --full or --long");
  EXPECT_CONTAINS(why({"--only", "smal"}), "small");
}

}  // namespace
}  // namespace fsdp
