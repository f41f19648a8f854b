#pragma once

#include <testing/rank_run.h>

#include <string>

namespace fsdp {

// The keep_ functions write what was first wrong in the running test, for ./fsdp why, into the file
// `wrong` of the folder that FSDP_RECORD names. Only the first call for a folder writes, and no
// call does if nothing is recorded. The file is a JSON object. It has
// - always: "run", the number of the recording; "rank"; "text", which says how the observation
//   differs from the expected one; "name" of the observation, "" if the rank failed;
// - for a tensor: "element", the index of the first wrong element in row-major order; "place", "is"
//   and "expected" of this element; "right", the index of an element nearby that is not wrong, if
//   there is one;
// - for a number: "is" and "expected";
// - for a list of collectives: "call", the number, from 0, of the rank's first call that differs
//   from the expected one; "remark".

// Writes the file `wrong` for `rank`, whose observation `name` differs from `expected`.
void keep_wrong(const RankRun& run, int rank, const std::string& name,
                const nlohmann::json& expected);
// Writes the file `wrong` for `rank` if only the index of the wrong element and a text are known.
// An element of -1 means that no element is known, for example because the observation is not a
// tensor.
void keep_wrong(const RankRun& run, int rank, const std::string& name, int64_t element,
                const std::string& text);
// Writes the file `wrong` for rank run.failed_rank(), which failed before the end of the test; for
// rank 0 if no rank caused the failure.
void keep_failure(const RankRun& run);

}  // namespace fsdp
