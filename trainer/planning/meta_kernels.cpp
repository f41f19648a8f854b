#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/add_meta_dispatch.h>
#include <ATen/ops/div_meta_dispatch.h>
#include <ATen/ops/mean_meta_dispatch.h>
#include <ATen/ops/mul_meta_dispatch.h>
#include <base/torch.h>
#include <planning/meta_kernels.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <tuple>
#include <vector>

namespace fsdp {
namespace {

using at::Tensor;

// Replaces LibTorch's resize_ on meta, which only records the new size. This kernel also allocates
// memory if the storage is too small.
const Tensor& resize(const Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  const auto& storage = self.storage();
  const auto needed = static_cast<size_t>(self.storage_offset() + c10::multiply_integers(sizes)) *
                      self.element_size();
  if (needed > storage.nbytes()) {
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        c10::GetAllocator(c10::kMeta)->allocate(needed));
    storage.unsafeGetStorageImpl()->set_nbytes(needed);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

// The autograd nodes whose functions are running on this thread, the innermost last. There can be
// several, because the function of a node can run a backward pass of its own.
thread_local std::vector<const torch::autograd::Node*> running;

std::unique_ptr<at::ObserverContext> enter_node(const at::RecordFunction&) {
  running.push_back(torch::autograd::get_current_node().get());
  return nullptr;
}
void leave_node(const at::RecordFunction&, at::ObserverContext*) {
  running.pop_back();
}

// Returns whether the running operator was called by the autograd engine itself, which adds
// gradients that nodes have returned. Returns false if the function of a node has called the
// operator.
bool called_by_engine() {
  const auto node = torch::autograd::get_current_node();
  return node != nullptr && (running.empty() || running.back() != node.get());
}

// Allocates the copies that the CPU makes of those `operands` whose dtype is not `dtype`, because
// it computes in `dtype`. Callers discard the copies at once: they only count in the peak of
// memory.
std::vector<Tensor> converted(at::ScalarType dtype, std::initializer_list<const Tensor*> operands) {
  std::vector<Tensor> copies;
  for (const Tensor* operand : operands)
    if (operand->scalar_type() != dtype)
      copies.push_back(at::empty(operand->sizes(), operand->options().dtype(dtype)));
  return copies;
}

template <Tensor (*kOperator)(const Tensor&, const Tensor&)>
Tensor binary(const Tensor& self, const Tensor& other) {
  Tensor result = kOperator(self, other);
  converted(result.scalar_type(), {&self, &other});
  return result;
}

template <Tensor& (*kOperator)(Tensor&, const Tensor&)>
Tensor& binary_in_place(Tensor& self, const Tensor& other) {
  converted(at::result_type(self, other), {&self, &other});
  return kOperator(self, other);
}

// When a tensor gets two gradients, the autograd engine adds them. On the CPU it adds in place if
// the first gradient is used nowhere else; on meta it never adds in place. So if the CPU would add
// in place, this kernel allocates nothing: it returns a tensor on the storage of `self`.
Tensor add(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  const bool in_place = called_by_engine() && !at::GradMode::is_enabled() &&
                        self.use_count() == 1 && self.storage().use_count() == 1 &&
                        self.is_non_overlapping_and_dense();
  if (!in_place) {
    Tensor result = at::meta::add(self, other, alpha);
    converted(result.scalar_type(), {&self, &other});
    return result;
  }
  Tensor sum = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(self.storage()), c10::DispatchKeySet(c10::DispatchKey::Meta), self.dtype());
  sum.unsafeGetTensorImpl()->set_sizes_and_strides(self.sizes(), self.strides());
  return sum;
}

// The CPU's mean divides the sum by a number, for which it makes a tensor of fp64 and one of the
// dtype of the sum. This kernel allocates both.
Tensor mean(const Tensor& self, at::OptionalIntArrayRef dim, bool keep,
            std::optional<at::ScalarType> dtype) {
  Tensor result = at::meta::mean(self, dim, keep, dtype);
  const Tensor number = at::empty({}, at::kDouble);
  converted(result.scalar_type(), {&number});
  return result;
}

Tensor relu(const Tensor& self) {
  return at::empty_like(self);
}
Tensor& relu_in_place(Tensor& self) {
  return self;
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  auto sizes = self.sizes().vec();
  sizes[static_cast<size_t>(dim < 0 ? dim + self.dim() : dim)] = index.numel();
  return at::empty(sizes, self.options());
}

Tensor embedding_dense_backward(const Tensor& gradient, const Tensor& indices, int64_t rows,
                                int64_t /*padding_idx*/, bool /*scale_grad_by_freq*/) {
  const Tensor contiguous_indices = indices.contiguous();
  const Tensor contiguous_gradient = gradient.contiguous();
  return at::empty({rows, gradient.size(-1)}, gradient.options());
}

// Returns the dtype in which the CPU's layer norm stores mean and deviation: the dtype of the
// weight, for example fp32 for an input in bf16.
at::ScalarType statistics_of(const Tensor& input, const std::optional<Tensor>& weight) {
  return weight && weight->defined() ? weight->scalar_type() : input.scalar_type();
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(const Tensor& input, at::IntArrayRef shape,
                                                     const std::optional<Tensor>& weight,
                                                     const std::optional<Tensor>& /*bias*/,
                                                     double /*eps*/) {
  const Tensor x = input.contiguous();
  auto sizes = input.sizes().vec();
  std::fill(sizes.end() - static_cast<int64_t>(shape.size()), sizes.end(), 1);
  const auto statistics = input.options().dtype(statistics_of(input, weight));
  return {at::empty_like(x), at::empty(sizes, statistics), at::empty(sizes, statistics)};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(
    const Tensor& gradient, const Tensor& input, at::IntArrayRef shape, const Tensor& /*mean*/,
    const Tensor& /*rstd*/, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    std::array<bool, 3> mask) {
  const Tensor x = input.contiguous(), dy = gradient.contiguous();
  Tensor dx, dweight, dbias, sums_of_threads;
  if (mask[0]) dx = at::empty_like(x);
  if (mask[1]) dweight = at::empty_like(*weight);
  if (mask[2]) dbias = at::empty_like(*bias);
  if (mask[1] || mask[2])
    sums_of_threads = at::empty({2, at::get_num_threads(), c10::multiply_integers(shape)},
                                dweight.defined() ? dweight.options() : dbias.options());
  return {dx, dweight, dbias};
}

// Returns how many queries and how many keys a thread of the CPU's flash attention processes at a
// time.
std::pair<int64_t, int64_t> attention_block(int64_t queries, int64_t keys) {
  const int64_t block = queries >= 768 ? 256 : queries >= 192 ? 64 : 32;
  return {std::min(block, queries), std::min<int64_t>(512, keys)};
}

bool rounds(const Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

at::TensorOptions sums_of(const Tensor& tensor) {
  return tensor.options().dtype(rounds(tensor) ? at::kFloat : tensor.scalar_type());
}

std::tuple<Tensor, Tensor> flash_attention(const Tensor& query, const Tensor& key, const Tensor&,
                                           double, bool, const std::optional<Tensor>&,
                                           std::optional<double>) {
  const int64_t heads = query.size(1), queries = query.size(2), width = query.size(3);
  const auto [rows, columns] = attention_block(queries, key.size(2));
  const Tensor output = at::empty({query.size(0), queries, heads, width}, query.options());
  const Tensor sums = at::empty({query.size(0), queries, heads}, sums_of(query));
  const int64_t threads = at::get_num_threads();
  const Tensor of_threads = at::empty({threads, rows * (columns + 2 + width)}, sums_of(query));
  const Tensor rounded = at::empty({threads, rows, rounds(query) ? columns : 0}, query.options());
  return {output.transpose(1, 2), sums.transpose(1, 2)};
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(const Tensor& gradient,
                                                            const Tensor& query, const Tensor& key,
                                                            const Tensor& value, const Tensor&,
                                                            const Tensor&, double, bool,
                                                            const std::optional<Tensor>&,
                                                            std::optional<double>) {
  if (!gradient.defined()) return {};
  const auto [rows, columns] = attention_block(query.size(2), key.size(2));
  const auto zeros = [](const Tensor& like) {
    return at::empty(like.transpose(1, 2).sizes(), like.options());
  };
  const Tensor dq = zeros(query), dk = zeros(key), dv = zeros(value);
  const int64_t threads = at::get_num_threads(), scores = 2 * rows * columns;
  const Tensor of_threads = at::empty({threads, scores}, sums_of(query));
  const Tensor rounded = at::empty({threads, rounds(query) ? scores : 0}, query.options());
  const int64_t at_work = std::min(threads, query.size(0) * query.size(1));
  const Tensor row_sums = at::empty({at_work, rows}, sums_of(query));
  return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)};
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  const auto sizes = at::infer_size(at::infer_size(condition.sizes(), self.sizes()), other.sizes());
  return at::empty(sizes, self.options().dtype(at::result_type(self, other)));
}

Tensor& where_out(const Tensor&, const Tensor&, const Tensor&, Tensor& out) {
  return out;
}

// LibTorch chooses the kernel of scaled_dot_product_attention by the device, and would choose none
// of the CPU's kernels for meta. This function makes the choice that LibTorch makes for the CPU. It
// is registered above autograd, so the operators that it calls compute their own gradients.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const std::optional<Tensor>& mask, double dropout, bool causal,
                 std::optional<double> scale, bool grouped) {
  if (dropout == 0 && query.dim() == 4 && (grouped || query.size(1) == key.size(1)))
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout,
                                                                       causal, mask, scale));
  return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value, mask, dropout,
                                                            causal, {}, scale, grouped));
}

}  // namespace

