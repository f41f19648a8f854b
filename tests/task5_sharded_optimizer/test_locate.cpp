#include <locate.h>
#include <optim/shard_layout.h>
#include <testing/expectations.h>
#include <testing/multi_rank.h>

#include <algorithm>
#include <optional>
#include <random>
#include <sstream>

#include "each_element.h"

namespace fsdp {
namespace {

using Ranges = std::vector<ElementRange>;

// Returns the items as a text. For example "saved[1] from 5: 11 to 0; " means: read 11 elements of
// saved[1], from its sixth one on, into the range from its first element on.
std::string text_of(const std::vector<ReadItem>& items) {
  std::ostringstream text;
  for (const ReadItem& item : items)
    text << "saved[" << item.saved_index << "] from " << item.saved_offset << ": " << item.length
         << " to " << item.dest_offset << "; ";
  return text.str();
}

std::string text_of(const ElementRange& range) {
  return range.parameter + ':' + std::to_string(range.begin) + '-' + std::to_string(range.end);
}

// A range, what is saved, and what locate() must return, or the element for which it must throw.
struct Case {
  ElementRange range;
  Ranges saved;
  // The expected result of locate(), as text_of() writes it. It is not used if `refused` is set.
  std::string items;
  // The index of the element that the expected error of locate() names; empty: no error is
  // expected.
  std::optional<int64_t> refused{};
};

Case refused(const ElementRange& range, const Ranges& saved, int64_t element) {
  return {range, saved, "", element};
}

// Returns a case whose expected items come from each_element(), which looks for each element
// separately. Neighbouring elements in one saved range are joined to one item.
Case by_elements(const ElementRange& range, const Ranges& saved) {
  std::vector<ReadItem> items;
  try {
    for (const ReadItem& element : each_element(range, saved)) {
      if (items.empty() || items.back().saved_index != element.saved_index) {
        items.push_back(element);
      } else {
        items.back().length += element.length;
      }
    }
  } catch (const std::invalid_argument& error) {
    return refused(range, saved, std::stoll(error.what()));
  }
  return {range, saved, text_of(items)};
}

void expect_located(const std::vector<Case>& cases) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    std::vector<std::string> found;
    for (const Case& one : cases) {
      std::string text;
      const auto thrown = thrown_by([&] { text = text_of(locate(one.range, one.saved)); });
      found.push_back(thrown == kNothingThrown ? text : thrown);
    }
    rank.observe("found", found);
  });
  const auto found = run.at(0, "found").get<std::vector<std::string>>();
  for (size_t i = 0; i < cases.size() && !testing::Test::HasFailure(); ++i) {
    std::string wanted = text_of(cases[i].range) + " of";
    for (const ElementRange& saved : cases[i].saved)
      wanted += ' ' + text_of(saved);
    if (!cases[i].refused) {
      EXPECT_EQ(found[i], cases[i].items) << wanted;
      continue;
    }
    EXPECT_TRUE(found[i].starts_with("std::invalid_argument"))
        << wanted << " is not refused: " << found[i];
    expect_error_says(found[i], cases[i].range.parameter);
    expect_error_says(found[i], std::to_string(*cases[i].refused));
  }
}

TEST(T5_6_locate, locate_reads_a_saved_range_whole_if_it_equals_the_range) {
  expect_located({{{"w", 16, 24}, {{"w", 0, 16}, {"w", 16, 24}}, "saved[1] from 0: 8 to 0; "}});
}

TEST(T5_6_locate, locate_reads_a_range_that_begins_and_ends_inside_saved_ranges) {
  const Ranges handout{{"w", 0, 12}, {"w", 12, 24}, {"w", 24, 36}, {"w", 36, 40}};
  expect_located({{{"w", 12, 36}, handout, "saved[1] from 0: 12 to 0; saved[2] from 0: 12 to 12; "},
                  {{"w", 27, 30}, handout, "saved[2] from 3: 3 to 0; "},
                  {{"w", 16, 34}, handout, "saved[1] from 4: 8 to 0; saved[2] from 0: 10 to 8; "}});
}

TEST(T5_6_locate, locate_reads_a_range_from_three_saved_ranges) {
  expect_located({{{"w", 2, 9},
                   {{"w", 0, 3}, {"w", 3, 7}, {"w", 7, 10}},
                   "saved[0] from 2: 1 to 0; saved[1] from 0: 4 to 1; saved[2] from 0: 2 to 5; "}});
}

TEST(T5_6_locate, locate_reads_no_saved_range_that_does_not_overlap_the_range) {
  expect_located(
      {{{"w", 4, 8}, {{"w", 0, 4}, {"w", 4, 8}, {"w", 8, 12}}, "saved[1] from 0: 4 to 0; "}});
}

TEST(T5_6_locate, locate_returns_its_items_in_the_order_of_the_elements) {
  Ranges saved{{"w", 0, 5}, {"w", 5, 6}, {"w", 6, 13}, {"w", 13, 20}};
  std::vector<Case> cases;
  do {
    cases.push_back(by_elements({"w", 0, 20}, saved));
  } while (std::next_permutation(saved.begin(), saved.end(),
                                 [](const auto& a, const auto& b) { return a.begin < b.begin; }));
  expect_located(cases);
}

TEST(T5_6_locate, locate_reads_nothing_for_an_empty_range) {
  std::vector<Case> cases{{{"w", 0, 0}, {}, ""}};
  for (const int64_t element : {0, 5, 8, 16, 20})
    cases.push_back({{"w", element, element}, {{"w", 0, 8}, {"w", 8, 16}}, ""});
  cases.push_back({{"w", 8, 9}, {{"w", 0, 8}, {"w", 8, 16}}, "saved[1] from 0: 1 to 0; "});
  expect_located(cases);
}

