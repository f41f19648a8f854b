#pragma once

// The library: all headers that a program needs to shard its own model. These headers and those
// that they include are installed.

// Headers for ranks, for the collectives between them, and for the order in which a collective adds
// the ranks' numbers.
#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <comm/tree_sum.h>
#include <hosts/start.h>
#include <launch/collect.h>
#include <launch/launcher.h>

// Headers for modules with hooks, and for building a module whose tensors have no memory yet.
#include <adapted.h>
#include <check_hookable.h>
#include <checkpoint_activations.h>
#include <forward_method.h>
#include <meta_init.h>
#include <module_holder.h>
#include <module_of.h>
#include <nn/lora.h>
#include <nn/module.h>
#include <nn/random_scope.h>
#include <nn/reads_in_calls.h>
#include <sequential.h>

// Headers for sharded or replicated training with torch's optimizers: FullyShardedDataParallel and
// DistributedDataParallel, as in PyTorch.
#include <all_gather_tensor.h>
#include <distributed_data_parallel.h>
#include <full_tensor.h>
#include <fully_sharded_data_parallel.h>
#include <norms.h>
#include <state_dict.h>
#include <this_ranks_part.h>

// Headers for the functions and classes of which FullyShardedDataParallel consists.
#include <backward_hooks.h>
#include <flat_parameter.h>
#include <fully_shard.h>
#include <ignored.h>
#include <keep_fp32.h>
#include <nn/unit_policy.h>
#include <optim/mixed_precision.h>
#include <optim/shard_layout.h>
#include <prefetch.h>
#include <separate_frozen.h>
#include <unit_plan.h>
#include <wrap_by_size.h>
#include <wrap_policy.h>

// Headers for training without torch's optimizers: ShardedOptimizer, its update rules, and loss
// scaling.
#include <optim/loss_scaler.h>
#include <optim/state_range.h>
#include <optim/update_rule.h>
#include <sharded_optimizer.h>

// Headers for saving and loading checkpoints.
#include <locate.h>
#include <state/async_save.h>
#include <state/checkpoint.h>
#include <state/model_state.h>
#include <state/whole_state.h>

// Headers for measuring the memory of a run, and for planning it.
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <plan_step.h>
