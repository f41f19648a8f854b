#include <diff/hash_recorder.h>
#include <gtest/gtest.h>

namespace fsdp {
namespace {

TEST(BitHash, the_bit_hashes_of_the_pieces_of_a_tensor_add_up_to_its_bit_hash) {
  for (const auto dtype : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor whole = at::arange(1, 65, dtype);
    const uint64_t hash = bit_hash(whole);
    for (const int64_t cut : {0, 1, 16, 63, 64})
      EXPECT_EQ(bit_hash(whole.slice(0, 0, cut)) + bit_hash(whole.slice(0, cut), cut), hash);
    EXPECT_NE(bit_hash(whole.neg()), hash);
    EXPECT_NE(bit_hash(whole.flip(0)), hash);
    EXPECT_NE(bit_hash(whole.roll(1)), hash);
    EXPECT_NE(bit_hash(at::cat({whole.slice(0, 0, 63), -whole.slice(0, 63)})), hash);
  }
}

}  // namespace
}  // namespace fsdp
