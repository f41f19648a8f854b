#pragma once

#include <testing/places.h>
#include <testing/rank_run.h>

#include <functional>

namespace fsdp {

// Each expect_ function that gets a RankRun compares observations of its ranks. If they differ from
// what is expected (tensors: in any bit), the test fails and continues, and the function prints
// what each rank did, step by step, and the observations of all ranks side by side.

// expect_on_rank() compares what rank `rank` observed as `name` with `expected`.
// expect_on_all_ranks() compares what each rank observed as `name` with `expected`.
void expect_on_rank(const RankRun& run, int rank, const std::string& name,
                    const nlohmann::json& expected, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE());
void expect_on_all_ranks(const RankRun& run, const std::string& name,
                         const nlohmann::json& expected, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE());
// Compares, on every rank, each observation that `expected` names with its value in `expected`.
using Expected = std::vector<std::pair<std::string, nlohmann::json>>;
void expect_on_all_ranks(const RankRun& run, const Expected& expected,
                         const char* file = __builtin_FILE(), int line = __builtin_LINE());
// Compares what every rank of `run` observed with what rank 0 of the run `expected` observed, which
// is, for example, a run of run_oracle().
void expect_as(const RankRun& run, const RankRun& expected, const char* file = __builtin_FILE(),
               int line = __builtin_LINE());
// Compares what each rank observed as `name` with a value for this rank, expected(rank).
using ExpectedOfRank = std::function<nlohmann::json(int rank)>;
void expect_on_each_rank(const RankRun& run, const std::string& name,
                         const ExpectedOfRank& expected, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE());

// Compares what each other rank observed as `name` with what rank 0 observed as `name`.
void expect_same_on_all_ranks(const RankRun& run, const std::string& name,
                              const char* file = __builtin_FILE(), int line = __builtin_LINE());

// expect_part_of() and expect_no_copies() check the bytes that ranks observed as `name` with
// RetainedMemory::taken(). `whole`: number of bytes of the whole model without padding. Ranks that
// did not observe `name` are skipped.
// - expect_part_of() fails if all ranks together hold less than 7/8 of `whole` in tensors. (Other
//   tests check elements that are lost at the ends of units.) It also fails if there are several
//   ranks and one of them holds `whole` or more, in tensors and other memory.
// - expect_no_copies() fails if there are several ranks and one of them holds more than 3/8 of
//   `whole` in memory that is not a tensor's. A copy of what the other ranks own would be at least
//   half of `whole`.
void expect_part_of(const RankRun& run, const std::string& name, int64_t whole,
                    const char* file = __builtin_FILE(), int line = __builtin_LINE());
void expect_no_copies(const RankRun& run, const std::string& name, int64_t whole,
                      const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Checks the result of a reduce-scatter of gradients that rank r made with provenance::gradient(r,
// world_size). Fails unless each rank r observed as many elements as its shard has according to
// places(r), every element of a parameter is the mean over the ranks, and padding is zero. Prints
// which ranks are missing in the mean and which are counted twice.
using PlacesOfRank = std::function<Places(int rank)>;
void expect_mean_over_ranks(const RankRun& run, const std::string& name, const PlacesOfRank& places,
                            const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Checks errors that the ranks observed as `name` with thrown_by(). Fails unless every rank has an
// error that contains each of `words`. One of the words should be the type of the error.
void expect_error(const RankRun& run, const std::string& name,
                  const std::vector<std::string>& words, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE());

// Fails unless `error`, the text of an exception, contains `word`.
void expect_error_says(const std::string& error, const std::string& word,
                       const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace fsdp
