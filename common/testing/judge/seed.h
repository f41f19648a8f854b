#pragma once

// The judge passes the seed of the hidden cases (cases.h) to the program of the ranks in a pipe,
// which that program reads before main(). So the seed is neither in the environment nor in the
// arguments, where graded code could read it. If the judge runs the usual cases, it passes an empty
// pipe.
namespace fsdp::seed_file {

// The environment variable in which the program of the ranks finds the number of the pipe's
// descriptor.
constexpr const char* kVariable = "FSDP_SEED_FROM";

// The descriptors that the program of the ranks gets have this number or a higher one, because the
// script that starts graded code uses descriptors below 10 itself.
constexpr int kFirstDescriptor = 20;

// Makes the pipe and writes the value of FSDP_TEST_SEED into it, or nothing if FSDP_TEST_SEED is
// not set. Returns the descriptor to read from, or -1 if the pipe cannot be made or written.
int make();

}  // namespace fsdp::seed_file
