#include <reproduce/equivalence_table.h>
#include <reproduce/number_text.h>

#include <algorithm>

namespace fsdp {
namespace {

// The results of PyTorch 2.11.0, which trained with the published recipe in one process on the CPU.
constexpr double kFirstLoss = 7.11157274;
constexpr double kLastLoss = 7.09032965;
constexpr double kSum = 2286.52256;
constexpr double kChange = 0.36936;
// Relative tolerance of the change of the parameter sum. It is larger than kTolerance because the
// change is a small difference of two large sums.
constexpr double kChangeTolerance = 1e-3;

Line measured(const TrainResult& run, const std::string& name, int world,
              const std::string& expected_hash) {
  const double sum = run.last.at("param_sum");
  const double change = run.last.at("param_sum_change");
  const double difference =
      std::max({relative_difference(run.loss(0), kFirstLoss),
                relative_difference(run.loss(4), kLastLoss), relative_difference(sum, kSum)});
  const bool ok = difference <= kTolerance && run.hash() == expected_hash &&
                  relative_difference(change, kChange) <= kChangeTolerance;
  return {{name, std::to_string(world), fixed(run.loss(0), 8), fixed(run.loss(4), 8), fixed(sum, 5),
           fixed(change, 5), run.hash().substr(0, 8), scientific(difference)},
          ok};
}

TrainOptions published_small(const std::string& mode, int world) {
  return words("--mode " + mode + " --world " + std::to_string(world) +
               " --model small --recipe published");
}

}  // namespace

Table equivalence_table(const Train& train) {
  Table table;
  table.title = "Equivalence: small model, published recipe, 5 steps";
  table.header = {"run", "W", "loss 0", "loss 4", "param sum", "change", "sha256", "diff"};
  table.lines = {{{"published", "1", "7.11157227", "7.09032917", "2286.52277"}, {}},
                 {{"published FSDP", "8", "7.11157286", "7.09032959", "2286.52272"}, {}},
                 {{"PyTorch CPU", "1", "7.11157274", "7.09032965", "2286.52256", "0.36936"}, {}}};
  for (const int world : {1, 2, 4, 8}) {
    for (const std::string mode : {"single", "ddp", "fsdp"}) {
      table.add({mode, std::to_string(world)}, [&] {
        const std::string expected = train(published_small("single", world)).hash();
        return measured(train(published_small(mode, world)), mode, world, expected);
      });
    }
  }
  table.notes.emplace_back(
      "A line is ok if the losses of steps 0 and 4 and the sum differ from PyTorch's by at most "
      "1e-6 (relative; diff is the largest of the three), the change of the sum since "
      "initialisation by at most 1e-3, and the parameters have the same hash as single's at this "
      "W. single is one process that plays the W ranks in turn. Hashes are comparable within one "
      "run on one machine.");
  return table;
}

}  // namespace fsdp
