#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

// Expectations about a text that a program prints or an exception says.
#define EXPECT_CONTAINS(text, part) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, text)
#define EXPECT_LACKS(text, part) EXPECT_PRED_FORMAT2(testing::IsNotSubstring, part, text)

namespace fsdp {

// The message of the `Exception` that `call` throws. A call that throws nothing is a failure of the
// test; an exception of another type ends it.
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
