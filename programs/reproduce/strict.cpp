#include <reproduce/strict.h>

#include <comm/communicator.h>
#include <fully_shard.h>
#include <sharded_optimizer.h>
#include <train/parameter_summary.h>

#include <cmath>
#include <fstream>

namespace fsdp {
namespace {

// The published sum for every W; there, sharded runs differ from it by up to 2.98e-8.
constexpr double kSum = 1.880849838256836;
constexpr double kTolerance = 2.98e-8;

class StrictModel : public Module {
 public:
  StrictModel() : linear_(register_module("linear", torch::nn::Linear(options()))) {}
  torch::Tensor forward(torch::Tensor x) override { return linear_(x); }

 private:
  static torch::nn::LinearOptions options() { return torch::nn::LinearOptions(4, 3).bias(false); }

  torch::nn::Linear linear_;
};

void run_rank(const RankContext& context, const std::filesystem::path& result) {
  at::set_num_threads(1);
  const std::shared_ptr<Communicator> comm = Communicator::create(context);
  torch::manual_seed(42);
  StrictModel model;
  const auto sharded = fully_shard(model, comm);
  OptimizerOptions sgd;
  sgd.kind = OptimizerOptions::Kind::sgd;
  sgd.lr = 0.1;
  sgd.weight_decay = 0;
  ShardedOptimizer optimizer(sharded->units(), {{"", sgd}}, comm);

  torch::manual_seed(100);
  const at::Tensor x = torch::randn({2, 4});
  const at::Tensor y = torch::randn({2, 3});
  torch::mse_loss(model(x), y).backward();
  optimizer.step();

  ParameterSummary summary;
  sharded->full_parameters([&](const auto&, const at::Tensor& p) { summary.add(p); });
  if (context.rank != 0) return;
  std::ofstream(result) << nlohmann::json{{"sum", summary.sum_fp32()}, {"hash", summary.sha256()}};
}

nlohmann::json run(int world, const std::filesystem::path& folder) {
  const auto file = folder / ("strict." + std::to_string(world));
  const LaunchResult result = launch(world, [&](const RankContext& context) {
    run_rank(context, file);
    return 0;
  });
  if (!result.ok()) {
    throw std::runtime_error(result.ranks[static_cast<size_t>(result.first_failure)].text());
  }
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}

}  // namespace

Table strict_table(const std::filesystem::path& folder) {
  Table table;
  table.title = "Strict test: one SGD step of a linear layer";
  table.header = {"run", "W", "param sum", "sha256", "difference"};
  table.lines.push_back({{"published", "1, 2, 4, 8", fixed(kSum, 15)}, {}});
  std::string first;
  for (const int world : {1, 2, 4, 8}) {
    table.add({"fsdp", std::to_string(world)}, [&] {
      const auto seen = run(world, folder);
      const double sum = seen.at("sum");
      const std::string hash = seen.at("hash");
      if (first.empty()) first = hash;
      const double difference = std::abs(sum - kSum);
      return Line{{"fsdp", std::to_string(world), fixed(sum, 15), hash.substr(0, 8),
                   scientific(difference)},
                  hash == first && difference <= kTolerance};
    });
  }
  table.notes.emplace_back(
      "A line is ok when the sum is within 2.98e-8 of the published one, the largest difference "
      "published, and the parameters are those of the first line, to the bit.");
  return table;
}

}  // namespace fsdp
