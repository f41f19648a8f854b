// check [TASK|PROBLEM] [OPTION...]: runs the tests of the tasks and prints the points.
#include <check/check_course.h>

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  const auto settings = fsdp::parse_settings(argc, argv);
  try {
    return fsdp::check_course(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fsdp check: %s\n", error.what());
    return 1;
  }
}
