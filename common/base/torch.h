#pragma once

// What the course uses of <torch/torch.h>: tensors, autograd, modules. The whole of it, with data
// loaders, optimizers and every layer, makes a file take twice as long to compile.
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
