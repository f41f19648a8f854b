#pragma once

#include <nn/module.h>

#include <vector>

namespace fsdp {

// Throws std::invalid_argument if one of `units` is a child of a torch::nn::Sequential in `root`.
// Such a Sequential calls forward() of its modules directly, so the unit's hooks would not run. The
// message begins with the unit: "blocks.0 (fsdp::ToyBlock) lies in a torch::nn::Sequential, ..." A
// unit may be in a torch::nn::ModuleList or ModuleDict, because these call nothing.
void check_hookable(const torch::nn::Module& root, const std::vector<Module*>& units);
// Throws std::invalid_argument if any fsdp::Module in `root`, unit or not, is a child of a
// torch::nn::Sequential.
void check_hookable(const torch::nn::Module& root);

}  // namespace fsdp
