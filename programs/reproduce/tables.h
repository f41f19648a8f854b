#pragma once

#include <reproduce/table.h>
#include <reproduce/train_runs.h>

#include <string>
#include <vector>

namespace fsdp {

// The tables of the report. Each trains through `train`, which shares the runs that several need.

// Losses, parameter sums and hashes of the published recipe on the small model, beside those that
// were published.
Table equivalence_table(const Train& train);

// Live bytes by phase and class, predicted and measured, a table for each W; the peaks of DDP and
// FSDP beside one another.
std::vector<Table> memory_tables(const Train& train);

// Bytes received per rank and step by operation, predicted and measured.
Table traffic_table(const Train& train);

// Runs of FSDP in which every two values of every two options meet. Compares the parameters' hash
// with that of one process that plays the ranks, and with DDP's.
Table matrix_table(const Train& train);

// Runs of single, DDP and FSDP in which 1, 2, 4 or 8 ranks compute the same eight parts of a batch,
// or 3 or 6 ranks six. Compares the parameters' hash with that of one process, and the bytes with
// the predicted ones.
Table arrangements_table(const Train& train);

// Options of a run of the published recipe on the small model. `batch` 0: the recipe's.
TrainOptions published_small(const std::string& mode, int world, int batch = 0);

}  // namespace fsdp
