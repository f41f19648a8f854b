#pragma once

#include <gtest/gtest.h>

#include <string>

namespace fsdp {

// Ends the running test with a result of this `type` (a failure or a skip) and `text`, reported at
// `file` and `line`. (GoogleTest does not report the exception that end_test() throws, because an
// AssertionException stands for a failure that was reported already.)
[[noreturn]] inline void end_test(testing::TestPartResult::Type type, const char* file, int line,
                                  const std::string& text) {
  GTEST_MESSAGE_AT_(file, line, text.c_str(), type);
  throw testing::AssertionException(testing::TestPartResult(type, file, line, text.c_str()));
}

}  // namespace fsdp
