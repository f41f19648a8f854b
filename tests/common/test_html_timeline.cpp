#include <gtest/gtest.h>
#include <trace/timeline.h>

#include <nlohmann/json.hpp>

#include "expect_text.h"
#include "timeline_events.h"

namespace fsdp {
namespace {

TEST(HtmlTimeline, the_html_timeline_is_one_file_with_its_data_and_needs_no_network) {
  const std::string page = html_timeline(two_ranks());
  EXPECT_LACKS(page, "{\"the data\": 0}");
  EXPECT_LACKS(page, "http") << "needs the network";
  const size_t begin = page.find("id=\"data\">") + 10;
  const auto data = nlohmann::json::parse(page.substr(begin, page.find("</script>") - begin));
  EXPECT_EQ(data["title"], "fsdp of small, 2 ranks");
  EXPECT_EQ(data["names"], nlohmann::json::array({"layers.3", "</script>"}));
  ASSERT_EQ(data["ranks"].size(), 2);
  const auto& first = data["ranks"][0];
  EXPECT_EQ(first["events"][0], nlohmann::json::array({1, 0, 0, 0, 2'000'000, 0, 0, 0}));
  EXPECT_EQ(first["events"][2], nlohmann::json::array({5, 0, 0, 1000, 899'000, 12, 1'500'000, 0}));
  EXPECT_EQ(first["live"], nlohmann::json::parse("[[1000,4000000,0,192,0,0,0,0,0],"
                                                 "[2000000,4000000,0,192,0,0,0,0,0]]"));
  EXPECT_EQ(data["ranks"][1]["events"][0][4], -1) << "it did not end";
}

}  // namespace
}  // namespace fsdp
