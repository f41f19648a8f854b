#include <comm/link.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

TEST(Link, the_text_of_a_link_is_parsed_into_latency_and_bandwidth) {
  const Link link = parse_link("200us,1GB/s");
  EXPECT_EQ(link.latency, 200us);
  EXPECT_EQ(link.bytes_per_second, 1e9);
  EXPECT_EQ(parse_link("0.5ms,12.5MB/s").latency, 500us);
  EXPECT_EQ(parse_link("0.5ms,12.5MB/s").bytes_per_second, 12.5e6);
}

TEST(Link, parsing_a_link_throws_for_a_text_that_is_not_a_latency_and_a_bandwidth) {
  for (const std::string text :
       {"", "200us", "1GB/s", "200,1GB/s", "200us,1GiB/s", "-1us,1GB/s", "200us,0GB/s",
        "200us,1GB/s,2", "1e3us,1GB/s", "61s,1GB/s", "1us,0.9kB/s"}) {
    EXPECT_THROW(parse_link(text), std::invalid_argument) << text;
  }
}

TEST(Link, a_collective_over_a_link_takes_its_hops_latency_plus_the_time_to_send_its_bytes) {
  const Link link{10us, 1e9};
  constexpr int64_t kMicrosecond = 1000;
  EXPECT_EQ(link.time(Operation::all_gather, 5000, 4), (3 * 10 + 5) * kMicrosecond);
  EXPECT_EQ(link.time(Operation::all_reduce, 5000, 4), (6 * 10 + 5) * kMicrosecond);
  EXPECT_EQ(link.time(Operation::all_gather, 0, 1), 0);
}

}  // namespace
}  // namespace fsdp
