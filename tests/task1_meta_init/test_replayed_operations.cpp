#include <meta_init.h>
#include <testing/kernel_calls.h>

#include <map>
#include <set>

#include "constructions.h"

using namespace fsdp;

namespace {

using Names = std::set<std::string>;

// construct_four() calls each of these operators once, and nothing else calls them.
const Names kOperators{"aten::exponential_", "aten::cauchy_", "aten::tanh",  "aten::cumsum",
                       "aten::atan2_",       "aten::erfinv_", "aten::hypot", "aten::sinc_"};

struct Four {
  at::Tensor first, second, from_first, from_both;
};

Four construct_four() {
  Four four;
  four.first = torch::empty({4});
  four.first.exponential_();
  four.second = torch::empty({4});
  four.second.cauchy_();
  four.from_first = four.first.tanh();
  const at::Tensor only_reads = four.first.cumsum(0);
  four.second.atan2_(four.first);
  four.first.erfinv_();
  four.from_both = four.from_first.hypot(four.second);
  four.second.sinc_();
  return four;
}

// Returns how often `body` calls each operator of kOperators, without those it does not call.
std::map<std::string, int> calls_in(const std::function<void()>& body) {
  std::map<std::string, int> calls;
  for (const std::string& name : kOperators)
    if (const int count = kernel_calls(name, body); count > 0) calls[name] = count;
  return calls;
}

std::map<std::string, int> once_each(const Names& names) {
  std::map<std::string, int> calls;
  for (const std::string& name : names)
    calls[name] = 1;
  return calls;
}

}  // namespace

TEST(T1_3_replayed_operations, an_operation_is_replayed_only_for_tensors_that_depend_on_it) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    Four four;
    const DeferredInit init([&] { four = construct_four(); });
    const auto observe = [&](const std::string& name, const at::Tensor& tensor) {
      const auto calls = calls_in([&] { const at::Tensor made = init.materialize_tensor(tensor); });
      rank.observe("operations that are replayed for " + name, calls);
    };
    observe("first", four.first);
    observe("second", four.second);
    observe("from_first", four.from_first);
    observe("from_both", four.from_both);
  });
  const std::map<std::string, Names> expected{
      {"first", {"aten::exponential_", "aten::erfinv_"}},
      {"second", {"aten::exponential_", "aten::cauchy_", "aten::atan2_", "aten::sinc_"}},
      {"from_first", {"aten::exponential_", "aten::tanh"}},
      {"from_both",
       {"aten::exponential_", "aten::cauchy_", "aten::tanh", "aten::atan2_", "aten::hypot"}}};
  for (const auto& [name, operations] : expected)
    expect_on_all_ranks(run, "operations that are replayed for " + name, once_each(operations));
}

TEST(T1_3_replayed_operations, materialize_module_replays_each_operation_once) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    std::map<std::string, int> first_call, second_call;
    for (const std::string& name : kOperators) {
      std::shared_ptr<Holder> module;
      const DeferredInit init([&] {
        const Four four = construct_four();
        module = std::make_shared<Holder>([&](Holder& self) {
          self.buffer("first", four.first);
          self.buffer("from_first", four.from_first);
        });
      });
      const auto materialize = [&] { init.materialize_module(*module); };
      if (const int calls = kernel_calls(name, materialize); calls > 0) first_call[name] = calls;
      if (const int calls = kernel_calls(name, materialize); calls > 0) second_call[name] = calls;
    }
    rank.observe("operations of the first materialize_module()", first_call);
    rank.observe("operations of the second", nlohmann::json(second_call).size());
  });
  expect_on_all_ranks(run, "operations of the first materialize_module()",
                      once_each({"aten::exponential_", "aten::tanh", "aten::erfinv_"}));
  expect_on_all_ranks(run, "operations of the second", 0);
}
