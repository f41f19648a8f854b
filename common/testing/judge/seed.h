#pragma once

// How the judge hands the seed of hidden cases to the program of the ranks: in a pipe, which that
// program reads before main(). It is neither in the environment nor in the arguments, where graded
// code could read it, and the usual tests have such a pipe too.
namespace fsdp::seed_file {

// In the environment of the program of the ranks: the number of the pipe's descriptor.
constexpr const char* kVariable = "FSDP_SEED_FROM";

// The script that starts graded code uses descriptors of one digit itself.
constexpr int kFirstDescriptor = 20;

// Makes the pipe, with the value of FSDP_TEST_SEED in it; with nothing in it if that is not set.
// Returns the descriptor that is read, or -1.
int make();

}  // namespace fsdp::seed_file
