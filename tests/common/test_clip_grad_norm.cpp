#include <gtest/gtest.h>
#include <optim/clip_grad_norm.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include "in_a_process.h"

namespace fsdp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor three_and_four() {
  return at::tensor({3.0F, -4.0F});
}

TEST(ScaleToMaxNorm, scale_to_max_norm_multiplies_every_gradient_by_pytorchs_factor) {
  in_a_process([] {
    const at::Tensor one = three_and_four(), other = at::ones({2, 2});
    scale_to_max_norm({one, other}, 2, 5);
    EXPECT_TRUE(at::equal(one, three_and_four().mul(2 / (5 + 1e-6))));
    EXPECT_TRUE(at::equal(other, at::ones({2, 2}).mul(2 / (5 + 1e-6))));
  });
}

TEST(ScaleToMaxNorm, scale_to_max_norm_never_enlarges_a_gradient) {
  in_a_process([] {
    const at::Tensor gradient = three_and_four();
    scale_to_max_norm({gradient}, 5 + 1e-6, 5);
    scale_to_max_norm({gradient}, 50, 5);
    scale_to_max_norm({gradient}, kInfinity, 5);
    EXPECT_TRUE(at::equal(gradient, three_and_four()));
  });
}

TEST(ClipGradNorm, clip_grad_norm_scales_by_the_norm_that_it_returns) {
  in_a_process([] {
    for (const auto& [norm_type, norm] : {std::pair{1.0, 7.0}, {2.0, 5.0}, {kInfinity, 4.0}}) {
      const at::Tensor gradient = three_and_four();
      EXPECT_EQ(clip_grad_norm({gradient}, 1, norm_type), norm);
      EXPECT_TRUE(at::equal(gradient, three_and_four().mul(1 / (norm + 1e-6)))) << norm_type;
    }
  });
}

TEST(ClipGradNorm, clip_grad_norm_with_norm_type_0_throws_and_changes_no_gradient) {
  in_a_process([] {
    const at::Tensor gradient = three_and_four();
    EXPECT_THROW(clip_grad_norm({gradient}, 1, 0), std::invalid_argument);
    EXPECT_TRUE(at::equal(gradient, three_and_four()));
  });
}

}  // namespace
}  // namespace fsdp
