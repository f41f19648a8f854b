#include <base/whole_file.h>
#include <command_line/child.h>
#include <gtest/gtest.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <filesystem>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// Runs `reproduce --audit` in a repository with the results of the row "ddp". A script takes the
// place of ./fsdp: it prints its arguments and ends with the status in the receipt.
class AuditRow : public testing::Test {
 protected:
  AuditRow() {
    fs::permissions(write("fsdp", "#!/bin/sh\necho \"audit: $*\"\nexit $(cat $2)\n"),
                    fs::perms::owner_all);
  }
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text);
  }
  // Returns the exit status. The output is in output().
  int audit(const std::string& options = "--audit ddp") const {
    const std::string program =
        fs::read_symlink("/proc/self/exe").replace_filename("reproduce").string();
    return run_child({"sh", "-c",
                      "FSDP_ROOT=" + folder_.path() + " exec " + program + " --train /bin/true " +
                          options},
                     folder_.path() + "/log")
        .code;
  }
  std::string output() const { return content_of(folder_.path() + "/log"); }
  std::string at(const std::string& name) const { return folder_.path() + '/' + name; }

  TemporaryFolder folder_;
};

const std::string kTwoReceipts =
    "{\"command\":\"./fsdp reproduce --only ddp\",\"verdict\":\"ok\"}\n"
    "{\"options\":\"--mode single\",\"seconds\":1}\n"
    "{\"options\":\"--mode ddp --receipt %/ddp-1.receipt --receipt-sample 32 --seed 3\"}\n"
    "{\"options\":\"--seed 4 --receipt %/ddp-2.receipt\"}\n";

TEST_F(AuditRow, each_receipt_of_a_row_is_audited_with_one_microbatch) {
  write("writeup/ddp.json", kTwoReceipts);
  write("writeup/receipts/ddp-1.receipt", "0");
  write("writeup/receipts/ddp-2.receipt", "0");
  EXPECT_EQ(audit(), 0);
  EXPECT_EQ(output(), "./fsdp train --mode ddp --seed 3\naudit: audit " +
                          at("writeup/receipts/ddp-1.receipt") +
                          " --microbatches 1\n\n./fsdp train --seed 4\naudit: audit " +
                          at("writeup/receipts/ddp-2.receipt") +
                          " --microbatches 1\n\n2 receipts of ddp: what was computed again is "
                          "equal\n");
}

TEST_F(AuditRow, the_status_is_that_of_the_audit_which_found_most) {
  write("writeup/ddp.json", kTwoReceipts);
  write("writeup/receipts/ddp-2.receipt", "0");
  for (const int status : {1, 2}) {
    write("writeup/receipts/ddp-1.receipt", std::to_string(status));
    EXPECT_EQ(audit(), status);
    EXPECT_CONTAINS(output(), "2 receipts of ddp: NOT equal, or not audited\n");
  }
}

TEST_F(AuditRow, receipts_of_a_new_run_come_before_the_published_ones) {
  write("writeup/ddp.json", kTwoReceipts);
  write("build/reproduce/ddp.json", "{}\n{\"options\":\"--receipt %/ddp-1.receipt\"}\n");
  write("build/reproduce/receipts/ddp-1.receipt", "0");
  EXPECT_EQ(audit(), 0);
  EXPECT_CONTAINS(output(), "1 receipt of ddp");
}

TEST_F(AuditRow, a_row_without_results_or_receipts_is_refused_with_the_command_that_makes_them) {
  EXPECT_EQ(audit(), 1);
  EXPECT_CONTAINS(output(), "there are no results of ddp; run ./fsdp reproduce --only ddp\n");
  write("writeup/ddp.json", "{\"verdict\":\"ok\"}\n{\"options\":\"--mode ddp\"}\n");
  EXPECT_EQ(audit(), 1);
  EXPECT_CONTAINS(output(), at("writeup/ddp.json") +
                                ": its runs left no receipts; run ./fsdp reproduce --only ddp\n");
  EXPECT_EQ(audit("--audit prefetch"), 2);
  EXPECT_CONTAINS(output(), "--audit");
}

}  // namespace
}  // namespace fsdp
