#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <launch/shared_region.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "in_a_process.h"
#include "rank_failure.h"
#include "shared_words.h"
#include "temporary_folder.h"

namespace fsdp {
namespace {

struct AtEnd {
  std::function<void()> act;
  ~AtEnd() { act(); }
};

TEST(RankExit, a_rank_destroys_its_own_static_objects_but_not_inherited_ones) {
  for (const bool exits : {false, true}) {
    const TemporaryFolder folder;
    static SharedWords inherited;
    inherited[0] = 0;
    in_a_process([&] {
      std::atexit([] { ++inherited[0]; });
      thread_local const AtEnd last{[&] { inherited[0] += exits ? 0 : 1; }};
      const auto write_a_line = [&](const RankContext& context) {
        const std::string path = folder.path() + '/' + std::to_string(context.rank);
        static std::ofstream log(path);
        thread_local std::ofstream of_thread(path + 't');
        log << "a line\n";
        of_thread << "another\n";
        if (exits) std::exit(0);
        return 0;
      };
      EXPECT_EQ(failure(launch(2, write_a_line)), "");
    });
    for (const char* name : {"/0", "/0t", "/1", "/1t"})
      EXPECT_GT(std::filesystem::file_size(folder.path() + name), 6U);
    EXPECT_EQ(inherited[0], 0);
  }
}

TEST(RankExit, a_destructor_that_crashes_or_hangs_does_not_hide_an_earlier_failure) {
  const auto told = [](bool fails, const std::function<void()>& act) {
    return failure(launch(1, [&](const RankContext& context) -> int {
      context.shared->wait_at_most(std::chrono::milliseconds(200));
      static const AtEnd at_end{act};
      if (fails) throw std::runtime_error("no such unit");
      return 0;
    }));
  };
  const auto hang = [] {
    for (;;)
      pause();
  };
  const auto crash = [] { std::abort(); };
  EXPECT_EQ(told(true, hang), "rank 0 failed: no such unit");
  EXPECT_EQ(told(true, crash), "rank 0 failed: no such unit; it was killed by signal 6 (Aborted)");
  const std::string of_object = "rank 0 failed: the destructor of a static object has not returned";
  EXPECT_EQ(told(false, hang), of_object);
  EXPECT_EQ(told(false, crash), of_object + "; it was killed by signal 6 (Aborted)");
}

}  // namespace
}  // namespace fsdp
