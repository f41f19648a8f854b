// The program `outside RANKS STEPS FOLDER [ddp]` trains on RANKS ranks until step STEPS, and saves
// a checkpoint in FOLDER after every fifth step and at the end. If FOLDER has a checkpoint, the
// training continues from it. The model is sharded or, with ddp, replicated; both give the same
// losses and parameters.
#include <ATen/Parallel.h>
#include <fsdp/fsdp.h>

#include <cstdio>
#include <cstdlib>

#include "training.h"

namespace {

template <class Model>
int train(const fsdp::RankContext& context, int64_t steps, const std::string& folder) {
  at::set_num_threads(1);  // one thread for each rank, because the ranks share this machine's cores
  torch::manual_seed(1);   // every rank draws the same initial parameters
  Training<Model> training(fsdp::Communicator::create(context), folder);
  const bool speaks = context.rank == 0;
  if (speaks && training.steps() > 0)
    std::printf("continues after step %ld\n", static_cast<long>(training.steps()));
  while (training.steps() < steps) {
    const double rate = training.next_rate(), loss = training.step();
    const auto done = static_cast<long>(training.steps());
    if (speaks) std::printf("step %ld: rate %.5f, loss %.6f\n", done, rate, loss);
    if (done % 5 != 0 && done != steps) continue;
    training.save();
    if (speaks) std::printf("saved in %s\n", folder.c_str());
    std::fflush(stdout);
  }
  for (const bool buffers : {true, false}) {
    const size_t hash = training.hash(buffers);
    if (speaks) std::printf("%s %016zx\n", buffers ? "hash" : "without buffers", hash);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool replicated = argc == 5 && std::string(argv[4]) == "ddp";
  const int ranks = argc == 4 || replicated ? std::atoi(argv[1]) : 0;
  if (ranks < 1) {
    std::fprintf(stderr, "usage: outside RANKS STEPS FOLDER [ddp]\n");
    return 2;
  }
  return fsdp::start(ranks, [&](const fsdp::RankContext& context) {
    const auto run = replicated ? train<fsdp::DistributedDataParallel<Net>>
                                : train<fsdp::FullyShardedDataParallel<Net>>;
    return run(context, std::atol(argv[2]), argv[3]);
  });
}
