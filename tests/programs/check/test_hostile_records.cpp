#include <check/test_run.h>
#include <common/hostile_json.h>
#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>

namespace fsdp {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

const std::vector<std::string> kTests{"S.a", "S.b/W2", "S.c"};

// What a program writes whose tests fail.
std::vector<Json> records() {
  std::vector<Json> all{{{"event", "plan"}, {"tests", kTests}}};
  for (const std::string& test : kTests) {
    const Json start{{"event", "start"}, {"suite", "S"}, {"name", test.substr(2)}};
    all.push_back(start);
    all.push_back(start);
    all.back().update(Json::parse(R"({"event": "end", "outcome": "failed", "text": "is 3",
                                      "milliseconds": 1, "timeline": false, "printed": 0})"));
  }
  return all;
}

// What run_tests() makes of a program that writes these bytes in the place of its records.
class HostileRecords : public testing::Test {
 protected:
  HostileRecords()
      : program_(folder_.write("program", R"sh(#!/bin/sh
for argument; do case $argument in --results_to=*)
cat "${0%/*}/stream" >/proc/self/fd/${argument#*=};; esac; done
)sh")) {
    chmod(program_.c_str(), 0700);
  }

  // Each test's outcomes; "" -> {} where it throws.
  std::map<std::string, std::vector<Outcome>> outcomes(const std::string& stream) {
    folder_.write("stream", stream);
    TestRunOptions options;
    options.time_limit = options.whole_limit = 20s;
    std::map<std::string, std::vector<Outcome>> found;
    try {
      for (const TestResult& result : run_tests(program_, options).results)
        found[result.suite + '.' + result.name].push_back(result.outcome);
    } catch (const std::exception&) {
      found[""];
    }
    return found;
  }

 private:
  TemporaryFolder folder_;
  std::string program_;
};

std::string lines(const std::vector<Json>& records) {
  std::string text;
  for (const Json& record : records)
    text += record.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  return text;
}

TEST_F(HostileRecords, are_results_as_they_are) {
  std::map<std::string, std::vector<Outcome>> all;
  for (const std::string& test : kTests)
    all[test] = {Outcome::failed};
  EXPECT_EQ(outcomes(lines(records())), all);
}

TEST_F(HostileRecords, pass_no_test_and_end_in_time_whatever_is_changed_in_them) {
  for (int seed = 0; seed < hostile_tries(); ++seed) {
    Dice dice(seed);
    std::vector<Json> changed = records();
    for (size_t i = 1 + below(dice, 3); i > 0; --i) {
      Json& record = changed[below(dice, changed.size())];
      if (below(dice, 3) == 0) {
        std::swap(record, changed[below(dice, changed.size())]);
      } else {
        spoil(record, dice);
      }
    }
    std::string stream = lines(changed);
    if (below(dice, 2) == 0) spoil(stream, dice);
    for (const auto& [test, outcomes] : outcomes(stream)) {
      EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), Outcome::passed), 0)
          << "seed " << seed;
      EXPECT_LE(outcomes.size(), 1U) << "seed " << seed << ": " << test;
    }
  }
}

// Results of tests that were not to run, again and again: they bring no test nearer to its end.
TEST_F(HostileRecords, of_other_tests_do_not_keep_it_waiting) {
  std::vector<Json> other = records();
  for (Json& record : other)
    if (record.contains("suite")) record["suite"] = "Other";
  EXPECT_TRUE(outcomes(lines(other)).contains(""));
}

}  // namespace
}  // namespace fsdp
