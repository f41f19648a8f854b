#include <locate.h>
#include <memory/live_bytes.h>
#include <sharded_optimizer.h>
#include <state/async_save.h>
#include <state/checkpoint.h>

#include <common/files_below.h>
#include <common/temporary_folder.h>
#include <library/models.h>
#include <library/one_process.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(LibraryCheckpoint);

// Loads the latest checkpoint of `run`, if there is one, trains one step and saves a checkpoint.
// Returns the model's state.
StateDict train(TestRank& rank, const std::shared_ptr<Communicator>& comm, uint64_t seed,
                const std::string& run, CheckpointFormat format) {
  const auto net = buffered_block(seed);
  for (const at::Tensor& parameter : net->rest->parameters())
    at::Tensor(parameter).set_requires_grad(false);
  FullyShardedDataParallel model(*net, comm, {.wrap = wrap_none(), .ignored = {net->rest.get()}});
  int64_t step = 0;
  const auto loss = [&] { return loss_of(*net, rank, static_cast<int>(step)); };
  // Here begins the code that docs/checkpoints.md shows.
  const auto optimizer = make_sharded_optimizer(model.units(), {{"", {.lr = 1e-3}}}, comm);
  if (latest_step(run)) {
    const Checkpoint saved = find_checkpoint(run);
    load_checkpoint(saved.folder, model.checkpoint_state(*optimizer), locate, *comm);
    step = saved.step;
  }
  loss().backward();
  optimizer->step();
  optimizer->zero_grad();
  net->mean.add_(3.5);
  net->count.add_(1);
  save_checkpoint(run, format, ++step, {}, model.checkpoint_state(*optimizer), *comm);
  // Here ends the code that docs/checkpoints.md shows.
  return model.state_dict();
}

MULTI_RANK_TEST(LibraryCheckpoint,
                a_checkpoint_restores_buffers_and_ignored_modules_and_training_continues) {
  const TemporaryFolder folder;
  in_each_strategy(world_size(), [&](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
    for (const auto format : {CheckpointFormat::sharded, CheckpointFormat::full}) {
      const std::string run = folder.path() + "/" + std::to_string(comm->world_size()) +
                              (format == CheckpointFormat::full ? "full" : "");
      train(rank, comm, 1, run, format);
      // Builds the model with other initial values, loads the checkpoint of step 1, and trains a
      // second step.
      const StateDict second = train(rank, comm, 9, run, format);
      EXPECT_TRUE(at::equal(second.at("mean"), at::full({2}, 7)));
      EXPECT_EQ(second.at("count").item<int64_t>(), 2);
      const auto begun = buffered_block();
      EXPECT_TRUE(at::equal(second.at("rest.linear.weight"), begun->rest->linear->weight));
      const auto moved = (second.at("linear.weight") - begun->linear->weight).abs().max();
      // AdamW has made two steps with lr 1e-3, each of which moves an element by about 1e-3.
      EXPECT_TRUE(moved.item<float>() > 0 && moved.item<float>() < 2.1e-3);
    }
  });
}

// Saves one state twice, first with save_checkpoint() and then in the background. Makes a training
// step before the background save is complete. Both checkpoints must be equal.
MULTI_RANK_TEST(LibraryCheckpoint, a_step_during_an_async_save_does_not_change_the_checkpoint) {
  const TemporaryFolder folder;
  in_each_strategy(world_size(), [&](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
    const auto net = buffered_block();
    FullyShardedDataParallel model(*net, comm, {.wrap = wrap_none()});
    const auto optimizer = make_sharded_optimizer(model.units(), {{"", {.lr = 1e-3}}}, comm);
    const auto step = [&](int number) {
      loss_of(*net, rank, number).backward();
      optimizer->step();
      optimizer->zero_grad();
      net->mean.add_(3.5);
    };
    step(0);
    for (const auto format : {CheckpointFormat::sharded, CheckpointFormat::full}) {
      const std::string run = folder.path() + "/" + std::to_string(comm->world_size()) +
                              (format == CheckpointFormat::full ? "full" : "");
      save_checkpoint(run + "plain", format, 1, {}, model.checkpoint_state(*optimizer), *comm);
      const auto save =
          async_save(run + "async", format, 1, {}, model.checkpoint_state(*optimizer), *comm);
      step(1);
      save->wait();
      EXPECT_EQ(files_below(run + "async"), files_below(run + "plain"));
    }
  });
}

}  // namespace
}  // namespace fsdp
