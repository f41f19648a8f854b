#include <gtest/gtest.h>

// Starts no thread: the tests fork.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
