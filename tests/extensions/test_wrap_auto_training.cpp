#include "language_models.h"
#include "two_steps.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(WrapAutoTraining);

MULTI_RANK_TEST(WrapAutoTraining,
                a_unit_of_an_embedding_is_gathered_for_forward_and_not_for_backward) {
  const Workload workload = workload_of(language_models().at(1));
  TrainConfig config = extension_config("fsdp", world_size());
  config.training.microbatches = world_size();  // one microbatch for each rank
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto strategy = strategy_of(rank, config, workload);
    rank.communicator()->take_log();
    train_step(*strategy, config, 0);
    std::map<std::string, int> gathers;
    for (const Call& call : rank.communicator()->take_log())
      if (call.operation == Operation::all_gather) ++gathers[call.unit.str()];
    rank.observe("all-gathers of the embedding", gathers["token_embeddings"]);
    rank.observe("all-gathers of the head", gathers["lm_head"]);
  });
  expect_on_all_ranks(run, "all-gathers of the embedding", 1);
  expect_on_all_ranks(run, "all-gathers of the head", 2);
}

MULTI_RANK_TEST(WrapAutoTraining,
                training_with_wrap_auto_has_the_bits_of_one_process_and_the_predicted_bytes) {
  for (const NamedModel& model : language_models()) {
    SCOPED_TRACE(model.name);
    const Workload workload = workload_of(model);
    const TrainConfig config = extension_config("fsdp", world_size());
    expect_as_predicted(config, workload, hash_of_single(config, workload));
  }
}

}  // namespace
}  // namespace fsdp
