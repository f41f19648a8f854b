#pragma once

#include <testing/places.h>
#include <testing/rank_run.h>

#include <functional>

namespace fsdp {

// Each of these compares observations. It fails the test unless they are equal (tensors: bit by
// bit), goes on with the test, and prints the steps of the ranks and the observations of all ranks
// side by side.

// Compares what one rank, or every rank, observed as `name` with `expected`.
void expect_on_rank(const RankRun& run, int rank, const std::string& name,
                    const nlohmann::json& expected, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE());
void expect_on_all_ranks(const RankRun& run, const std::string& name,
                         const nlohmann::json& expected, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE());
// The same for each observation that has a name here.
using Expected = std::vector<std::pair<std::string, nlohmann::json>>;
void expect_on_all_ranks(const RankRun& run, const Expected& expected,
                         const char* file = __builtin_FILE(), int line = __builtin_LINE());
// The same for all that rank 0 of another run observed, as one that run_oracle() returned.
void expect_as(const RankRun& run, const RankRun& expected, const char* file = __builtin_FILE(),
               int line = __builtin_LINE());
// The same with a value for each rank.
using ExpectedOfRank = std::function<nlohmann::json(int rank)>;
void expect_on_each_rank(const RankRun& run, const std::string& name,
                         const ExpectedOfRank& expected, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE());

// Compares what the other ranks observed with what rank 0 observed.
void expect_same_on_all_ranks(const RankRun& run, const std::string& name,
                              const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Both look at what RetainedMemory::taken() observed as `name`. The first fails unless all ranks
// together hold in tensors at least 7/8 of the bytes `whole`, the least that the whole takes,
// without padding (where elements are lost at the ends of units is for other tests), and each of
// several ranks holds fewer than `whole`, in tensors and besides. The second fails unless each of
// several ranks that observed `name` holds besides tensors at most 3/8 of `whole`: a copy of what
// the other ranks own of it is half of it or more.
void expect_part_of(const RankRun& run, const std::string& name, int64_t whole,
                    const char* file = __builtin_FILE(), int line = __builtin_LINE());
void expect_no_copies(const RankRun& run, const std::string& name, int64_t whole,
                      const char* file = __builtin_FILE(), int line = __builtin_LINE());

// For gradients that rank r made of provenance::gradient(r, W): fails unless rank r observed as
// many elements as its shard has by `places`, every element of a parameter is the mean over the
// ranks, and padding is zero. Says which ranks are missing and which are counted twice.
using PlacesOfRank = std::function<Places(int rank)>;
void expect_mean_over_ranks(const RankRun& run, const std::string& name, const PlacesOfRank& places,
                            const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Looks at what thrown_by() observed as `name`: fails unless every rank has an error that contains
// each of `words`, of which one is the type that it has to have.
void expect_error(const RankRun& run, const std::string& name,
                  const std::vector<std::string>& words, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE());

// Fails unless `error`, what an exception says, contains `word`.
void expect_error_says(const std::string& error, const std::string& word,
                       const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace fsdp
