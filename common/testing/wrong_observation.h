#pragma once

#include <testing/rank_run.h>

#include <string>

namespace fsdp {

// Writes what was the first thing wrong in the running test into the file `wrong` of the folder
// that FSDP_RECORD names, for ./fsdp why. Only the first call for a folder writes, and none does if
// nothing is recorded. The file is JSON: "run" (the number of its ranks' recording), "rank", "text"
// (how it differs from what was expected), "name" (of the observation; "" if the rank failed); of a
// tensor "element" (the first wrong one, in row-major order), "place", "is", "expected"; of a list
// of collectives "call" (the number, from 0, of the rank's call at which the lists part) and
// "remark".

// Rank `rank` observed as `name` something else than `expected`.
void keep_wrong(const RankRun& run, int rank, const std::string& name,
                const nlohmann::json& expected);
// The same if nothing but the element and a text are known; element -1: not of a tensor.
void keep_wrong(const RankRun& run, int rank, const std::string& name, int64_t element,
                const std::string& text);
// Rank run.failed_rank() failed before the end of the test.
void keep_failure(const RankRun& run);

}  // namespace fsdp
