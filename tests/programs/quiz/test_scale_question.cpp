#include <memory/counting_allocator.h>
#include <nn/models.h>
#include <quiz/scale.h>
#include <quiz/step_by_hand.h>

#include <gtest/gtest.h>

#include <common/in_a_process.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

namespace fsdp {
namespace {

// The settings of a question, and the parameters, bytes and seconds that a student computes from
// them by hand on the way to the answer.
struct ByHand {
  explicit ByHand(const Question& question)
      : settings(settings_with(question)),
        shape(std::get<GPT2Options>(model_shape(settings.configs.front().model.name))),
        seq(static_cast<double>(settings.configs.front().training.seq)),
        link(*settings.machine.between) {}

  double block() const { return (12 * d() + 13) * d(); }  // number of parameters of a block
  double root() const { return static_cast<double>(shape.vocabulary + shape.context + 2) * d(); }
  static double padded(double parameters, double ranks) {
    return std::ceil(parameters / (16 * ranks)) * 16 * ranks;
  }
  // Returns how many bytes a rank receives in an all-gather or a reduce-scatter of `parameters`
  // elements in bf16.
  static double bytes_of(double parameters, double ranks) {
    return (ranks - 1) / ranks * 2 * padded(parameters, ranks);
  }
  // Returns how many seconds an all-gather or reduce-scatter of `parameters` elements takes: W - 1
  // hops and the transfer of the bytes.
  double time_of(double parameters, double ranks) const {
    return (ranks - 1) * static_cast<double>(link.latency.count()) * 1e-9 +
           bytes_of(parameters, ranks) / link.bytes_per_second;
  }
  // Returns how many seconds the forward of a block computes for one row of the batch. In addition
  // to the products with its matrices, a block has 2 products of attention in forward and 5 in
  // backward.
  double forward_of_row() const {
    return seq * (2 * 12 * d() * d() + 4 * seq * d()) / settings.machine.flops;
  }
  double backward_of_row() const {
    return seq * (4 * 12 * d() * d() + 10 * seq * d()) / settings.machine.flops;
  }
  double head_backward_of_row() const {
    return seq * 4 * static_cast<double>(shape.vocabulary) * d() / settings.machine.flops;
  }
  double d() const { return static_cast<double>(shape.d_model); }
  double layers() const { return static_cast<double>(shape.layers); }

