#include <base/mapping.h>
#include <gtest/gtest.h>
#include <launch/shared_region.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "expect_text.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

// Limits the address space of this process to what it has mapped so far plus `bytes`.
void leave_addresses(size_t bytes) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t limit = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limits{limit, limit};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limits), 0);
}

TEST_IN_A_PROCESS(SharedRegion, arenas_are_smaller_if_the_address_space_is_limited) {
  leave_addresses(size_t{2} << 30);
  const auto region = SharedRegion::create(4);
  const auto some = region->allocator(3)->allocate(200 << 20);
  const Mapping for_all_else("the rest", size_t{900} << 20);
  const std::string error =
      error_of<std::runtime_error>([&] { region->allocator(0)->allocate(300 << 20); });
  EXPECT_CONTAINS(error, "has no room for 314572800 bytes; there are no more addresses for it, ");
}

TEST_IN_A_PROCESS(SharedRegion,
                  a_shared_region_is_left_out_of_core_files_and_small_under_valgrind) {
  setenv("LD_PRELOAD", "/usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so", 1);
  const auto region = SharedRegion::create(1);
  EXPECT_CONTAINS(error_of([&] { region->allocator(0)->allocate(100 << 20); }), "has no room");
  const auto data = region->allocator(0)->allocate(64);
  const auto place = reinterpret_cast<uintptr_t>(data.get());
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  for (uintptr_t begin = 1, end = 0; place < begin || place >= end;) {
    ASSERT_TRUE(std::getline(maps, line));
    std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end);
  }
  while (line.rfind("VmFlags:", 0) != 0)
    ASSERT_TRUE(std::getline(maps, line));
  EXPECT_CONTAINS(line, " dd");
}

TEST(SharedRegion, a_shared_region_of_64_ranks_and_4_tib_still_has_an_arena_for_each_rank) {
  const auto region = SharedRegion::create(64, size_t{4} << 40);
  EXPECT_TRUE(region->has_arenas());
}

TEST(SharedRegion, only_the_user_who_created_a_shared_region_can_open_it) {
  const auto made = SharedRegion::create_for_started(2);
  std::istringstream names(made->name());
  for (std::string name; names >> name;) {
    struct stat status {};
    ASSERT_EQ(stat(name.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << name;
  }
}

TEST(SharedRegion, opening_a_shared_region_throws_for_another_number_of_ranks_or_a_wrong_name) {
  const auto made = SharedRegion::create_for_started(2);
  EXPECT_THROW(SharedRegion::open(3, made->name()), std::runtime_error);
  EXPECT_THROW(SharedRegion::open(2, "/proc/self/fd/999 /proc/self/fd/999"), std::runtime_error);
}

}  // namespace
}  // namespace fsdp
