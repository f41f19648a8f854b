#include <part_calls.h>
#include <part_mark.h>
#include <part_rules.h>
#include <part_views.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

// Returns whether `result` has all elements of `part`, and at most one dimension whose size is not
// 1. Then the elements of `result` are in the order in which `part` has them.
bool keeps_order(const at::Tensor& part, const at::Tensor& result) {
  const auto is_long = [](int64_t size) { return size != 1; };
  return result.numel() == part.numel() && std::ranges::count_if(result.sizes(), is_long) <= 1;
}

// Returns whether `result`, a view of `part`, consists of whole pieces. `part` is a result of
// at::cat(), and a piece is one of the tensors that at::cat() has joined.
bool begins_and_ends_with_pieces(const at::Tensor& part, const at::Tensor& result) {
  const PartDescription of = description_of(part);
  const int64_t begin = result.storage_offset() - part.storage_offset();
  const auto is_an_end = [&](int64_t element) {
    return std::ranges::find(of->pieces, element) != of->pieces.end();
  };
  return is_an_end(begin) && is_an_end(begin + result.numel()) && result.is_contiguous();
}

// `of` describes a result of at::cat(), which consists of pieces: the tensors that at::cat() has
// joined. Returns the description of a view of this result: the view has `numel` elements from
// element `begin` on, and consists of whole pieces. An empty view can be any of several empty
// pieces, so its places in a whole tensor are not known.
PartDescription of_pieces(const PartDescription& of, int64_t begin, int64_t numel) {
  if (numel == 0) return without_places(*of);
  // The loop starts with the last piece that begins at `begin`, because earlier pieces that begin
  // there are empty.
  const auto after = std::ranges::upper_bound(of->pieces, begin) - of->pieces.begin();
  auto joined = c10::make_intrusive<PartOf>();
  joined->parameter = of->parameter;
  joined->is_gradient = of->is_gradient;
  for (auto i = static_cast<size_t>(after - 1); i < of->pieces.size(); ++i) {
    joined->pieces.push_back(of->pieces[i] - begin);
    if (joined->pieces.back() == numel) break;
    joined->of_pieces.push_back(of->of_pieces[i]);
  }
  const auto& pieces = joined->of_pieces;
  return pieces.size() == 1 && pieces[0] ? of_result(pieces[0]) : joined;
}

// `of` describes this rank's part of a tensor. Returns the description of a tensor that has
// elements of this part at the places `placement` of the whole tensor.
PartDescription placed(const PartOf& of, std::shared_ptr<const Placement> placement) {
  return part_of(of.parameter, of.is_gradient, std::move(placement))->of_result;
}

// `of` describes this rank's part of a tensor. Returns the description of the flattened part: a
// one-dimensional tensor with all elements of the part.
PartDescription flat(const PartDescription& of) {
  if (!of->placement || of->placement->unflattened) return of_result(of);
  auto placement = std::make_shared<Placement>(*of->placement);
  placement->sizes = {placement->begins.back()};
  placement->unflattened = of->placement;
  return placed(*of, placement);
}

// Returns whether `tensor` has the sizes of a part, [1, ..., 1, n], of a tensor with the placement
// `placement`.
bool has_sizes_of_part(const at::Tensor& tensor, const Placement& placement) {
  return tensor.dim() == static_cast<int64_t>(placement.sizes.size()) &&
         tensor.size(-1) == tensor.numel();
}

