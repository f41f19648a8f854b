#pragma once

#include <functional>
#include <string>

namespace fsdp {

// `text` without what torch adds to its errors: stacks, which are a line "Exception raised from
// ..." and the lines "frame #0: ..." after it, and advice for users of torch.compile and of Caffe2.
std::string without_stacks(const std::string& text);

// What `body` throws, for an observation: "std::invalid_argument, std::logic_error: TEXT", with its
// type and those types of the C++ library of which it is one, or kNothingThrown.
constexpr const char* kNothingThrown = "nothing was thrown";
std::string thrown_by(const std::function<void()>& body);

// What a failed assertion says, the test's own words first: of EXPECT_TRUE(x) << "y" it is "y" and
// then "(x is false)".
std::string own_words(const std::string& assertion);

// `message` without stacks. If its words, which are those of torch or of the C++ library, are known
// to mean something in the code of a task, this meaning comes first.
std::string explained(const std::string& message);

}  // namespace fsdp
