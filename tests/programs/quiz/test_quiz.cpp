#include <meta_init.h>
#include <options/options.h>
#include <quiz/quiz.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <testing/multi_rank.h>

#include <common/expect_text.h>
#include <reference/trained.h>

namespace fsdp {
namespace {

// Runs `make`, which uses torch, in another process, and returns its result.
nlohmann::json in_process(const std::function<nlohmann::json()>& make) {
  return run_ranks(1, [&](TestRank& rank) { rank.observe("made", make()); }).at(0, "made");
}

// Trains with the options of the question. Returns the measured values under the keys under which
// answers_of() has the predicted ones.
nlohmann::json measured(const Question& question) {
  const TrainConfig config = parse_train_options(question.options, [](const std::string&) {});
  const FsdpImplementation fsdp{make_fsdp_strategy, shard_layout, checkpoint_blocks,
                                construct_on_meta};
  nlohmann::json last = trained(config, TemporaryFolder(), fsdp).back();
  last["most_bytes"] = 0;
  for (auto& [phase, classes] : last["live_bytes"].items()) {
    for (auto& [cls, bytes] : classes.items())
      bytes = nlohmann::json(bytes.at("measured"));
    if (phase == "init" || classes["total"] <= last["most_bytes"]) continue;
    last["most_bytes"] = classes["total"];
    last["most_in"] = phase;
  }
  return last;
}

// With FSDP_QUIZ_STUDENTS=20 in the environment, this test checks the questions of 20 students.
TEST(Quiz, the_quiz_accepts_measured_values_and_refuses_four_bytes_more) {
  const char* students = std::getenv("FSDP_QUIZ_STUDENTS");
  for (int student = 0; student < (students ? std::stoi(students) : 1); ++student) {
    auto questions = questions_of("student" + std::to_string(student), "tested");
    // The test cannot train runs as large as those of the questions of scale, which
    // test_scale_question.cpp tests.
    std::erase_if(questions, [](const Question& question) { return question.explain != nullptr; });
    const auto answers = in_process([&] {
      nlohmann::json all;
      for (const Question& question : questions)
        all.push_back(answers_of(question));
      return all;
    });
    for (size_t i = 0; i < questions.size(); ++i) {
      // Skips a question about a time: the quiz predicts times, and this test measures none.
      if (questions[i].fields.contains("milliseconds")) continue;
      const auto run = measured(questions[i]);
      for (const auto& [name, place] : questions[i].fields) {
        SCOPED_TRACE("student " + std::to_string(student) + ": " + questions[i].text + ' ' + name);
        const nlohmann::json::json_pointer at(place);
        const nlohmann::json &answer = answers[i].at(at), &value = run.at(at);
        EXPECT_TRUE(is_right(value.is_string() ? value.get<std::string>() : value.dump(), answer))
            << value << ", not " << answer;
        const int64_t more = value.is_number() ? value.get<int64_t>() + 4 : 0;
        EXPECT_FALSE(is_right(std::to_string(more), answer));
      }
    }
  }
}

TEST(Quiz, the_questions_of_the_quiz_depend_only_on_student_and_term) {
  EXPECT_EQ(template_of("ada", "spring"), template_of("ada", "spring"));
  EXPECT_NE(questions_of("ada", "spring")[0].options, questions_of("bob", "spring")[0].options);
  EXPECT_NE(questions_of("ada", "spring")[0].options, questions_of("ada", "fall")[0].options);
}

TEST(Quiz, grading_the_quiz_does_not_reveal_answers) {
  const std::string told = in_process([] {
    const auto known = answers_of(questions_of("ada", "x")[0]);
    return text_of(marks_of({{"student", "ada"},
                             {"term", "x"},
                             {"1.because", "Ranks share it out."},
                             {"1.shards", known["live_bytes"]["optimizer"]["shards"].dump()},
                             {"1.gathered", "7"}}));
  });
  EXPECT_EQ(
      told.substr(0, told.find("\n  3")),
      "  1  0.20  missing: gradients optimizer_state sharded_gradients; right: shards; wrong: "
      "gathered\n"
      "  2  0.00  missing: gathered gradients optimizer_state sharded_gradients shards; without "
      "a sentence");
}

TEST(Quiz, the_quiz_refuses_an_answer_file_that_is_empty_malformed_or_answers_a_question_twice) {
  const TemporaryFolder folder;
  EXPECT_CONTAINS(error_of([&] { read_answers(folder.write("a", "# x\nno\n")); }),
                  "a, line 2: no c");
  EXPECT_CONTAINS(error_of([&] { read_answers(folder.write("b", "1.x: 1\n1.x: 2\n")); }),
                  "a second");
  EXPECT_CONTAINS(error_of([&] { read_answers(folder.write("c", "")); }), "no lines 'student: ID'");
}

}  // namespace
}  // namespace fsdp
