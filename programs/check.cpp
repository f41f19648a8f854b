// check [TASK|PROBLEM] [OPTION...]: runs the tests of the tasks and prints the points.
#include <base/plain_error.h>
#include <check/check_course.h>

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  const auto settings = fsdp::parse_settings(argc, argv);
  try {
    return fsdp::check_course(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fsdp check: %s\n", fsdp::plain_text(error).c_str());
    return 1;
  }
}
