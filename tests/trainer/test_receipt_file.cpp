#include <base/whole_file.h>
#include <gtest/gtest.h>
#include <receipt/receipt.h>
#include <receipt/signature.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

// Returns a receipt of two steps with two microbatches each. It has all events of the run: the
// hashes of each loss, of each gradient of a microbatch and of each updated parameter.
Receipt small_receipt() {
  Receipt receipt{.settings = {{"model", "gpt2-tiny"}, {"parts", 2}},
                  .options = "steps = 2\n",
                  .world = 2,
                  .hosts = {"host-a", "host-b"},
                  .kernels = kernels_here(),
                  .sampling = {.every = 1, .first_step = 0, .end_step = 2},
                  .leaves = {}};
  uint64_t hash = 1;
  for (int64_t step = 0; step < 2; ++step) {
    for (int part = 0; part < 2; ++part) {
      receipt.leaves[{step, part, TensorKind::loss, ""}] = {{0, "root", ++hash, 1}, {part}};
      receipt.leaves[{step, part, TensorKind::part, "w"}] = {{1, "root", ++hash, 8}, {part}};
    }
    receipt.leaves[{step, -1, TensorKind::updated, "w"}] = {{0, "root", ++hash, 8}, {0, 1}};
  }
  return receipt;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

TEST(ReceiptFile, read_receipt_returns_what_write_receipt_wrote) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/receipt";
  const Receipt receipt = small_receipt();
  write_receipt(path, receipt);
  const Receipt read = read_receipt(path);
  EXPECT_EQ(read.settings, receipt.settings);
  EXPECT_EQ(read.options, receipt.options);
  EXPECT_EQ(read.world, receipt.world);
  EXPECT_EQ(read.hosts, receipt.hosts);
  EXPECT_EQ(read.kernels, receipt.kernels);
  EXPECT_EQ(read.root(), receipt.root());
  EXPECT_EQ(read.leaves.size(), receipt.leaves.size());
  EXPECT_EQ(read.leaves.begin()->second.ranks, receipt.leaves.begin()->second.ranks);
}

TEST(ReceiptFile, the_merkle_root_of_a_receipt_depends_on_hashes_but_not_on_ranks_or_hosts) {
  const Receipt one = small_receipt();
  Receipt other = one;
  other.hosts = {"host-c"};
  for (auto& [key, leaf] : other.leaves)
    leaf.ranks = {0};
  EXPECT_EQ(other.root(), one.root());
  other.leaves.begin()->second.event.hash += 1;
  EXPECT_NE(other.root(), one.root());
}

const std::string kSigningKey = R"(-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7
-----END PRIVATE KEY-----
)";

TEST(ReceiptFile,
     a_receipts_signature_is_that_of_its_seal_and_the_seal_changes_if_the_receipt_changes) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/receipt";
  write_receipt(path, small_receipt(), kSigningKey);
  const Receipt signed_receipt = read_receipt(path);
  EXPECT_EQ(signed_receipt.signature, sign(signed_receipt.seal, kSigningKey));
  Receipt other = small_receipt();
  other.hosts[0] = "host-c";
  write_receipt(path, other, kSigningKey);
  EXPECT_NE(read_receipt(path).seal, signed_receipt.seal);
  EXPECT_NE(read_receipt(path).signature, signed_receipt.signature);
  write_receipt(path, other);
  EXPECT_EQ(read_receipt(path).signature, "");
}

