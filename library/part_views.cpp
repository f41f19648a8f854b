#include <part_calls.h>
#include <part_mark.h>
#include <part_rules.h>
#include <part_views.h>

#include <algorithm>

namespace fsdp {
namespace {

// Returns whether the result has all elements of the part along one dimension, and so in the same
// order.
bool keeps_order(const at::Tensor& part, const at::Tensor& result) {
  const auto is_long = [](int64_t size) { return size != 1; };
  return result.numel() == part.numel() && std::ranges::count_if(result.sizes(), is_long) <= 1;
}

// Returns whether the result consists of whole pieces of a tensor that at::cat() has made.
bool begins_and_ends_with_pieces(const at::Tensor& part, const at::Tensor& result) {
  const PartDescription of = description_of(part);
  const int64_t begin = result.storage_offset() - part.storage_offset();
  const auto is_an_end = [&](int64_t element) {
    return std::ranges::find(of->pieces, element) != of->pieces.end();
  };
  return is_an_end(begin) && is_an_end(begin + result.numel()) && result.is_contiguous();
}

// Returns the description of a view of a tensor that was joined from pieces: of those pieces that
// the view has. If the view is empty, it can be any of several empty pieces.
PartDescription of_pieces(const PartDescription& of, int64_t begin, int64_t numel) {
  if (numel == 0) return without_places(*of);
  // The last piece that begins there, because pieces before it may be empty.
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

using Fits = bool (*)(const at::Tensor& part, const at::Tensor& result);

void run_view(const c10::OperatorHandle& op, torch::jit::Stack* stack, Fits fits) {
  const auto arguments = last_values(*stack, op.schema().arguments().size());
  const at::Tensor part = arguments.front().toTensor();
  {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  }
  if (!is_part(part)) return;  // part of view_as() is only the tensor whose sizes are taken
  PartDescription of = description_of(part);
  // An empty piece becomes that of the tensor whose sizes are taken.
  if (part.numel() == 0 && arguments.size() > 1 && arguments[1].isTensor() &&
      is_part(arguments[1].toTensor()))
    of = description_of(arguments[1].toTensor());
  for_each_tensor(stack->back(), [&](const at::Tensor& result) {
    if (!fits(part, result)) refuse_operator(op, *of);
    const bool is_whole = result.numel() == part.numel();
    const int64_t begin = result.storage_offset() - part.storage_offset();
    mark_part(result, changes_dimensions(op) ? without_places(*of)
                      : is_whole             ? of_result(of)
                                             : of_pieces(of, begin, result.numel()));
  });
}

}  // namespace

void run_reordered(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_view(op, stack, keeps_order);
}

void run_cut(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_view(op, stack, begins_and_ends_with_pieces);
}

void run_joined(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto of = c10::make_intrusive<PartOf>();
  of->pieces = {0};
  for_each_tensor(last_values(*stack, op.schema().arguments().size()).front(),
                  [&](const at::Tensor& tensor) {
                    of->pieces.push_back(of->pieces.back() + tensor.numel());
                    of->of_pieces.push_back(is_part(tensor) ? description_of(tensor) : nullptr);
                    if (!is_part(tensor) || !of->parameter.empty()) return;
                    of->parameter = of->of_pieces.back()->parameter;
                    of->is_gradient = of->of_pieces.back()->is_gradient;
                  });
  {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  }
  mark_part(stack->back().toTensor(), of);
}

}  // namespace fsdp