MetaKernels::MetaKernels() {
  const auto library = [&](c10::DispatchKey key) -> torch::Library& {
    return *libraries_.emplace_back(
        std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__));
  };
  torch::Library& meta = library(c10::DispatchKey::Meta);
  // LibTorch warns that its kernels are replaced. `quiet` discards these warnings.
  struct Quiet : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  meta.impl("resize_", &resize);
  meta.impl("add.Tensor", &add);
  meta.impl("mul.Tensor", &binary<&at::meta::mul>);
  meta.impl("div.Tensor", &binary<&at::meta::div>);
  meta.impl("mul_.Tensor", &binary_in_place<&at::meta::mul_>);
  meta.impl("div_.Tensor", &binary_in_place<&at::meta::div_>);
  meta.impl("mean.dim", &mean);
  meta.impl("relu", &relu);
  meta.impl("relu_", &relu_in_place);
  meta.impl("index_select", &index_select);
  meta.impl("embedding_dense_backward", &embedding_dense_backward);
  meta.impl("native_layer_norm", &native_layer_norm);
  meta.impl("native_layer_norm_backward", &native_layer_norm_backward);
  meta.impl("where.self", &where);
  meta.impl("where.self_out", &where_out);
  meta.impl("_scaled_dot_product_flash_attention_for_cpu", &flash_attention);
  meta.impl("_scaled_dot_product_flash_attention_for_cpu_backward", &flash_attention_backward);
  nodes_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&enter_node, &leave_node)
                                          .scopes({at::RecordScope::BACKWARD_FUNCTION}));
  library(c10::DispatchKey::AutogradMeta).impl("scaled_dot_product_attention", &attention);
}

MetaKernels::~MetaKernels() {
  at::removeCallback(nodes_);
}

}  // namespace fsdp
