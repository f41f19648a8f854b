#pragma once

// The part of <torch/torch.h> that the course uses: tensors, autograd, modules. A source file that
// includes the whole <torch/torch.h>, with data loaders, optimizers and every layer, takes twice as
// long to compile.
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
