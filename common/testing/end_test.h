#pragma once

#include <gtest/gtest.h>

#include <string>

namespace fsdp {

// Ends the running test with a result of this type and text, at `file` and `line`. (GoogleTest
// treats the exception that this function throws as one that was reported already.)
[[noreturn]] inline void end_test(testing::TestPartResult::Type type, const char* file, int line,
                                  const std::string& text) {
  GTEST_MESSAGE_AT_(file, line, text.c_str(), type);
  throw testing::AssertionException(testing::TestPartResult(type, file, line, text.c_str()));
}

}  // namespace fsdp
