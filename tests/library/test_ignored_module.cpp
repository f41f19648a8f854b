#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Tests models with an ignored module. DistributedDataParallel can replicate the ignored module, or
// another FullyShardedDataParallel can shard it.
namespace fsdp {
namespace {

struct EncodedNet : RowOf<LayerBlock> {
  at::Tensor forward(at::Tensor x) override { return RowOf::forward((*encoder)(x)); }
  std::shared_ptr<RowOf<LayerBlock>> encoder =
      register_module("encoder", std::make_shared<RowOf<LayerBlock>>());
};

std::shared_ptr<EncodedNet> encoded_net() {
  torch::manual_seed(1);
  return std::make_shared<EncodedNet>();
}

// Trains kSteps steps in one process that computes the microbatches of `ranks` ranks. Returns the
// parameters.
StateDict trained_in_one_process(int ranks) {
  const auto net = encoded_net();
  const auto optimizer = adamw(net->parameters());
  for (int step = 0; step < kSteps; ++step) {
    backward_of_parts(net->parameters(), ranks,
                      [&](int part) { return mean_square(*net, part, ranks, step); });
    optimizer->step();
    optimizer->zero_grad();
  }
  StateDict state;
  for (const auto& [name, parameter] : distinct_parameters(*net))
    state.insert(name, parameter.detach());
  return state;
}

// Trains `net`, whose parameters belong to two wrappers: those of the encoder to one, the rest to
// the other. Each wrapper has an optimizer of its own.
void train_together(TestRank& rank, Module& net, const std::vector<at::Tensor>& of_encoder,
                    const std::vector<at::Tensor>& of_rest) {
  const auto encoder = adamw(of_encoder), rest = adamw(of_rest);
  for (int step = 0; step < kSteps; ++step) {
    loss_of(net, rank, step).backward();
    for (const auto& optimizer : {encoder.get(), rest.get()}) {
      optimizer->step();
      optimizer->zero_grad();
    }
  }
}

MULTI_RANK_SUITE(IgnoredModule);

MULTI_RANK_TEST(IgnoredModule,
                a_replicated_ignored_module_trains_as_one_process_without_a_warning) {
  in_each_strategy(world_size(), [](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
    const StateDict expected = trained_in_one_process(rank.world_size());
    for (const bool replicas_first : {true, false}) {
      const auto net = encoded_net();
      WarningsOf warnings;
      std::optional<DistributedDataParallel<RowOf<LayerBlock>>> encoder;
      if (replicas_first) encoder.emplace(*net->encoder, comm);
      FullyShardedDataParallel model(*net, comm, {.ignored = {net->encoder.get()}});
      if (!replicas_first) encoder.emplace(*net->encoder, comm);
      train_together(rank, *net, encoder->parameters(), model.parameters());
      EXPECT_EQ(warnings.texts, "");
      const StateDict found = model.state_dict();
      for (const auto& entry : expected)
        EXPECT_TRUE(at::equal(found.at(entry.key()), entry.value())) << entry.key();
    }
  });
}

MULTI_RANK_TEST(IgnoredModule,
                an_ignored_module_can_be_sharded_by_another_fully_sharded_data_parallel) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto comm = rank.communicator();
    const StateDict expected = trained_in_one_process(rank.world_size());
    for (const bool encoder_first : {true, false}) {
      const auto net = encoded_net();
      const WarningsOf warnings;
      std::optional<FullyShardedDataParallel<RowOf<LayerBlock>>> encoder;
      if (encoder_first) encoder.emplace(*net->encoder, comm);
      FullyShardedDataParallel model(*net, comm, {.ignored = {net->encoder.get()}});
      if (!encoder_first) encoder.emplace(*net->encoder, comm);
      train_together(rank, *net, encoder->parameters(), model.parameters());
      EXPECT_EQ(warnings.texts, "");
      const auto expect = [&](Module& module, const std::string& prefix) {
        for (const auto& [name, parameter] : distinct_parameters(module))
          EXPECT_TRUE(at::equal(parameter, expected.at(prefix + name))) << prefix + name;
      };
      encoder->summon_full_params([&] { expect(*net->encoder, "encoder."); });
      model.summon_full_params([&] {
        for (size_t i = 0; i < net->blocks.size(); ++i)
          expect(*net->blocks[i], "b" + std::to_string(i) + ".");
      });
      EXPECT_CONTAINS(error_of([&] { model.state_dict(); }),
                      "state_dict: parameter encoder.b0.linear.weight of an ignored module is "
                      "sharded by another object");
    }
  });
}

MULTI_RANK_TEST(IgnoredModule,
                sharding_a_model_with_a_replicated_parameter_that_is_not_ignored_throws) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto comm = rank.communicator();
    const auto net = encoded_net();
    const DistributedDataParallel encoder(*net->encoder, comm);
    EXPECT_CONTAINS(error_of([&] { FullyShardedDataParallel model(*net, comm); }),
                    "parameter encoder.b0.linear.weight is replicated already; shard a model once, "
                    "as a whole, or put the module that has it into .ignored");
    EXPECT_CONTAINS(error_of([&] {
                      FullyShardedDataParallel model(*net, comm,
                                                     {.ignored = {net->blocks[0].get()}});
                    }),
                    "encoder.b0.linear.weight is replicated already");
  });
}

MULTI_RANK_TEST(IgnoredModule,
                an_ignored_module_whose_gradients_are_never_reduced_gives_one_warning) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = encoded_net();
    WarningsOf warnings;
    FullyShardedDataParallel model(*net, rank.communicator(), {.ignored = {net->encoder.get()}});
    {
      const at::NoGradGuard no_grad;
      loss_of(*net, rank);
    }
    EXPECT_EQ(warnings.texts, "");
    loss_of(*net, rank).backward();
    const std::string said = std::exchange(warnings.texts, "");
    EXPECT_EQ(said.find("encoder.b0.linear.weight of an ignored module is trainable") !=
                  std::string::npos,
              rank.rank() == 0);
    loss_of(*net, rank).backward();
    EXPECT_EQ(warnings.texts, "");
  });
}

}  // namespace
}  // namespace fsdp
