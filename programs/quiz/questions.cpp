#include <digest/sha256.h>
#include <plan/settings.h>
#include <plan/stack.h>
#include <plan/text.h>
#include <quiz/quiz.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <sstream>

namespace fsdp {
namespace {

struct Row {
  const char* text;
  const char* options;  // of each "{a,b}" one value is drawn
  std::map<std::string, std::string> fields;
};

const char* const kModel =
    " --model {gpt2-tiny,small} --batch {24,48} --seq {8,12,16} --data pattern"
    " --steps 3";
const char* const kWorld = " --world {2,3,4,6,8}";
const char* const kWrap = " --wrap {block,auto,none}";

// The first nine questions are those that interviews ask.
const std::vector<Row>& rows() {
  const std::map<std::string, std::string> held{
      {"shards", "/live_bytes/optimizer/shards"},
      {"gathered", "/live_bytes/optimizer/gathered"},
      {"gradients", "/live_bytes/optimizer/gradients"},
      {"sharded_gradients", "/live_bytes/optimizer/sharded_gradients"},
      {"optimizer_state", "/live_bytes/optimizer/optimizer_state"}};
  static const std::vector<Row> all{
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
  return all;
}

// Returns `options` as words, with one value for each "{a,b}". The digest of `seed` selects it.
std::vector<std::string> drawn(std::string options, const std::string& seed) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(seed)));
  const std::string digits = digest.hex();
  size_t at = 0;
  for (size_t begin = 0; (begin = options.find('{', begin)) != std::string::npos; at += 4) {
    const size_t end = options.find('}', begin);
    std::vector<std::string> choices;
    std::istringstream list(options.substr(begin + 1, end - begin - 1));
    for (std::string one; std::getline(list, one, ',');)
      choices.push_back(one);
    const size_t number = std::stoul(digits.substr(at, 4), nullptr, 16);
    options.replace(begin, end + 1 - begin, choices[number % choices.size()]);
  }
  std::istringstream words(options);
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

std::vector<Question> questions_of(const std::string& student, const std::string& term) {
  std::vector<Question> questions;
  for (const auto& [text, own, fields] : rows()) {
    const std::string seed = student + '\n' + term + '\n' + std::to_string(questions.size() + 1);
    std::string options = std::string(own) + kModel;
    for (const auto& [option, has] : {std::pair{kWorld, "--world"}, {kWrap, "ddp"}})
      if (options.find(has) == std::string::npos) options += option;
    questions.push_back({text, drawn(options, seed), fields});
  }
  return questions;
}

nlohmann::json answers_of(const Question& question) {
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

bool is_right(const std::string& given, const nlohmann::json& answer) {
  if (answer.is_string()) return given == answer.get<std::string>();
  std::string digits = given;
  std::erase_if(digits, [](char c) { return c == ' ' || c == ',' || c == '_'; });
  if (answer.is_number_integer()) return digits == answer.dump();
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end), wanted = answer;
  return *end == 0 && std::abs(value - wanted) <= 0.01 * wanted;
}

}  // namespace fsdp
