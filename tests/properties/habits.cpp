#include <full_tensor.h>
#include <properties/habits.h>

#include <algorithm>

namespace fsdp {
namespace {

const std::vector<Habit> kHabits{
    {"LARS", true, [](at::Tensor p) { p.grad().mul_(p.norm() / (p.grad().norm() + 1)); }},
    {"limit the norm of .grad", true,
     [](at::Tensor p) { p.grad().mul_((0.1 / (p.grad().norm(1) + 1e-6)).clamp_max(1)); }},
    {"center .grad", true,
     [](at::Tensor p) { p.grad().sub_(p.dim() == 2 ? p.grad().mean(1, true) : p.grad().mean()); }},
    {"drop .grad if it is large", true,
     [](at::Tensor p) {
       if (p.grad().abs().max().item<double>() > 0.05) p.grad().zero_();
     }},
    {"keep the larger half of .grad", true,
     [](at::Tensor p) { p.grad().mul_(p.grad().abs() >= p.grad().abs().median()); }},
    {"a whole matrix as .grad", true,
     [](at::Tensor p) {
       const at::Tensor g = full_tensor(p.grad());
       if (g.dim() == 2) p.grad().copy_(at::matmul(g, g.t()));
     }},
    {"limit the norms of rows", false,
     [](at::Tensor p) {
       if (p.dim() == 2) p.data().mul_((0.4 / (p.norm(2, {1}, true) + 1e-6)).clamp_max(1));
     }},
    {"standardize", false, [](at::Tensor p) { p.data().sub_(p.mean()).div_(p.std() + 0.5); }},
    {"quantize by the largest", false,
     [](at::Tensor p) {
       const at::Tensor scale = p.abs().amax() / 127 + 1e-9;
       p.data().copy_((p / scale).round() * scale);
     }},
    {"limit to quantiles", false,
     [](at::Tensor p) { p.data().copy_(p.clamp(at::quantile(p, 0.05), at::quantile(p, 0.95))); }},
    {"a triangle", false,
     [](at::Tensor p) {
       if (p.dim() == 2) p.data().mul_(at::ones({7, 7}, p.options().requires_grad(false)).tril());
     }},
    {"add a part of the whole", false, [](at::Tensor p) { p.add_(full_tensor(p) * 0.1); }},
    {"halve if all are finite", false, [](at::Tensor p) {
       if (p.isfinite().all().item<bool>() && !p.isnan().any().item<bool>()) p.mul_(0.5);
     }}};

}  // namespace

const std::vector<Habit>& habits() {
  return kHabits;
}

const Habit* habit_named(const std::string& name) {
  const auto found = std::ranges::find(kHabits, name, &Habit::name);
  return found == kHabits.end() ? nullptr : &*found;
}

}  // namespace fsdp
