#include <gtest/gtest.h>
#include <reproduce/gpt2xl.h>

#include <functional>

namespace fsdp {
namespace {

// Returns the results of two runs, fsdp and single, with the numbers that the table expects.
Full expected() {
  Full full;
  for (LongResult* run : {&full.fsdp, &full.single}) {
    for (int step = 0; step < 10; ++step)
      run->result.steps.push_back({{"loss", step == 0 ? 10.8519035578 : 10.8702620}});
    run->result.last = {{"param_sum", 161786.335}, {"param_sha256", "96e67427a6eb6d55"}};
    run->peak = int64_t{19} << 30;
    run->result.seconds = 1800;
  }
  return full;
}

Table table_of(const Full& full) {
  return full_table({"train", "folder"}, full);
}

TEST(FullTable, the_table_of_the_row_gpt2xl_is_ok_if_all_its_numbers_are_right) {
  EXPECT_TRUE(table_of(expected()).ok()) << table_of(expected()).markdown();
}

TEST(FullTable, the_table_of_the_row_gpt2xl_is_not_ok_if_any_of_its_numbers_is_wrong) {
  const auto is_ok = [](const std::function<void(Full&)>& spoil) {
    Full full = expected();
    spoil(full);
    return table_of(full).ok();
  };
  EXPECT_FALSE(is_ok([](Full& f) { f.fsdp.result.steps[4]["loss"] = 10.87028; }));
  EXPECT_FALSE(is_ok([](Full& f) {
    for (LongResult* run : {&f.fsdp, &f.single})
      run->result.steps[9]["loss"] = 10.87028;
  })) << "both losses are far from the published loss";
  EXPECT_FALSE(is_ok([](Full& f) { f.single.result.steps[4]["loss"] = 10.8702620001; }));
  EXPECT_FALSE(is_ok([](Full& f) { f.single.result.last["param_sha256"] = "another"; }));
  EXPECT_FALSE(is_ok([](Full& f) { f.single.result.last["param_sum"] = 161787; }));
  EXPECT_FALSE(is_ok([](Full& f) { f.fsdp.peak = int64_t{21} << 30; }));
  EXPECT_FALSE(is_ok([](Full& f) { f.single.swapped = 4096; }));
  EXPECT_FALSE(is_ok([](Full& f) { f.fsdp.result.seconds = 3601; }));
}

}  // namespace
}  // namespace fsdp
