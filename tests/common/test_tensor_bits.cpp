#include <c10/core/impl/LocalDispatchKeySet.h>
#include <testing/multi_rank.h>
#include <testing/tensor_bits.h>

#include "expect_text.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

TEST_IN_A_PROCESS(TensorBits, bytes_of_reads_all_elements_of_a_tensor_in_row_major_order) {
  const at::Tensor matrix = at::arange(6.0F).view({2, 3});
  using Floats = std::vector<float>;
  EXPECT_EQ(values_of<float>(matrix), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values_of<float>(matrix.t()), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(values_of<float>(matrix.narrow(1, 1, 2)), (Floats{1, 2, 4, 5}));
  EXPECT_EQ(values_of<float>(matrix[0][1].expand({3})), (Floats{1, 1, 1}));
  EXPECT_EQ(values_of<float>(at::full({}, 7.0F)), Floats{7});
  EXPECT_EQ(values_of<float>(at::ones({2, 0})), Floats{});
  EXPECT_EQ(values_of<int64_t>(at::arange(3).requires_grad_(false)),
            (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(bytes_of(at::ones({3}, at::kHalf)).size(), 6);
  EXPECT_THROW(values_of<float>(at::arange(3)), std::logic_error);
}

TEST_IN_A_PROCESS(TensorBits, same_bits_is_true_only_if_dtype_sizes_and_all_bits_are_equal) {
  const at::Tensor zeros = at::zeros({2, 3});
  EXPECT_TRUE(same_bits(zeros, at::zeros({3, 2}).t()));
  EXPECT_FALSE(same_bits(zeros, -zeros));
  EXPECT_FALSE(same_bits(zeros, at::zeros({3, 2})));
  EXPECT_FALSE(same_bits(zeros, at::zeros({2, 3}, at::kInt)));
  EXPECT_TRUE(same_bits(at::full({2}, NAN), at::full({2}, NAN)));
}

std::string refusal(const at::Tensor& tensor) {
  return error_of([&] { bytes_of(tensor); });
}

TEST_IN_A_PROCESS(
    TensorBits,
    reading_a_tensors_bits_throws_while_operators_are_redirected_to_another_dispatch_key) {
  const at::Tensor tensor = at::ones({2});
  const c10::impl::IncludeDispatchKeyGuard redirect(c10::DispatchKey::DeferredInit);
  EXPECT_CONTAINS(refusal(tensor), "operators of this thread go to dispatch key DeferredInit");
}

template <class Impl>
at::Tensor tensor_with(c10::DispatchKeySet keys) {
  const at::Tensor ones = at::ones({2});
  return at::detail::make_tensor<Impl>(c10::Storage(ones.storage()), keys, ones.dtype());
}

struct OwnImpl : c10::TensorImpl {
  using TensorImpl::TensorImpl;
};

TEST_IN_A_PROCESS(TensorBits,
                  reading_a_tensors_bits_throws_if_the_tensor_handles_its_operators_itself) {
  const c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
  EXPECT_NO_THROW(bytes_of(tensor_with<c10::TensorImpl>(cpu)));
  EXPECT_CONTAINS(refusal(tensor_with<c10::TensorImpl>(cpu.add(c10::DispatchKey::DeferredInit))),
                  "the tensor's operators go to dispatch key DeferredInit");
  EXPECT_CONTAINS(refusal(tensor_with<OwnImpl>(cpu)), "has a class of its own");
  EXPECT_CONTAINS(refusal(at::ones({2}, at::kMeta)), "a tensor on meta has no bytes");
}

TEST(TensorBits, a_rank_fails_if_it_starts_while_operators_go_to_the_dispatch_key_deferred_init) {
  const c10::impl::IncludeDispatchKeyGuard redirect(c10::DispatchKey::DeferredInit);
  const RankRun run = try_ranks(1, [](TestRank&) {});
  EXPECT_CONTAINS(run.failure(), "operators of this thread go to dispatch key DeferredInit");
}

}  // namespace
}  // namespace fsdp
