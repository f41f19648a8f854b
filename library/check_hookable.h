#pragma once

#include <nn/module.h>

#include <vector>

namespace fsdp {

// Throws std::invalid_argument if one of `units` lies in a torch::nn::Sequential below `root`,
// which calls forward() and so runs no hooks: "blocks.0 (fsdp::ToyBlock) lies in a
// torch::nn::Sequential, ..." ModuleList and ModuleDict call nothing and are fine.
void check_hookable(const torch::nn::Module& root, const std::vector<Module*>& units);
// Checks every Module below `root`, as if each one were a unit.
void check_hookable(const torch::nn::Module& root);

}  // namespace fsdp
