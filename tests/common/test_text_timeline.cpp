#include <gtest/gtest.h>
#include <trace/timeline.h>

#include <sstream>

#include "expect_text.h"
#include "timeline_events.h"

namespace fsdp {
namespace {

TEST(TextTimeline, the_text_timeline_has_a_line_for_each_event_in_the_order_of_time) {
  EXPECT_EQ(text_timeline(two_ranks()), R"(fsdp of small, 2 ranks
rank 0 was killed
 r   begin ms length ms event                        unit                bytes       live   gathered
 0      0.000     2.000 forward                      layers.3                     3000000        192
 1      0.000    no end all_gather wait          #12 </script>         1500000
 0      0.001           all_gather issue         #12 layers.3          1500000    3000000        192
 0      0.001     0.899 all_gather flight        #12 layers.3          1500000
)");
}

TEST(TextTimeline, the_text_timeline_fits_in_100_columns_with_long_names_and_large_numbers) {
  Timeline timeline = two_ranks();
  Event wide = event(EventKind::flight, "model.transformer.layers.31", 900'000'000'000, 0);
  wide.call.operation = Operation::reduce_scatter;
  wide.call.sequence = 12345;
  wide.call.bytes = 6'000'000'000;
  timeline.failure = std::string(250, 'a') + " rank 1 called all_gather " + std::string(60, 'b');
  timeline.ranks.resize(64);
  timeline.ranks[63] = {wide};
  std::istringstream lines(text_timeline(timeline));
  std::string line;
  while (std::getline(lines, line))
    EXPECT_LE(line.size(), 100U) << line;
  EXPECT_CONTAINS(text_timeline(timeline), "..er.layers.31");
}

}  // namespace
}  // namespace fsdp