// `view` has all elements of `part`, this rank's part of a whole tensor. Returns the description of
// `view`. The sizes that the whole tensor would have after the operator are known in these cases:
// the view is flat, has the sizes of the part, has the sizes that it had before flatten(), or takes
// its sizes from another part. `arguments`: those of the operator.
PartDescription of_same_elements(const c10::OperatorHandle& op, const at::Tensor& part,
                                 const at::Tensor& view,
                                 const std::vector<c10::IValue>& arguments) {
  const PartDescription of = description_of(part);
  const bool takes_sizes_of_a_part =
      arguments.size() > 1 && arguments[1].isTensor() && is_part(arguments[1].toTensor());
  if (takes_sizes_of_a_part) return of_result(description_of(arguments[1].toTensor()));
  if (changes_dimensions(op)) return without_places(*of);
  // If a size in the arguments is -1, the operator computes it from the elements of the part. For
  // the whole tensor it would be another number, so the sizes of the whole view are not known.
  const bool infers = arguments.size() > 1 && arguments[1].isIntList() && view.dim() > 1 &&
                      std::ranges::count(arguments[1].toIntVector(), -1) > 0;
  if (view.dim() == 1 && arguments.size() > 1) return flat(of);
  if (infers) return without_places(*of);
  if (view.sizes() == part.sizes()) return of_result(of);
  const auto unflattened = of->placement ? of->placement->unflattened : nullptr;
  const bool restores = unflattened && has_sizes_of_part(view, *unflattened);
  return restores ? placed(*of, unflattened) : without_places(*of);
}

using Fits = bool (*)(const at::Tensor& part, const at::Tensor& result);

void run_view(const c10::OperatorHandle& op, torch::jit::Stack* stack, Fits fits) {
  const auto arguments = last_values(*stack, op.schema().arguments().size());
  const at::Tensor part = arguments.front().toTensor();
  // view_as() of a part with a plain tensor: a program that made the plain tensor with the sizes of
  // the part would take them for those of the whole tensor, as torch::nn::init::orthogonal_() does.
  const bool takes_sizes_of_plain =
      arguments.size() > 1 && arguments[1].isTensor() && !is_part(arguments[1].toTensor());
  if (takes_sizes_of_plain) refuse_operator(op, *description_of(part));
  try {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  } catch (const c10::Error&) {
    // The sizes do not fit those of the part, of which the error of torch would speak.
    if (is_part(part)) refuse_operator(op, *description_of(part));
    throw;
  }
  // If the first operand is not a part, the operator is view_as(), and only its second operand,
  // which gives the sizes, is a part.
  if (!is_part(part)) return;
  const PartDescription of = description_of(part);
  for (const at::Tensor& result : tensors_in(stack->back())) {
    if (!fits(part, result)) refuse_operator(op, *of);
    const int64_t begin = result.storage_offset() - part.storage_offset();
    mark_part(result, result.numel() == part.numel() ? of_same_elements(op, part, result, arguments)
                                                     : of_pieces(of, begin, result.numel()));
  }
}

}  // namespace

void run_reordered(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_view(op, stack, keeps_order);
}

void run_expanded(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = last_values(*stack, 2);
  const at::Tensor tensor = arguments[0].toTensor(), other = arguments[1].toTensor();
  const PartDescription of = description_of(is_part(other) ? other : tensor);
  if (is_part(tensor) || !of->placement) refuse_operator(op, *of);
  torch::jit::drop(*stack, 2);
  stack->emplace_back(tensor.expand(of->placement->sizes));
}

void run_cut(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_view(op, stack, begins_and_ends_with_pieces);
}

void run_joined(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto of = c10::make_intrusive<PartOf>();
  of->pieces = {0};
  for (const at::Tensor& tensor :
       tensors_in(last_values(*stack, op.schema().arguments().size()).front())) {
    if (is_part(tensor) && tensor.dim() != 1) refuse_operator(op, *description_of(tensor));
    of->pieces.push_back(of->pieces.back() + tensor.numel());
    of->of_pieces.push_back(is_part(tensor) ? description_of(tensor) : nullptr);
    if (!is_part(tensor) || !of->parameter.empty()) continue;
    of->parameter = of->of_pieces.back()->parameter;
    of->is_gradient = of->of_pieces.back()->is_gradient;
  }
  {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  }
  mark_part(stack->back().toTensor(), of);
}

}  // namespace fsdp