// Each case changes lines of a receipt file without renewing the seal, which is a hash over these
// lines.
TEST(ReceiptFile, a_receipt_whose_lines_were_changed_after_its_seal_is_refused) {
  using Lines = std::vector<std::string>;
  struct Forgery {
    std::string what;
    std::function<void(Lines&)> change;
    std::string message;
  };
  const auto replace = [](std::string& line, const std::string& old, const std::string& by) {
    ASSERT_NE(line.find(old), std::string::npos) << line;
    line.replace(line.find(old), old.size(), by);
  };
  const std::vector<Forgery> forgeries{
      {"no line", [](Lines& l) { l.clear(); }, "is empty"},
      {"another file",
       [](Lines& l) {
         l = {"# A page", "text"};
       },
       "is not a receipt"},
      {"another version", [&](Lines& l) { replace(l[0], "\"receipt\":1", "\"receipt\":2"); },
       "has another format, 2, and 1 is read here"},
      {"a head without settings", [&](Lines& l) { replace(l[0], "settings", "setting"); },
       "line 1: is not a line of a receipt"},
      {"settings of another type",
       [&](Lines& l) { replace(l[0], "\"parts\":2", "\"parts\":\"2\""); }, "line 1: "},
      {"a version that is nested deep",
       [&](Lines& l) {
         replace(l[0], "\"receipt\":1",
                 "\"receipt\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']'));
       },
       "is not a receipt"},
      {"more microbatches than any run has",
       [&](Lines& l) { replace(l[0], "\"parts\":2", "\"parts\":2000000000"); },
       "line 1: has no settings of a run"},
      {"no model", [&](Lines& l) { replace(l[0], "\"model\":\"gpt2-tiny\"", "\"model\":5"); },
       "line 1: has no settings of a run"},
      {"a sampling of nothing", [&](Lines& l) { replace(l[0], "\"every\":1", "\"every\":0"); },
       "has a sampling that no run has"},
      {"a run without steps", [&](Lines& l) { replace(l[0], "\"end_step\":2", "\"end_step\":0"); },
       "has a sampling that no run has"},
      {"no hosts", [&](Lines& l) { replace(l[0], "\"host-a\",\"host-b\"", ""); }, "names no ranks"},
      {"other options", [&](Lines& l) { replace(l[0], "steps = 2", "steps = 3"); },
       "the file was changed"},
      {"another processor", [&](Lines& l) { replace(l[0], "\"cpu\":\"", "\"cpu\":\"x"); },
       "the file was changed"},
      {"another hash", [&](Lines& l) { replace(l[2], "\"hash\":", "\"hash\":1"); },
       "the file was changed"},
      {"other ranks", [&](Lines& l) { replace(l[1], "[0,1]", "[1]"); }, "the file was changed"},
      {"a rank that is not there", [&](Lines& l) { replace(l[1], "[0,1]", "[0,2]"); },
       "line 2: names rank 2, which the run does not have"},
      {"a missing leaf", [](Lines& l) { l.erase(l.begin() + 3); }, "the file was changed"},
      {"a doubled leaf", [](Lines& l) { l.insert(l.begin() + 2, l[2]); },
       "line 4: is doubled or not in order"},
      {"another order", [](Lines& l) { std::swap(l[2], l[4]); }, "is doubled or not in order"},
      {"a step of another run", [&](Lines& l) { replace(l.end()[-2], "\"step\":1", "\"step\":7"); },
       "has step 8, which is not of this run"},
      {"a microbatch too many", [&](Lines& l) { replace(l[2], "\"part\":0", "\"part\":2"); },
       "has a microbatch that the run does not have"},
      {"an unknown kind",
       [&](Lines& l) { replace(l[2], "\"what\":\"loss\"", "\"what\":\"gain\""); }, "line 3: "},
      {"an event that is not sampled",
       [&](Lines& l) {
         replace(l[2], "\"what\":\"loss\"", "\"what\":\"gathered parameter in forward\"");
       },
       "has an event that the receipt does not sample"},
      {"a line that is no JSON", [](Lines& l) { l[2] = "hash"; },
       "line 3: is not a line of a receipt"},
      {"a leaf with other blanks", [&](Lines& l) { replace(l[2], "{", "{ "); },
       "line 3: is not written as a leaf is"},
      {"another root", [&](Lines& l) { replace(l.back(), "\"root\":\"", "\"root\":\"0"); },
       "the file was changed"},
      {"a signature that is no text",
       [&](Lines& l) { replace(l.back(), "{", "{\"signature\":7,"); },
       "is not a line of a receipt"},
      {"no end", [](Lines& l) { l.pop_back(); }, "is cut off"},
      {"only the head", [](Lines& l) { l.resize(1); }, "or cut off"}};
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/receipt";
  write_receipt(path, small_receipt());
  const Lines right = lines_in(content_of(path));
  for (const auto& [what, change, message] : forgeries) {
    SCOPED_TRACE(what);
    Lines lines = right;
    change(lines);
    std::string text;
    for (const std::string& line : lines)
      text += line + '\n';
    folder.write("forged", text);
    try {
      read_receipt(folder.path() + "/forged");
      ADD_FAILURE() << "it was read";
    } catch (const std::runtime_error& error) {
      EXPECT_CONTAINS(std::string(error.what()), message);
      EXPECT_CONTAINS(std::string(error.what()), "/forged");
    }
  }
}

}  // namespace
}  // namespace fsdp
