#include <comm/communicator.h>
#include <fully_shard.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <launch/rank_exit.h>
#include <reproduce/number_text.h>
#include <reproduce/strict_table.h>
#include <sharded_optimizer.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace fsdp {
namespace {

// The published sum of all parameters after the SGD step, the same for every number of ranks.
constexpr double kStrictSum = 1.880849838256836;

class StrictModel : public Module {
 public:
  torch::Tensor forward(torch::Tensor x) override { return linear_(x); }

 private:
  torch::nn::Linear linear_{
      register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)))};
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
  const auto optimizer = make_sharded_optimizer(sharded->units(), {{"", sgd}}, comm);

  torch::manual_seed(100);
  const at::Tensor x = torch::randn({2, 4});
  const at::Tensor y = torch::randn({2, 3});
  torch::mse_loss(model(x), y).backward();
  optimizer->step();

  sharded->full_parameters([&](const auto&, const at::Tensor& p) {
    const std::vector<float> values(p.data_ptr<float>(), p.data_ptr<float>() + p.numel());
    std::ofstream(result) << nlohmann::json{{"sum", p.sum().item<double>()}, {"values", values}};
  });
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

double largest_difference(const std::vector<double>& one, const std::vector<double>& other) {
  if (one.size() != other.size()) throw std::runtime_error("runs have different parameters");
  double largest = 0;
  for (size_t i = 0; i < one.size(); ++i)
    largest = std::max(largest, std::abs(one[i] - other[i]));
  return largest;
}

}  // namespace

Table strict_table(const std::filesystem::path& folder) {
  Table table;
  table.title = "Strict test: one SGD step of a linear layer";
  table.header = {"run", "W", "param sum", "max diff"};
  table.lines = {{{"published", "1", fixed(kStrictSum, 15)}, {}},
                 {{"published FSDP", "1, 2, 4, 8", fixed(kStrictSum, 15), "3e-08"}, {}}};
  std::vector<double> first;
  for (const int world : {1, 2, 4, 8}) {
    table.add({"fsdp", std::to_string(world)}, [&] {
      const auto seen = run(world, folder);
      const double sum = seen.at("sum");
      const std::vector<double> values = seen.at("values");
      if (first.empty()) first = values;
      const double difference = largest_difference(values, first);
      return Line{{"fsdp", std::to_string(world), fixed(sum, 15), scientific(difference)},
                  sum == kStrictSum && difference == 0};
    });
  }
  table.notes.emplace_back(
      "A line is ok if the sum is the published one, to the bit, and no parameter differs from that "
      "of W = 1. A tree adds the equal gradients of 2, 4 or 8 ranks without rounding; added one by "
      "one, as in the published runs, they are rounded from W = 3 on.");
  return table;
}

}  // namespace fsdp
