#include <plan/settings.h>
#include <plan/stack.h>
#include <plan/text.h>
#include <quiz/row.h>

#include <algorithm>

namespace fsdp {
namespace {

const char* const kModel =
    " --model {gpt2-tiny,small} --batch {24,48} --seq {8,12,16} --data pattern"
    " --steps 3";
const char* const kWorld = " --world {2,3,4,6,8}";
const char* const kWrap = " --wrap {block,auto,none}";

// Returns questions of the quiz, before the settings for a student are drawn. Questions 1 to 9 are
// typical questions of job interviews.
std::vector<Row> questions() {
  const std::map<std::string, std::string> held{
      {"shards", "/live_bytes/optimizer/shards"},
      {"gathered", "/live_bytes/optimizer/gathered"},
      {"gradients", "/live_bytes/optimizer/gradients"},
      {"sharded_gradients", "/live_bytes/optimizer/sharded_gradients"},
      {"optimizer_state", "/live_bytes/optimizer/optimizer_state"}};
  return {
      {"How many bytes of each class are alive at most while the optimizer runs?",
       "--mode fsdp --optimizer {adamw,sgd}", held},
      {"Question 1, if each rank has a whole replica: how many bytes, and why are they more?",
       "--mode ddp --optimizer {adamw,sgd}", held},
      {"How many bytes does a rank receive in a step to reduce its gradients?",
       "--mode fsdp",
       {{"received", "/comm_bytes/reduce_scatter"}}},
      {"Question 3, if each rank has a whole replica: how many bytes, and what is received twice?",
       "--mode ddp",
       {{"received", "/comm_bytes/all_reduce"}}},
      {"How many bytes does a rank receive in a step to gather the parameters?",
       "--mode fsdp --strategy {full,grad_op}",
       {{"received", "/comm_bytes/all_gather"}}},
      {"How many bytes does a rank receive in a step to gather and to reduce in 16 bits?",
       "--mode fsdp --param-dtype bf16",
       {{"gather", "/comm_bytes/all_gather"}, {"reduce", "/comm_bytes/reduce_scatter"}}},
      {"How many bytes are gathered at most in forward, and in backward?",
       "--mode fsdp --limit {1,2,3,4,all}",
       {{"forward", "/live_bytes/forward/gathered"},
        {"backward", "/live_bytes/backward/gathered"}}},
      {"How long does a step take with these links and processors?",
       "--mode fsdp --prefetch {on,off} --flops 1G --intra {1ms,5ms},{50MB/s,100MB/s}",
       {{"milliseconds", "/milliseconds"}}},
      {"How many bytes are alive at most in all classes, and in which phase?",
       "--mode fsdp --strategy {full,grad_op} --limit {1,2,3}",
       {{"bytes", "/most_bytes"}, {"phase", "/most_in"}}},
      {"How many bytes of activations are alive at most in forward, and in backward?",
       "--mode fsdp --checkpoint-activations {none,all,every:2}",
       {{"forward", "/live_bytes/forward/other"}, {"backward", "/live_bytes/backward/other"}}},
      {"How many bytes does the transport take at most in backward?",
       "--mode fsdp --backend gloo",
       {{"bytes", "/live_bytes/backward/communication"}}},
      {"What does a rank receive in a step if two share a replica?",
       "--mode fsdp --strategy hybrid --shard-size 2 --world {4,6,8}",
       {{"gather", "/comm_bytes/all_gather"}, {"replicas", "/comm_bytes/all_reduce"}}},
  };
}

// Returns the numbers that ./fsdp plan computes for the question's run. Most have the keys that
// they have in the last line of the JSON file of ./fsdp train.
nlohmann::json planned(const Question& question) {
  std::vector<std::string> words = question.options;
  if (std::find(words.begin(), words.end(), "--backend") == words.end())
    words.insert(words.end(), {"--backend", "shm"});
  const PlanSettings settings = parse_plan_options(words);
  const TrainConfig& config = settings.configs.front();
  const ShardLayout layout = layout_of(config);
  const ModelTraces traces = traces_of(config, layout);
  const Plan plan = make_plan(config, layout, traces, settings.machine);
  nlohmann::json all = json_of(plan, config);
  all["comm_bytes"] = predict_comm_bytes(schedule(config, layout, 0, /*first=*/false, traces));
  all["most_bytes"] = plan.peak.bytes.total;
  all["most_in"] = to_string(plan.peak.phase);
  if (plan.time) all["milliseconds"] = static_cast<double>(plan.time->total()) * 1e-6;
  return all;
}

}  // namespace

std::vector<Row> accounting_rows() {
  std::vector<Row> rows = questions();
  for (Row& row : rows) {
    row.solve = planned;
    row.options += kModel;
    for (const auto& [option, has] : {std::pair{kWorld, "--world"}, {kWrap, "ddp"}})
      if (row.options.find(has) == std::string::npos) row.options += option;
  }
  return rows;
}

}  // namespace fsdp
