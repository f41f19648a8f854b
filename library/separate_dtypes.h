#pragma once

#include <unit_plan.h>

#include <vector>

namespace fsdp {

// For FullyShardOptions::change_plan. A flat parameter has one dtype. So in each unit whose
// parameters have several dtypes, the parameters of each dtype become a unit of their own, of the
// same module: NAME:fp32, NAME:bf16 and NAME:fp16, in the order of their first parameters. A unit
// with one dtype keeps its name.
// - Each of these units has an all-gather of its own. (One all-gather of the bytes of all dtypes
//   would gather them in the order of the ranks, so the parameters would have to be copied out of
//   it, and would not be views of the memory that the all-gather fills.)
// - Each unit has parameters of one dtype, so no byte is sent that a wider dtype would add.
void separate_dtypes(std::vector<UnitPlan>& plan);

}  // namespace fsdp
