#include <full_tensor.h>
#include <part_calls.h>
#include <part_mark.h>
#include <part_reductions.h>
#include <part_rules.h>
#include <this_ranks_part.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace fsdp {
namespace {

// Collective. Returns the whole tensor of which `part` is this rank's part. `of` is the description
// with which `part` is marked (part_mark.h).
at::Tensor gather(const at::Tensor& part, const PartOf& of) {
  if (of.placement && part.numel() == of.placement->numel())
    return gather_parts(part, *of.placement, of.parameter);
  const bool is_known = !of.of_pieces.empty() && !std::ranges::count(of.of_pieces, nullptr);
  if (part.dim() != 1 || !is_known) refuse_to_gather(of);
  std::vector<at::Tensor> wholes;
  for (size_t i = 0; i < of.of_pieces.size(); ++i) {
    const at::Tensor piece = part.narrow(0, of.pieces[i], of.pieces[i + 1] - of.pieces[i]);
    wholes.push_back(gather(piece, *of.of_pieces[i]).reshape({-1}));
  }
  return at::cat(wholes);
}

// Collective. Returns the whole tensor of which `part`, a marked tensor, is this rank's part.
at::Tensor whole_of(const at::Tensor& part) {
  const PartDescription of = description_of(part);
  const at::Tensor plain = this_ranks_part(part);
  // This hook marks the gradient of the part, which is a part too, so that a sum over this gradient
  // is a sum over the whole gradient.
  if (plain.requires_grad())
    plain.register_hook([of](const at::Tensor& gradient) {
      const at::Tensor copy = gradient.clone();
      mark_part(copy, of_result(of));
      return copy;
    });
  const PartsAsTensors inside;
  return gather(plain, *of);
}

// Returns whether reduce_pieces() can run the operator: it must be all(), any(), max() or min() of
// all elements of `part`, this rank's part of a tensor, and autograd must not record it.
bool reduces_pieces(const c10::OperatorHandle& op, const at::Tensor& part) {
  constexpr std::array<std::string_view, 4> kNames{"aten::all", "aten::any", "aten::max",
                                                   "aten::min"};
  if (!op.operator_name().overload_name.empty() ||
      std::ranges::find(kNames, op.schema().name()) == kNames.end())
    return false;
  const PartDescription of = description_of(part);
  const bool differentiates = at::GradMode::is_enabled() && part.requires_grad();
  return of->placement && of->placement->numel() == part.numel() && !differentiates;
}

// Collective, without autograd. Runs all(), any(), max() or min() of a whole tensor: each rank
// reduces its part, and then every rank reduces the results of all ranks.
void reduce_pieces(const c10::OperatorHandle& op, const at::Tensor& part,
                   torch::jit::Stack* stack) {
  const PartDescription of = description_of(part);
  const PartsAsTensors inside;
  const at::Tensor some = part.numel() > 0 ? this_ranks_part(part) : at::zeros({1}, part.options());
  stack->back() = some;
  op.callBoxed(stack);
  stack->back() = gather_values(stack->back().toTensor(), *of->placement, of->parameter);
  op.callBoxed(stack);
}

// Throws std::logic_error if `operand`, a plain tensor, has as many elements as `part`, and more
// than one, but not the sizes of the whole tensor: the user may have meant `operand` to have the
// elements at the places of `part`.
void check_plain_operand(const c10::OperatorHandle& op, const at::Tensor& operand,
                         const at::Tensor& part) {
  const PartDescription of = description_of(part);
  const bool is_whole = !of->placement || operand.sizes() == of->placement->sizes;
  if (operand.numel() == part.numel() && part.numel() > 1 && !is_whole)
    refuse_numel(op.schema().name(), *of, part.numel(), "another, plain operand", operand.numel());
}

}  // namespace

void run_reduction(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const CallerScope caller(op.schema().name().c_str());
  const Values arguments = last_values(*stack, op.schema().arguments().size());
  at::Tensor part;  // the last operand that is this rank's part of a tensor
  for (const at::Tensor& tensor : tensors_in(arguments))
    if (is_part(tensor)) part = tensor;
  if (reduces_pieces(op, part)) return reduce_pieces(op, part, stack);
  const auto whole = [&](const at::Tensor& tensor, bool written) {
    if (!is_part(tensor)) {
      check_plain_operand(op, tensor, part);
      return tensor;
    }
    // If the operator writes to a part, this function throws, because the operator would write to
    // the gathered copy and not to the part.
    if (written) refuse_operator(op, *description_of(tensor));
    return whole_of(tensor);
  };
  replace_last_values(stack, map_tensors(op, arguments, whole));
  const PartsAsTensors inside;
  op.callBoxed(stack);
}

at::Tensor full_tensor(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_part(tensor)) return tensor;
  const CallerScope caller("full_tensor()");
  return whole_of(tensor);
}

}  // namespace fsdp
