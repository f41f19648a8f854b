#pragma once

#include <functional>
#include <string>

namespace fsdp {

// Returns `text` without what PyTorch adds to its errors: stacks (a line "Exception raised from
// ..." and the lines "frame #0: ..." after it), and advice for users of torch.compile and of
// Caffe2.
std::string without_stacks(const std::string& text);

// thrown_by() returns what `body` throws as a text that a rank can observe: the type of the
// exception, its base classes in the C++ library, and its text, such as "std::invalid_argument,
// std::logic_error: TEXT". It returns kNothingThrown if `body` throws nothing.
constexpr const char* kNothingThrown = "nothing was thrown";
std::string thrown_by(const std::function<void()>& body);

// Returns the message of a failed assertion with the test's own words first: for EXPECT_TRUE(x) <<
// "y" it returns "y" and then "(x is false)".
std::string own_words(const std::string& assertion);

// Returns `message` without stacks. If it is a known message of PyTorch or of the C++ library, the
// result begins with what the message means in the code of a task.
std::string explained(const std::string& message);

}  // namespace fsdp
