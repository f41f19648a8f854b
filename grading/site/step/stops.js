'use strict';
// Stations of a step: settings beside those of BASE, the action, and what to see there. An action is named
// by its phase, its kind and what it is about.
const BASE = {world: 3, layers: 3, limit: 1};
const STOPS = [
  ['The whole model on every rank', {strategy: 'ddp'}, 'forward enter',
   'Data parallel training gives each rank other rows, but the same parameters, gradients and state. ' +
   'Three ranks hold everything three times.'],
  ['A third for each rank', {}, 'forward enter',
   'FSDP cuts every unit into as many shards as there are ranks. A rank keeps its third of the ' +
   'parameters and of the optimizer state for the whole run.'],
  ['One unit for all', {wrap: 'none'}, 'forward wait all_gather root',
   'What is a unit is a choice. If the model is one unit, its first all-gather brings all of it: ' +
   'between steps little memory is needed, within a step all.'],
  ['Gather a unit', {}, 'forward issue all_gather layers.0',
   'With a unit for each block, a rank asks the others only for the block that comes next. Each rank ' +
   'gives its third and receives the two others.'],
  ['Wait for it', {}, 'forward wait all_gather layers.0',
   'A matrix product needs the whole weight. Without prefetch the rank has nothing else to do ' +
   'until the link has brought it.'],
  ['Compute with it', {}, 'forward compute layers.0',
   'All ranks compute the same block at the same time, each on rows of its own. What they compute ' +
   'stays with them; only parameters are sent.'],
  ['Free it', {}, 'forward allocate gathered layers.0 freed',
   'After its forward nobody needs the block until backward. Two thirds of it are freed; ' +
   'the rank’s own third stays.'],
  ['The same for each block', {layers: 12}, 'forward compute layers.11',
   'Twelve blocks take turns in the memory of one. The peak of the unsharded parameters does not ' +
   'depend on the depth of the model.'],
  ['Gather ahead', {limit: 2}, 'forward issue all_gather layers.1',
   'With a limit of 2, the next block is on the link before this one computes. The step is ' +
   'shorter, and two units are unsharded instead of one.'],
  ['From forward to backward', {}, 'backward enter',
   'Each rank has a loss of its own rows. Only the root is still unsharded, because backward ' +
   'needs it first.'],
  ['Gather again', {}, 'backward issue all_gather layers.2',
   'Backward reads the weights once more, from the last block to the first. So each block is ' +
   'sent a second time.'],
  ['Or keep it', {reshard: 'off'}, 'backward enter',
   'Without resharding after forward, backward finds every unit and no second all-gather is ' +
   'needed. The price is the whole model in memory at this moment.'],
  ['Gradients of one rank', {}, 'backward allocate gradients layers.2',
   'The gradients of the block are complete, but only for the rows of this rank. They are as large as the ' +
   'unsharded block.'],
  ['Add and share out', {}, 'backward issue reduce_scatter layers.2',
   'A reduce-scatter adds the gradients of all ranks and leaves each rank the third that ' +
   'belongs to its shard. It sends half of what an all-reduce sends.'],
  ['Free the block', {}, 'backward allocate gradients layers.2 freed',
   'The unsharded parameters went first. When the reduction is done, the whole gradient goes too.'],
  ['Update what you own', {}, 'optimizer enter',
   'Shards, their gradients and their state lie on the same rank, so AdamW updates them ' +
   'without a word to the others. Then the next step begins.'],
  ['Replicas of shards', {world: 8, strategy: 'hybrid', shard_size: 4},
   'backward issue all_reduce layers.2',
   'Eight ranks may hold two replicas of four shards. All-gathers stay within a replica; after ' +
   'a reduce-scatter, the two owners of a shard add theirs. More memory, fewer bytes between hosts.'],
];
