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
  // Runs `reproduce` with these options, and returns its exit status. output() then has what it
  // printed.
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

TEST_F(AuditRow, reproduce_audit_checks_each_receipt_of_a_row_with_one_microbatch) {
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

TEST_F(AuditRow,
       reproduce_audit_returns_1_if_a_receipt_is_wrong_else_2_if_a_receipt_cannot_be_audited) {
  write("writeup/ddp.json", kTwoReceipts);
  const auto status_of = [&](const std::string& first, const std::string& second) {
    write("writeup/receipts/ddp-1.receipt", first);
    write("writeup/receipts/ddp-2.receipt", second);
    return audit();
  };
  EXPECT_EQ(status_of("1", "0"), 1);
  EXPECT_CONTAINS(output(), "2 receipts of ddp: NOT equal\n");
  EXPECT_EQ(status_of("2", "1"), 1);
  EXPECT_EQ(status_of("0", "2"), 2);
  EXPECT_CONTAINS(output(), "2 receipts of ddp: not all could be audited\n");
}

TEST_F(AuditRow, reproduce_audit_does_not_use_an_older_receipt_for_a_run_that_failed) {
  write("writeup/ddp.json", "{}\n{\"options\":\"--receipt %/ddp-1.receipt\",\"error\":\"lost\"}\n");
  write("writeup/receipts/ddp-1.receipt", "0");
  EXPECT_EQ(audit(), 2);
  EXPECT_CONTAINS(output(), "this run failed, and has left no receipt\n");
}

TEST_F(AuditRow, reproduce_audit_refuses_damaged_results_and_names_the_file) {
  for (const char* damaged : {"{\"options\":", "null", "[]", "{\"options\":5}"}) {
    write("writeup/ddp.json", damaged);
    EXPECT_EQ(audit(), 1) << damaged;
    EXPECT_CONTAINS(output(),
                    at("writeup/ddp.json") + ": is damaged; run ./fsdp reproduce --only ddp\n");
  }
}

TEST_F(AuditRow, reproduce_audit_prefers_receipts_of_a_new_run_to_the_published_ones) {
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
