#include <base/torch.h>
#include <comm/tree_sum.h>

#include <algorithm>
#include <bit>

namespace fsdp {
namespace {

// How many elements of each part are summed at a time: so few that the partial sums stay in the
// cache and that torch uses only one thread.
constexpr int64_t kChunk = 16384;

at::Tensor view(const void* data, int64_t numel, at::ScalarType dtype) {
  return at::from_blob(const_cast<void*>(data), {numel}, dtype);
}

// Sums one chunk, which is the same range of elements of every part, as a tree.
struct ChunkSum {
  std::vector<at::Tensor> parts;
  // Partial sums: a tensor of the chunk's size for each level of the tree.
  std::vector<at::Tensor> scratch;

  // Adds the parts with the numbers from `first` to first + count - 1, at least two. Writes their
  // sum to `into` and returns it. Overwrites the tensors of `scratch` from number `level` on.
  at::Tensor add(at::Tensor into, size_t first, size_t count, size_t level) {
    const size_t left = std::bit_floor(count - 1);
    const at::Tensor a = sum(first, left, level);
    const at::Tensor b = sum(first + left, count - left, level + 1);
    return at::add_out(into, a, b);
  }
  at::Tensor sum(size_t first, size_t count, size_t level) {
    return count == 1 ? parts[first] : add(scratch[level], first, count, level);
  }
};

}  // namespace

void sum_as_tree(void* output, at::ScalarType output_dtype, const std::vector<const void*>& parts,
                 int64_t numel, at::ScalarType dtype) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const auto output_element = static_cast<int64_t>(c10::elementSize(output_dtype));
  const at::ScalarType sum_dtype = at::isFloatingType(dtype) && element < 4 ? at::kFloat : dtype;
  const size_t levels = std::max<size_t>(1, std::bit_width(parts.size()) - 1);
  const auto scratch =
      at::empty({static_cast<int64_t>(levels), std::min(numel, kChunk)}, sum_dtype);
  for (int64_t begin = 0; begin < numel; begin += kChunk) {
    const int64_t count = std::min(kChunk, numel - begin);
    ChunkSum chunk;
    for (const void* part : parts) {
      const auto values = view(static_cast<const char*>(part) + begin * element, count, dtype);
      chunk.parts.push_back(values.to(sum_dtype));
    }
    for (size_t level = 0; level < levels; ++level)
      chunk.scratch.push_back(scratch[static_cast<int64_t>(level)].narrow(0, 0, count));
    const auto into =
        view(static_cast<char*>(output) + begin * output_element, count, output_dtype);
    if (output_dtype != sum_dtype || parts.size() == 1) {
      into.copy_(chunk.sum(0, parts.size(), 0));
    } else {
      chunk.add(into, 0, parts.size(), 0);
    }
  }
}

at::Tensor sum_as_tree(const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> contiguous;
  std::vector<const void*> data;
  for (const at::Tensor& part : parts) {
    contiguous.push_back(part.detach().contiguous());
    data.push_back(contiguous.back().const_data_ptr());
  }
  at::Tensor sum = at::empty(parts[0].sizes(), contiguous[0].options());
  sum_as_tree(sum.mutable_data_ptr(), sum.scalar_type(), data, sum.numel(), sum.scalar_type());
  return sum;
}

}  // namespace fsdp
