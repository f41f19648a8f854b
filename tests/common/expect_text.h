#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

// Expectations about a text: what a program printed, or the message of an exception.
#define EXPECT_CONTAINS(text, part) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, text)
#define EXPECT_LACKS(text, part) EXPECT_PRED_FORMAT2(testing::IsNotSubstring, part, text)

namespace fsdp {

// Returns the message of the `Exception` that `call` throws. If `call` throws nothing, the test
// fails; an exception of another type ends the test.
template <class Exception = std::exception, class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace fsdp
