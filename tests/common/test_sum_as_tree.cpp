#include <base/torch.h>
#include <comm/tree_sum.h>
#include <gtest/gtest.h>

#include "in_a_process.h"
#include "parts.h"

namespace fsdp {
namespace {

TEST_IN_A_PROCESS(SumAsTree, the_tree_sum_can_be_written_over_any_of_its_parts) {
  for (int count = 1; count <= 8; ++count) {
    for (int over = 0; over < count; ++over) {
      const auto all = parts(count, 20'000);
      const at::Tensor expected = sum_by_hand(all);
      std::vector<const void*> data;
      for (const at::Tensor& tensor : all)
        data.push_back(tensor.const_data_ptr());
      const at::Tensor& output = all[static_cast<size_t>(over)];
      sum_as_tree(output.mutable_data_ptr(), at::kFloat, data, output.numel(), at::kFloat);
      EXPECT_TRUE(at::equal(output, expected)) << count << " parts, over part " << over;
    }
  }
}

// The sum of the parts is rounded once, to the dtype of the output. 40,003 exceeds kChunk, the
// largest number of elements that are summed at a time.
TEST_IN_A_PROCESS(SumAsTree, parts_are_summed_as_a_tree_in_fp32) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t numel : {0, 1, 1000, 40'003}) {
      for (int count = 1; count <= 8; ++count) {
        std::vector<at::Tensor> narrow, wide;
        std::vector<const void*> data;
        for (const at::Tensor& part : parts(count, numel)) {
          narrow.push_back(part.to(dtype));
          wide.push_back(narrow.back().to(at::kFloat));
          data.push_back(narrow.back().const_data_ptr());
        }
        for (const auto output_dtype : {at::kFloat, dtype}) {
          const at::Tensor sum = at::empty({numel}, output_dtype);
          sum_as_tree(sum.mutable_data_ptr(), output_dtype, data, numel, dtype);
          EXPECT_TRUE(at::equal(sum, sum_by_hand(wide).to(output_dtype)))
              << count << " parts of " << numel << " x " << dtype << " into " << output_dtype;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsdp
