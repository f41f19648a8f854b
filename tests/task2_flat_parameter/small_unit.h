#pragma once

#include <flat_parameter.h>
#include <testing/multi_rank.h>

#include <string>
#include <vector>

// What the tests of a unit shard: three parameters.
namespace fsdp {

// Sizes that no number of ranks divides, of 48, 16 and 32 elements with what pads them.
inline const std::vector<std::vector<int64_t>> kShapes{
    test_choice<std::vector<int64_t>>("shape of p0", {{5, 7}, {6, 7}, {5, 9}, {4, 11}, {3, 13}}),
    test_choice<std::vector<int64_t>>("shape of p1", {{3}, {5}, {7}, {11}}),
    test_choice<std::vector<int64_t>>("shape of p2", {{2, 3, 4}, {3, 3, 3}, {29}, {2, 11}})};

// The elements of such a unit on `world_size` ranks.
inline int64_t padded_numel(int world_size) {
  return round_up(48 + 16 + 32, int64_t{16} * world_size);
}

inline int64_t numel(size_t parameter) {
  int64_t product = 1;
  for (const int64_t size : kShapes[parameter])
    product *= size;
  return product;
}

inline std::vector<NamedParameter> make_parameters(
    const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<NamedParameter> parameters;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(7));
  for (size_t i = 0; i < shapes.size(); ++i) {
    parameters.push_back({"p" + std::to_string(i), at::randn(shapes[i], generator)});
    parameters.back().tensor.set_requires_grad(true);
  }
  return parameters;
}

inline FlatParameter make_unit(TestRank& rank,
                               const std::vector<std::vector<int64_t>>& shapes = kShapes) {
  return FlatParameter("unit", make_parameters(shapes), rank.communicator());
}

inline std::string calls(Communicator& comm) {
  std::string text;
  for (const Call& call : comm.take_log())
    text += call.name() + " " + std::to_string(call.bytes) + "; ";
  return text;
}

}  // namespace fsdp
