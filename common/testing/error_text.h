#pragma once

#include <functional>
#include <string>

namespace fsdp {

// `text` without the stacks that torch adds to what its errors say: a line "Exception raised from
// ..." and the lines "frame #0: ..." after it.
std::string without_stacks(const std::string& text);

// What `body` throws, for an observation: "std::invalid_argument, std::logic_error: TEXT", with its
// type and those types of the C++ library of which it is one, or kNothingThrown.
constexpr const char* kNothingThrown = "nothing was thrown";
std::string thrown_by(const std::function<void()>& body);

// What a failed assertion says, the test's own words first: of EXPECT_TRUE(x) << "y" it is "y" and
// then "(x is false)".
std::string own_words(const std::string& assertion);

// What the words of torch or of the C++ library mean in the code of a task: a line that begins with
// a line feed. Empty if nothing is known about them.
std::string meaning_of(const std::string& message);

}  // namespace fsdp
