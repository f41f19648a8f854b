#include <gtest/gtest.h>
#include <trace/timeline.h>

#include <nlohmann/json.hpp>

#include "expect_text.h"

namespace fsdp {
namespace {

TEST(Timeline, a_timeline_is_written_even_without_events) {
  const Timeline nothing{"fsdp of small, 2 ranks", "rank 0 was killed", {{}, {}}};
  for (const std::string& text :
       {text_timeline(nothing), chrome_timeline(nothing), html_timeline(nothing)})
    EXPECT_CONTAINS(text, "rank 0 was killed");
  EXPECT_TRUE(nlohmann::json::accept(chrome_timeline(nothing)));
}

TEST(Timeline, the_extension_of_a_timelines_file_name_selects_its_format) {
  EXPECT_EQ(timeline_writer("a/b.txt"), text_timeline);
  EXPECT_EQ(timeline_writer("a/b.json"), chrome_timeline);
  EXPECT_EQ(timeline_writer("a/b.html"), html_timeline);
  EXPECT_EQ(error_of<std::invalid_argument>([] { timeline_writer("a/b.png"); }),
            "a/b.png: the name of a timeline ends in .txt, .json or .html");
}

}  // namespace
}  // namespace fsdp
