#include <base/whole_file.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <stdexcept>

#include "expect_text.h"
#include "files_in.h"
#include "in_a_process.h"
#include "limit_file_size.h"
#include "temporary_folder.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
  struct stat status {};
  lstat(path.c_str(), &status);
  return status.st_mode;
}

std::string refusal(const std::string& path, const std::string& content = "text") {
  return error_of<std::runtime_error>([&] { write_whole_file(path, content); });
}

TEST(WholeFile, write_whole_file_replaces_the_file_completely_or_leaves_it_as_it_was) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  EXPECT_EQ(reason_not_to_write(path), "");
  write_whole_file(path, "one\n");
  write_whole_file(path, "two\n");
  EXPECT_EQ(content_of(path), "two\n");
  in_a_process([&] {
    limit_file_size(8);
    EXPECT_EQ(refusal(path, "more than fits"), path + ": can't be written: File too large");
  });
  EXPECT_EQ(content_of(path), "two\n");
  EXPECT_EQ(files_in(folder.path()), 1) << "no half-written file is left";
}

TEST(WholeFile, write_whole_file_past_the_file_size_limit_throws_and_does_not_end_the_process) {
  const TemporaryFolder folder;
  in_a_process([&] {
    limit_file_size(8);
    std::signal(SIGXFSZ, SIG_DFL);
    EXPECT_CONTAINS(refusal(folder.path() + "/file", "more than fits"), "File too large");
  });
}

TEST(WholeFile, reason_not_to_write_and_write_whole_file_state_why_a_file_cant_be_written) {
  const TemporaryFolder folder;
  const std::string taken = folder.path() + "/taken", link = folder.path() + "/link";
  fs::create_directory(taken);
  fs::create_symlink("link", link);
  const std::pair<std::string, std::string> cases[]{
      {folder.path() + "/none/file", "No such file or directory"},
      {taken, "Is a directory"},
      {link, "Too many levels of symbolic links"},
      {folder.path() + '/' + std::string(300, 'x'), "File name too long"}};
  for (const auto& [path, reason] : cases) {
    EXPECT_EQ(reason_not_to_write(path), reason);
    EXPECT_EQ(refusal(path), path + ": can't be written: " + reason);
  }
  EXPECT_EQ(reason_not_to_write(folder.path() + '/' + std::string(255, 'x')), "");
  EXPECT_EQ(files_in(folder.path()), 2);
}

TEST(WholeFile, write_whole_file_can_write_pieces_and_discards_them_if_the_writer_throws) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  write_whole_file(path, [](const WritePiece& write) {
    for (const std::string piece : {"one, ", "two, ", "three"})
      write(piece);
  });
  EXPECT_EQ(content_of(path), "one, two, three");
  EXPECT_THROW(write_whole_file(path, [](const WritePiece&) { throw std::logic_error("no"); }),
               std::logic_error);
  EXPECT_EQ(content_of(path), "one, two, three");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(WholeFile, a_file_that_write_whole_file_replaces_keeps_its_permissions) {
  const TemporaryFolder folder;
  const std::string path = folder.write("file", "old");
  for (const mode_t mode : {0600, 0640, 0755}) {
    chmod(path.c_str(), mode);
    write_whole_file(path, "new");
    EXPECT_EQ(mode_of(path) & 07777, mode);
  }
  const mode_t mask = umask(027);
  write_whole_file(folder.path() + "/another", "new");
  umask(mask);
  EXPECT_EQ(mode_of(folder.path() + "/another") & 07777, 0640U);
}

TEST(WholeFile, write_whole_file_writes_to_the_file_to_which_a_symbolic_link_leads) {
  const TemporaryFolder folder;
  const std::string file = folder.write("real/file", "old"), link = folder.path() + "/link";
  fs::create_symlink("real/second", link);
  fs::create_symlink("file", folder.path() + "/real/second");
  write_whole_file(link, "new");
  EXPECT_TRUE(S_ISLNK(mode_of(link)));
  EXPECT_EQ(content_of(file), "new");
  fs::remove(file);
  write_whole_file(link, "newer");  // now the link leads to a file that does not exist
  EXPECT_TRUE(S_ISLNK(mode_of(link)));
  EXPECT_EQ(content_of(file), "newer");
}