  PlanSettings settings;
  GPT2Options shape;
  double seq;
  Link link;
};

// Returns the first number from `from` on for which `holds` returns true.
int64_t first(int64_t from, const std::function<bool(double)>& holds) {
  while (!holds(static_cast<double>(from)))
    ++from;
  return from;
}

int64_t most_ranks_by_hand(const Question& question) {
  const ByHand hand(question);
  const auto rows = static_cast<double>(hand.settings.configs.front().training.batch);
  const double computing =
      rows * (hand.layers() * hand.backward_of_row() + hand.head_backward_of_row());
  return first(2,
               [&](double ranks) {
                 return 2 * hand.layers() * hand.time_of(hand.block(), ranks) +
                            hand.time_of(hand.root(), ranks) >
                        computing;
               }) -
         1;
}

int64_t fewest_rows_by_hand(const Question& question) {
  const ByHand hand(question);
  const double gather = hand.time_of(hand.block(), hand.settings.configs.front().ranks.world);
  return first(1, [&](double rows) { return rows * hand.forward_of_row() >= gather; });
}

double checkpoint_seconds_by_hand(const Question& question) {
  const PlanSettings settings = settings_with(question);
  const auto shape = std::get<GPT2Options>(model_shape("gpt3-175b"));
  const auto d = static_cast<double>(shape.d_model);
  const double parameters = static_cast<double>(shape.layers) * (12 * d + 13) * d +
                            static_cast<double>(shape.vocabulary + shape.context + 2) * d;
  const double hosts =
      settings.configs.front().ranks.world / static_cast<double>(settings.machine.ranks_per_host);
  return 12 * parameters / (hosts * question.amount * 1e9);
}

// Checks that the answer is accepted, and that an answer that is 2 % larger or smaller is not.
void expect_strict(const nlohmann::json& answer) {
  EXPECT_TRUE(is_right(answer.is_string() ? answer.get<std::string>() : answer.dump(), answer));
  EXPECT_FALSE(is_right("", answer));
  if (answer.is_string()) return;
  for (const double factor : {0.98, 1.02}) {
    const double other = factor * answer.get<double>();
    EXPECT_FALSE(is_right(std::to_string(other), answer)) << other << " for " << answer;
    if (!answer.is_number_integer()) continue;
    const auto step = std::max<int64_t>(1, std::llround(0.02 * answer.get<double>()));
    const int64_t whole = answer.get<int64_t>() + (factor < 1 ? -step : step);
    EXPECT_FALSE(is_right(std::to_string(whole), answer));
  }
}

// Checks the bytes that a rank receives in a step within its host and from the other host, and how
// long it computes. Also checks that the step takes at least as long as its computation and as its
// transfers, and at most as long as both together.
void expect_costs(const Question& question, const Contender& one) {
  const ByHand hand(question);
  const TrainConfig& config = hand.settings.configs.front();
  const Machine& machine = hand.settings.machine;
  const double ranks = config.ranks.world, of_host = machine.ranks_per_host;
  // Each block is gathered in forward and reduced in backward. Unless the strategy is grad_op, a
  // block is gathered again in backward. The root is gathered only in forward, because it stays
  // unsharded until backward.
  const bool hybrid = one.name == "hybrid";
  const double sharing = hybrid ? of_host : ranks, of_block = one.name == "grad_op" ? 2 : 3;
  const double gathered_and_reduced =
      hand.layers() * of_block * ByHand::bytes_of(hand.block(), sharing) +
      2 * ByHand::bytes_of(hand.root(), sharing);
  double hops = (hand.layers() * of_block + 2) * (sharing - 1);
  const Link& link = hybrid ? *machine.within : *machine.between;
  double links = hops * static_cast<double>(link.latency.count()) * 1e-9 +
                 gathered_and_reduced / link.bytes_per_second;
  // Between the two replicas (H = 2), hybrid all-reduces a shard of each unit in fp32, so a rank
  // receives 2 (H - 1) / H = 1 times the bytes of the shard.
  double of_replicas = 0;
  if (hybrid) {
    of_replicas = 4 / of_host *
                  (hand.layers() * ByHand::padded(hand.block(), of_host) +
                   ByHand::padded(hand.root(), of_host));
    hops = (hand.layers() + 1) * 2;
    links += hops * static_cast<double>(machine.between->latency.count()) * 1e-9 +
             of_replicas / machine.between->bytes_per_second;
  }
  // A rank also receives 16 bytes for the loss from each other rank. They count as received from
  // the other host, because some of these ranks are there.
  const double from_other_host = (hybrid ? of_replicas : gathered_and_reduced) + 16 * (ranks - 1);
  EXPECT_EQ(one.plan.within, std::llround(hybrid ? gathered_and_reduced : 0)) << one.name;
  EXPECT_EQ(one.plan.between, std::llround(from_other_host)) << one.name;

  // A rank computes each forward of a block twice, because its activations are checkpointed.
  const double rows = static_cast<double>(config.training.batch) / ranks;
  const double computing =
      rows * (hand.layers() * (2 * hand.forward_of_row() + hand.backward_of_row()) +
              1.5 * hand.head_backward_of_row());
  const double step = one.milliseconds * 1e-3;
  EXPECT_NEAR(static_cast<double>(one.plan.time.value().computing) * 1e-9 / computing, 1, 0.005)
      << one.name;
  EXPECT_GT(step, 0.995 * std::max(computing, links)) << one.name;
  EXPECT_LT(step, 1.005 * (computing + links)) << one.name;
}

void expect_fastest(const Question& question, const nlohmann::json& answers) {
  double best = 0;
  std::string name;
  for (const Contender& one : contenders(question)) {
    expect_costs(question, one);
    const double peak = static_cast<double>(one.plan.peak.bytes.total) * 1e-9;
    EXPECT_GT(std::abs(peak / question.amount - 1), 0.02) << one.name << " nearly fits";
    if (peak > question.amount) continue;
    if (best > 0) {
      EXPECT_GT(std::abs(one.milliseconds / best - 1), 0.02) << one.name << " is nearly as fast";
    }
    if (best > 0 && one.milliseconds > best) continue;
    best = one.milliseconds;
    name = one.name;
  }
  EXPECT_EQ(answers.at("fastest"), name);
  EXPECT_EQ(answers.at("milliseconds"), best);
}

void expect_answers_by_hand(const Question& question, const nlohmann::json& answers) {
  if (question.solve == most_ranks) {
    EXPECT_EQ(answers.at("ranks"), most_ranks_by_hand(question));
  } else if (question.solve == fewest_rows) {
    EXPECT_EQ(answers.at("rows"), fewest_rows_by_hand(question));
  } else if (question.solve == fastest_strategy) {
    expect_fastest(question, answers);
  } else {
    const double seconds = answers.at("seconds");
    EXPECT_NEAR(seconds / checkpoint_seconds_by_hand(question), 1, 0.005);
  }
}

std::vector<Question> scale_questions_of(int student) {
  std::vector<Question> scale;
  for (const Question& question : questions_of("student" + std::to_string(student), "tested"))
    if (question.explain != nullptr) scale.push_back(question);
  return scale;
}

int students() {
  const char* given = std::getenv("FSDP_QUIZ_STUDENTS");
  return given ? std::stoi(given) : 2;
}

TEST(ScaleQuestion, every_student_has_the_four_kinds_of_scale_questions_with_different_settings) {
  std::set<std::vector<std::string>> settings;
  for (int student = 0; student < 24; ++student) {
    std::set<Question::Solve> kinds;
    std::vector<std::string> all;
    for (const Question& question : scale_questions_of(student)) {
      kinds.insert(question.solve);
      all.insert(all.end(), question.options.begin(), question.options.end());
      EXPECT_EQ(question.text.find('@'), std::string::npos) << question.text;
    }
    EXPECT_EQ(kinds, (std::set<Question::Solve>{most_ranks, fewest_rows, fastest_strategy,
                                                checkpoint_time}));
    settings.insert(all);
  }
  EXPECT_EQ(settings.size(), 24);
}

// With FSDP_QUIZ_STUDENTS=50 in the environment, this test checks the questions of 50 students.
TEST_IN_A_PROCESS(ScaleQuestion, the_answers_of_plan_are_those_that_a_student_computes_by_hand) {
  counting_allocator::install();
  std::map<std::string, int> fastest;
  for (int student = 0; student < students(); ++student) {
    for (const Question& question : scale_questions_of(student)) {
      SCOPED_TRACE("student " + std::to_string(student) + ": " + question.text);
      const nlohmann::json answers = answers_of(question);
      for (const auto& [name, place] : question.fields)
        expect_strict(answers.at(nlohmann::json::json_pointer(place)));
      expect_answers_by_hand(question, answers);
      if (answers.contains("fastest")) ++fastest[answers.at("fastest")];
    }
  }
  if (students() < 20) return;
  EXPECT_EQ(fastest.size(), 3) << nlohmann::json(fastest);
  std::printf("the fastest strategies: %s\n", nlohmann::json(fastest).dump().c_str());
}

// The grader accepts an answer that is at most 1 % off.
TEST_IN_A_PROCESS(ScaleQuestion,
                  for_every_strategy_the_time_of_a_step_computed_by_hand_is_near_that_of_plan) {
  counting_allocator::install();
  for (int student = 0; student < students(); ++student) {
    for (const Question& question : scale_questions_of(student)) {
      if (question.solve != fastest_strategy) continue;
      const PlanSettings settings = settings_with(question);
      for (const Contender& one : contenders(question))
        EXPECT_NEAR(step_by_hand(settings, one.name).total() / one.milliseconds, 1, 0.005)
            << "student " << student << ", " << one.name;
    }
  }
}

TEST_IN_A_PROCESS(ScaleQuestion,
                  plans_with_the_answer_and_with_its_neighbour_show_that_the_answer_is_the_limit) {
  counting_allocator::install();
  const auto questions = scale_questions_of(0);
  const int64_t ranks = most_ranks(questions.at(0)).at("ranks");
  const auto backward = [&](int64_t world) {
    return cost_of(plan_with(questions.at(0), {"--world", std::to_string(world)}), Phase::backward);
  };
  EXPECT_LE(backward(ranks).links, backward(ranks).computing);
  EXPECT_GT(backward(ranks + 1).links, backward(ranks + 1).computing);

  const int64_t rows = fewest_rows(questions.at(1)).at("rows");
  const auto waiting = [&](int64_t count) {
    return cost_of(plan_with(questions.at(1), {"--rows", std::to_string(count)}), Phase::forward)
        .waiting;
  };
  EXPECT_GT(waiting(rows - 1), waiting(rows));
  EXPECT_EQ(waiting(2 * rows), waiting(rows));
}

}  // namespace
}  // namespace fsdp
