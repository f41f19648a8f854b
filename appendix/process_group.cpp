// Four ranks call an all-gather, a reduce-scatter and an all-reduce. Then rank 0 prints, from the
// log of its communicator, how many bytes it received in each.
#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>

#include <iostream>

using namespace fsdp;

// Gathers a row from every rank and prints all rows on rank 0, so that the lines of different ranks
// do not mix.
static void print_rows(Communicator& comm, const char* what, const at::Tensor& row) {
  const at::Tensor rows = at::empty({comm.world_size(), row.numel()});
  comm.all_gather_into(rows, row, kMetrics).wait();
  if (comm.rank() == 0) std::cout << what << ", by rank:\n" << rows << '\n';
}

static int run(const RankContext& context) {
  const auto comm = Communicator::create(context, {.keep_log = true});
  const at::Tensor shard = comm->empty(2);  // in memory that the other ranks can read
  shard[0] = 10 * comm->rank();
  shard[1] = 10 * comm->rank() + 1;
  const at::Tensor full = at::empty({8});
  Handle gather = comm->all_gather_into(full, shard, "layers.0");
  if (comm->rank() == 0) std::cout << "issued; pending: " << gather.pending() << '\n';
  gather.wait();  // `full` must not be read before wait() returns
  print_rows(*comm, "after all_gather", full);

  const at::Tensor gradient = full + comm->rank();  // the gradient differs between ranks
  const at::Tensor reduced = at::empty({2});
  comm->reduce_scatter_into(reduced, gradient, "layers.0").wait();
  print_rows(*comm, "after reduce_scatter", reduced);
  comm->all_reduce(gradient, "layers.0").wait();
  comm->all_gather_into(full, reduced, kMetrics).wait();
  if (comm->rank() == 0) std::cout << "all_reduce gave the same: " << gradient.equal(full) << '\n';

  for (const Call& call : comm->take_log()) {
    if (comm->rank() != 0 || call.unit == kMetrics) continue;
    std::cout << '#' << call.sequence << ' ' << call.name() << ": " << call.bytes
              << " bytes received\n";
  }
  return 0;
}

int main() {
  return launch(4, run).ok() ? 0 : 1;
}
