#include <properties/habits.h>
#include <properties/random_program.h>
#include <properties/rng.h>

#include <functional>
#include <utility>

namespace fsdp {
namespace {

const char* const kHabit = "one of habits()";
const char* const kPlainlyToo = "backward of a block used by hand and plainly";

// These are the operations from which a program is drawn. An operation that prepares gradients for
// others is listed several times, so that it is drawn more often.
const std::vector<std::string> kOps{"backward",
                                    "backward",
                                    "backward",
                                    "backward in no_sync",
                                    "backward in no_sync",
                                    "step",
                                    "step",
                                    "step",
                                    "optimizer.zero_grad",
                                    "optimizer.zero_grad",
                                    "net.zero_grad",
                                    "model.zero_grad",
                                    "optimizer.zero_grad to zeros",
                                    "reset .grad of the module",
                                    "evaluate",
                                    "evaluate in inference mode",
                                    "forward with gradients",
                                    "late backward",
                                    "two forwards",
                                    "backward through both",
                                    "backward of blocks checkpointed by hand",
                                    kPlainlyToo,
                                    "backward of the model checkpointed by hand",
                                    "backward in no_sync of blocks checkpointed by hand",
                                    "backward of an implicit layer",
                                    "backward with a gradient of a model in a hook",
                                    "backward with a backward of a model in a hook",
                                    "throw in forward",
                                    "throw in forward hook",
                                    "throw in backward",
                                    "autograd::grad of the input",
                                    "clip",
                                    "halve .grad",
                                    "write .grad",
                                    "halve data()",
                                    "halve detach()",
                                    "halve one data()",
                                    "set_data",
                                    "vector_to_parameters",
                                    "average",
                                    "put the average back",
                                    "summon and write",
                                    "save",
                                    "load",
                                    "save optimizer",
                                    "load optimizer",
                                    "torch's clip_grad_norm_",
                                    kHabit,
                                    kHabit,
                                    kHabit,
                                    kHabit,
                                    "freeze",
                                    "freeze in module",
                                    "unfreeze",
                                    "new rate"};

}  // namespace

RandomProgram draw_program(uint64_t seed) {
  Rng rng(seed);
  RandomProgram program;
  program.world = rng.one_of<int>({1, 2, 2, 3, 4});
  if (program.world == 4) program.shards = rng.one_of<int>({0, 0, 1, 2});
  program.reshard_after_forward = !rng.one_in(3);
  program.limit = rng.one_of<int>({1, 2, 2, 5});
  program.adam = rng.one_in(2);
  program.models = rng.one_in(4) ? 2 : 1;
  program.ddp = rng.one_in(3);
  for (int left = 3 + rng.below(15); left > 0; --left) {
    Op op{rng.one_of(kOps)};
    op.model = rng.below(program.models);
    op.number = rng.below(8);
    if (op.what == kHabit) op.what = habits()[rng.below(static_cast<int>(habits().size()))].name;
    // This operation calls a block checkpointed by hand, and also plainly, that is, without a
    // checkpoint. With DDP it throws, because the gradient of the plain call may be reduced
    // already.
    if (program.ddp && op.what == kPlainlyToo) op.what = "backward of blocks checkpointed by hand";
    program.ops.push_back(op);
  }
  program.apart = program.models > 1 && program.shards == 0 && rng.one_in(2);
  program.gloo = rng.one_in(4);
  program.cap = rng.one_of<double>({0, 0.0005, 25});
  return program;
}

std::string text(const RandomProgram& program) {
  std::string line = "W = " + std::to_string(program.world);
  if (program.cuda) line += " on CUDA";
  if (program.gloo) line += " over gloo";
  if (program.apart) line += ", each model by itself";
  if (program.ddp) line += ", DDP, .bucket_cap_mb = " + std::to_string(program.cap);
  if (program.shards > 0) line += ", replicas of " + std::to_string(program.shards);
  if (!program.reshard_after_forward) line += ", .reshard_after_forward = false";
  line += ", .limit = " + std::to_string(program.limit) + (program.adam ? ", Adam: " : ", SGD: ");
  for (const Op& op : program.ops) {
    if (&op != program.ops.data()) line += "; ";
    line += op.what + " " + std::to_string(op.number);
    if (program.models > 1) line += " of model " + std::to_string(op.model);
  }
  return line;
}

RandomProgram shrink(RandomProgram program) {
  const auto keep_if_faulty = [&](const std::function<void(RandomProgram&)>& change) {
    RandomProgram smaller = program;
    change(smaller);
    if (text(smaller) == text(program) || first_difference(smaller).empty()) return false;
    program = std::move(smaller);
    return true;
  };
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t i = program.ops.size(); i-- > 0;)
      changed |= keep_if_faulty(
          [i](RandomProgram& p) { p.ops.erase(p.ops.begin() + static_cast<std::ptrdiff_t>(i)); });
    changed |= keep_if_faulty([](RandomProgram& p) { p.shards = 0; });
    changed |= keep_if_faulty([](RandomProgram& p) { p.shards = 0, p.world = 1; });
    changed |=
        program.world > 2 && keep_if_faulty([](RandomProgram& p) { p.shards = 0, p.world = 2; });
    changed |= keep_if_faulty([](RandomProgram& p) { p.reshard_after_forward = true; });
    changed |= keep_if_faulty([](RandomProgram& p) { p.limit = 1; });
    changed |= keep_if_faulty([](RandomProgram& p) { p.adam = false; });
    changed |= keep_if_faulty([](RandomProgram& p) { p.ddp = false; });
    changed |= keep_if_faulty([](RandomProgram& p) { p.cap = 0; });
    changed |= keep_if_faulty([](RandomProgram& p) { p.gloo = false; });
    changed |= keep_if_faulty([](RandomProgram& p) { p.apart = false; });
    changed |= keep_if_faulty([](RandomProgram& p) {
      p.models = 1;
      for (Op& op : p.ops)
        op.model = 0;
    });
  }
  return program;
}

}  // namespace fsdp
