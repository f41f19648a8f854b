#pragma once

#include <testing/rank_run.h>

#include <string>

namespace fsdp {

// Writes what was the first thing wrong in the running test into the file `wrong` of the folder
// that FSDP_RECORD names, for ./fsdp why. Only the first call for a folder writes, and none does if
// nothing is recorded. The file is JSON: "run" (the number of its ranks' recording), "rank", "text"
// (how it differs from what was expected), "name" (of the observation; "" if the rank failed); of a
// tensor "element" (the first wrong one, in row-major order), "place", "is", "expected" and "right"
// (an element nearby that is not wrong; missing if there is none); of a list of collectives "call"
// (the number, from 0, of the rank's call at which the lists part) and "remark".

// Writes it for rank `rank`, whose observation `name` is another one than `expected`.
void keep_wrong(const RankRun& run, int rank, const std::string& name,
                const nlohmann::json& expected);
// Does the same if only the element and a text are known. An element of -1 stands for an
// observation that is no tensor.
void keep_wrong(const RankRun& run, int rank, const std::string& name, int64_t element,
                const std::string& text);
// Writes it for rank run.failed_rank(), which failed before the end of the test.
void keep_failure(const RankRun& run);

}  // namespace fsdp