TEST(WholeFile, write_whole_file_deletes_no_file_that_it_did_not_create) {
  const TemporaryFolder folder;
  const std::string own = ".fsdp-" + std::to_string(getpid()) + '-';
  folder.write("file.partial", "mine");
  for (int i = 0; i < 50; ++i)
    folder.write(own + std::to_string(i), "mine");
  const std::string path = folder.path() + "/file";
  EXPECT_EQ(reason_not_to_write(path), "");
  write_whole_file(path, "new");
  EXPECT_EQ(content_of(path + ".partial"), "mine");
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(content_of(folder.path() + '/' + own + std::to_string(i)), "mine");
}

TEST(WholeFile, write_whole_file_writes_into_a_fifo_or_device_and_does_not_replace_it) {
  const TemporaryFolder folder;
  const std::string fifo = folder.path() + "/fifo", null = folder.path() + "/null";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  fs::create_symlink("/dev/null", null);
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_EQ(reason_not_to_write(fifo), "");
  write_whole_file(fifo, "text");
  char text[16];
  const ssize_t count = read(reader, text, sizeof text);
  close(reader);
  EXPECT_EQ(std::string(text, static_cast<size_t>(std::max<ssize_t>(count, 0))), "text");
  EXPECT_TRUE(S_ISFIFO(mode_of(fifo)));
  write_whole_file(null, "text");
  EXPECT_TRUE(S_ISLNK(mode_of(null)));
  EXPECT_TRUE(S_ISCHR(mode_of("/dev/null")));
  EXPECT_EQ(refusal("/dev/full"), "/dev/full: can't be written: No space left on device");
}

TEST(WholeFile,
     write_whole_file_to_dev_stdout_keeps_the_content_of_the_file_behind_it_and_appends) {
  const TemporaryFolder folder;
  const std::string path = folder.write("file", "old ");
  in_a_process([&] {
    const int file = open(path.c_str(), O_WRONLY | O_APPEND);
    ASSERT_EQ(dup2(file, STDOUT_FILENO), STDOUT_FILENO);
    for (const char* name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
      write_whole_file(name, "new ");
  });
  EXPECT_EQ(content_of(path), "old new new new ");
}

TEST(WholeFile,
     same_file_is_true_for_two_paths_or_links_to_one_file_and_false_for_two_files_or_a_device) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file", other = folder.path() + "/other";
  EXPECT_TRUE(same_file(path, folder.path() + "/./file"));
  EXPECT_FALSE(same_file(path, other));
  fs::create_symlink("file", other);
  EXPECT_TRUE(same_file(path, other));
  write_whole_file(path, "");
  EXPECT_TRUE(same_file(path, other));
  fs::remove(other);
  fs::create_hard_link(path, other);
  EXPECT_TRUE(same_file(path, other));
  EXPECT_FALSE(same_file("/dev/null", "/dev/null"));
  EXPECT_FALSE(same_file(path, folder.write("third", "")));
}

TEST(WholeFile, lies_below_returns_true_for_a_path_in_a_folder_and_for_a_file_that_it_links_to) {
  const TemporaryFolder all;
  const std::string blob = all.write("blobs/1", "weights"), other = all.write("other", "");
  const std::string file = all.write("model/config.json", "{}"), model = all.path() + "/model";
  fs::create_symlink("../blobs/1", model + "/model.safetensors");
  fs::create_symlink("model", all.path() + "/link");
  for (const std::string& path :
       {file, model + "/new", model + "/step-1/new", blob, all.path() + "/link/config.json",
        all.path() + "/blobs/../model/new"}) {
    EXPECT_TRUE(lies_below(path, model)) << path;
    EXPECT_TRUE(lies_below(path, all.path() + "/link/")) << path;
  }
  fs::create_hard_link(file, all.path() + "/hard");
  EXPECT_TRUE(lies_below(all.path() + "/hard", model));
  for (const std::string& path : {other, model + "-2", all.path() + "/new",
                                  std::string("/dev/null"), std::string("/dev/stdout")})
    EXPECT_FALSE(lies_below(path, model)) << path;
  EXPECT_FALSE(lies_below(other, all.path() + "/missing"));
}

}  // namespace
}  // namespace fsdp
