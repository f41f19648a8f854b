#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fsdp {

// Runs `test` and returns the results of its assertions, which are not added to the result of the
// running test. If an assertion throws an AssertionException, this ends `test`, and result_of()
// catches it.
template <class Test>
std::vector<testing::TestPartResult> result_of(Test test) {
  testing::TestPartResultArray parts;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &parts);
    try {
      test();
    } catch (const testing::AssertionException&) {
    }
  }
  std::vector<testing::TestPartResult> result;
  for (int i = 0; i < parts.size(); ++i)
    result.push_back(parts.GetTestPartResult(i));
  return result;
}

// Returns the text of the only failure in `test`. Expects exactly one result, a failure that names
// a line in the file of the running test.
template <class Test>
std::string failure_of(Test test) {
  const auto result = result_of(test);
  EXPECT_EQ(result.size(), 1U);
  if (result.size() != 1) return "";
  EXPECT_TRUE(result[0].failed());
  EXPECT_STREQ(result[0].file_name(),
               testing::UnitTest::GetInstance()->current_test_info()->file());
  return result[0].message();
}

// Returns the messages of all assertions of `test` that did not succeed, one after another.
template <class Test>
std::string failures_of(Test test) {
  std::string text;
  for (const testing::TestPartResult& part : result_of(test))
    text += part.message();
  return text;
}

}  // namespace fsdp
