#include <base/plain_error.h>
#include <c10/util/Exception.h>
#include <comm/collective_error.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

TEST(PlainText, plain_text_of_an_exception_does_not_mention_the_library_that_threw_it) {
  const auto text = [](const std::function<void()>& action) {
    try {
      action();
    } catch (const std::exception& error) {
      return plain_text(error);
    }
    return std::string("nothing");
  };
  EXPECT_EQ(text([] { (void)fs::file_size("/no/such"); }), "/no/such: No such file or directory");
  EXPECT_EQ(text([] { fs::copy("/no/such", "/tmp/x"); }).find("filesystem error"),
            std::string::npos);
  const std::string json = text([] { const nlohmann::json parsed = nlohmann::json::parse("{"); });
  EXPECT_TRUE(json.starts_with("parse error")) << json;
  EXPECT_EQ(text([] { throw std::runtime_error("what\nException raised from x (most recent"); }),
            "what");
}

TEST(PlainText, plain_text_cuts_the_text_of_a_giant_exception_to_its_beginning) {
  const std::string giant(8'000'000, '\n');
  const std::string beginning = giant.substr(0, kMostOfError);
  EXPECT_EQ(plain_text(std::runtime_error(giant)), beginning);
  EXPECT_EQ(message_of(std::runtime_error(giant)), beginning);
  EXPECT_EQ(message_of(c10::Error({"f", "file", 1}, giant)), beginning);
}

}  // namespace
}  // namespace fsdp