TEST(T5_6_locate, locate_passes_over_empty_saved_ranges) {
  const Ranges saved{{"w", 0, 0}, {"w", 0, 8}, {"w", 4, 4}, {"w", 8, 8}, {"w", 8, 16}};
  expect_located({{{"w", 0, 16}, saved, "saved[1] from 0: 8 to 0; saved[4] from 0: 8 to 8; "},
                  {{"w", 4, 6}, saved, "saved[1] from 4: 2 to 0; "}});
}

TEST(T5_6_locate, locate_compares_the_whole_name_of_a_parameter) {
  const Ranges saved{{"h.10", 0, 8}, {"h.1.bias", 0, 8}, {"h", 0, 8},
                     {"h.1", 0, 8},  {"H.1", 0, 8},      {"a.h.1", 0, 8}};
  expect_located({{{"h.1", 2, 6}, saved, "saved[3] from 2: 4 to 0; "},
                  {{"h", 2, 6}, saved, "saved[2] from 2: 4 to 0; "}});
}

TEST(T5_6_locate, locate_ignores_gaps_and_overlaps_outside_the_range) {
  expect_located({{{"w", 9, 15},
                   {{"w", 4, 8}, {"w", 4, 8}, {"w", 8, 12}, {"w", 12, 16}, {"w", 15, 24}},
                   "saved[2] from 1: 3 to 0; saved[3] from 0: 3 to 3; "}});
}

TEST(T5_6_locate, locate_throws_and_names_the_first_element_in_no_saved_range) {
  const Ranges saved{{"h.w", 40, 50}, {"h.w", 61, 70}, {"h.w", 70, 80}, {"h.b", 0, 99}};
  expect_located({refused({"h.w", 45, 65}, saved, 50), refused({"h.w", 65, 85}, saved, 80),
                  refused({"h.w", 32, 45}, saved, 32), refused({"h.w", 55, 60}, saved, 55),
                  refused({"h.w", 12, 99}, saved, 12), refused({"h.none", 0, 8}, saved, 0),
                  refused({"h.w", 45, 46}, {}, 45)});
}

TEST(T5_6_locate, locate_throws_and_names_the_first_element_in_two_saved_ranges) {
  expect_located(
      {refused({"h.w", 40, 60}, {{"h.w", 40, 60}, {"h.w", 40, 60}}, 40),
       refused({"h.w", 40, 60}, {{"h.w", 40, 51}, {"h.w", 50, 60}}, 50),
       refused({"h.w", 40, 60}, {{"h.w", 30, 70}, {"h.w", 45, 50}}, 45),
       refused({"h.w", 42, 60}, {{"h.w", 20, 70}, {"h.w", 30, 50}}, 42),
       refused({"h.w", 40, 60}, {{"h.w", 59, 70}, {"h.w", 40, 60}, {"h.w", 75, 90}}, 59)});
}

TEST(T5_6_locate, locate_counts_elements_in_64_bits) {
  constexpr int64_t kMany = 5'000'000'000;
  expect_located(
      {{{"w", 3, 2 * kMany},
        {{"w", 0, kMany}, {"w", kMany, 2 * kMany}},
        "saved[0] from 3: 4999999997 to 0; saved[1] from 0: 5000000000 to 4999999997; "}});
}

// Returns the ranges of five parameters of one unit whose flat parameter is cut into W equal
// shards.
Ranges saved_by(int world_size) {
  const std::vector<int64_t> numels{40, 7, 1, 64, 129};
  int64_t total = 0;
  for (const int64_t numel : numels)
    total += round_up(numel, kAlignment);
  const int64_t shard = round_up(total, kAlignment * world_size) / world_size;
  Ranges ranges;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    int64_t offset = 0;
    for (size_t i = 0; i < numels.size(); ++i) {
      const int64_t begin = std::max<int64_t>(rank * shard - offset, 0);
      const int64_t end = std::min((rank + 1) * shard - offset, numels[i]);
      if (begin < end) ranges.push_back({"p" + std::to_string(i), begin, end});
      offset += round_up(numels[i], kAlignment);
    }
  }
  return ranges;
}

TEST(T5_6_locate, locate_finds_the_ranges_that_another_number_of_ranks_saved) {
  std::vector<Case> cases;
  for (int saving = 1; saving <= 8; ++saving)
    for (int loading = 1; loading <= 8; ++loading)
      for (const ElementRange& range : saved_by(loading))
        cases.push_back(by_elements(range, saved_by(saving)));
  expect_located(cases);
}

// A case has a few saved ranges of a few elements. Often elements are missing, and often elements
// are there twice.
TEST(T5_6_locate, locate_finds_in_random_ranges_what_a_search_by_element_finds) {
  std::mt19937 random(1);  // NOLINT: the same ranges in every run
  const auto range = [&] {
    const auto begin = static_cast<int64_t>(random() % 7);
    return ElementRange{random() % 4 == 0 ? "b" : "w", begin,
                        begin + static_cast<int64_t>(random() % 5)};
  };
  std::vector<Case> cases;
  for (int i = 0; i < 3000; ++i) {
    const ElementRange wanted = range();
    Ranges saved(random() % 5);
    std::generate(saved.begin(), saved.end(), range);
    cases.push_back(by_elements(wanted, saved));
  }
  expect_located(cases);
}

}  // namespace
}  // namespace fsdp
