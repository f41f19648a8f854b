#include <caffe2/serialize/inline_container.h>
#include <memory/live_bytes.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/serialize.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>
#include <library/models.h>
#include <library/one_process.h>

#include <fstream>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(ModelStateDict);

MULTI_RANK_TEST(ModelStateDict,
                the_state_dict_has_the_whole_tensor_of_every_name_and_outlives_the_model) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto build = [] {
      torch::manual_seed(3);
      return std::make_shared<TinyNet>();
    };
    StateDict state;
    {
      const auto net = build();
      FullyShardedDataParallel model(*net, rank.communicator());
      state = model.state_dict();
      EXPECT_EQ(model.state_dict(/*rank0_only=*/true).empty(), rank.rank() != 0);
    }
    const auto whole = build();
    for (const auto& parameter : whole->named_parameters())
      EXPECT_TRUE(at::equal(state.at(parameter.key()), parameter.value())) << parameter.key();
    EXPECT_TRUE(at::equal(state.at("steps"), whole->steps));
  });
}

MULTI_RANK_TEST(ModelStateDict, load_state_dict_file_names_the_fault_of_a_damaged_or_foreign_file) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    const std::string path = folder.path() + "/" + std::to_string(rank.rank()) + ".pt";
    const auto refused = [&](std::vector<char> bytes, const std::string& says) {
      std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
      EXPECT_CONTAINS(error_of([&] { load_state_dict_file(path); }), path + ": " + says);
    };
    StateDict state;
    state.insert("a", at::ones({40}));
    std::vector<char> bytes = torch::pickle_save(state);
    bytes.resize(bytes.size() / 2);
    refused(bytes, "is damaged: its end is missing");
    refused({'{', '}'}, "is not a file of save_state_dict() or of Python's torch.save(dict, path)");
    refused(torch::pickle_save(at::ones({2})), "does not hold a dict of tensors by name; save one");
    {
      caffe2::serialize::PyTorchStreamWriter file(path);
      const std::string dict =
          "\x80\x02"
          "ccollections\nOrderedDict\n)R}U\x09_metadata}sb.";
      file.writeRecord("data.pkl", dict.data(), dict.size());
      file.writeEndOfFile();
    }
    EXPECT_CONTAINS(error_of([&] { load_state_dict_file(path); }),
                    path + ": holds a class of Python's; save it by torch.save(dict(");
  });
}

// The state is saved on W ranks, and loaded on 1 to 4 ranks.
MULTI_RANK_TEST(ModelStateDict, a_state_dict_file_can_be_loaded_on_another_number_of_ranks) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model.pt", optim = folder.path() + "/optim.pt";
  run_ranks(world_size(), [&](TestRank& rank) {
    ShardedNet saved(rank);
    saved.step();
    save_state_dict(saved.model.state_dict(), path, *rank.communicator());
    save_state_dict(saved.model.optim_state_dict(*saved.optimizer), optim, *rank.communicator());
  });
  const auto expect_equal = [](const StateDict& one, const StateDict& other) {
    EXPECT_EQ(one.size(), other.size());
    for (const auto& entry : one)
      EXPECT_TRUE(at::equal(entry.value(), other.at(entry.key()))) << entry.key();
  };
  for (const int others : {1, 2, 3, 4}) {
    run_ranks(others, [&](TestRank& rank) {
      ShardedNet loaded(rank, adamw, block_net(3, 9), {.wrap = wrap_none()});
      const StateDict state = load_state_dict_file(path), moments = load_state_dict_file(optim);
      loaded.model.load_state_dict(state);
      loaded.model.load_optim_state_dict(*loaded.optimizer, moments);
      expect_equal(loaded.model.state_dict(), state);
      expect_equal(loaded.model.optim_state_dict(*loaded.optimizer), moments);
    });
  }
}

MULTI_RANK_TEST(ModelStateDict,
                load_state_dict_refuses_a_state_that_does_not_fit_before_any_change) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const StateDict before = model.state_dict();
    const auto refused = [&](const std::function<void(StateDict&)>& change,
                             const std::string& says) {
      StateDict state = before.copy();
      change(state);
      EXPECT_CONTAINS(error_of([&] { model.load_state_dict(state); }), says);
    };
    refused([](StateDict& state) { EXPECT_EQ(state.erase("scale"), 1U); },
            "load_state_dict: the state lacks scale");
    refused([](StateDict& state) { state.insert("more", at::ones({1})); }, "has no more");
    refused([](StateDict& state) { state.insert_or_assign("scale", at::ones({8})); },
            "scale is Float [8], in the model Float [7]");
    EXPECT_TRUE(at::equal(model.state_dict().at("scale"), before.at("scale")));
  });
}

MULTI_RANK_TEST(ModelStateDict,
                load_state_dict_loads_buffers_and_refuses_two_values_of_a_shared_parameter) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(3);
    TinyNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    StateDict state = model.state_dict();
    state.insert_or_assign("steps", at::tensor({8, 9}, at::kLong));
    model.load_state_dict(state);
    EXPECT_TRUE(at::equal(net.steps, at::tensor({8, 9}, at::kLong)));
    state.insert_or_assign("second.gain", at::zeros({7}));
    EXPECT_CONTAINS(error_of([&] { model.load_state_dict(state); }), "have two values");
  });
}

// In summon_full_params(), rank r writes the value r + 3. If there is only one rank, this does not
// throw, and the value is kept.
MULTI_RANK_TEST(ModelStateDict, summon_full_params_throws_if_ranks_wrote_different_values) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const auto fill = [&] { at::Tensor(net->scale.detach()).fill_(rank.rank() + 3); };
    const auto write = [&] { model.summon_full_params(fill); };
    const auto value = [&] { return model.state_dict().at("scale")[0].item<float>(); };
    model.summon_full_params(fill, {.writeback = false});
    EXPECT_EQ(live_bytes::now()[MemoryClass::gathered], 0);
    EXPECT_EQ(value(), block_net()->scale[0].item<float>());
    if (rank.world_size() == 1) {
      write();
      EXPECT_EQ(value(), 3);
    } else {
      EXPECT_CONTAINS(error_of(write), "ranks differ in the values of parameter scale: ");
      EXPECT_CONTAINS(error_of(write),
                      "; write the same on every rank, or set .writeback to false");
      EXPECT_EQ(value(), block_net()->scale[0].item<float>());
    }
  });
}

struct NormNet : Module {
  NormNet() {
    norm = register_module("norm", torch::nn::BatchNorm1d(7));
    block = register_module("block", std::make_shared<LayerBlock>());
  }
  at::Tensor forward(at::Tensor x) override { return (*block)(norm(x)); }
  torch::nn::BatchNorm1d norm{nullptr};
  std::shared_ptr<LayerBlock> block;
};

template <class Model>
void train_with_buffers(TestRank& rank, const std::string& name) {
  torch::manual_seed(1);
  NormNet net;
  Model model(net, rank.communicator(), {.broadcast_buffers = true});
  for (int step = 0; step < 2; ++step)
    loss_of(net, rank, step).backward();
  net.eval();
  net(at::ones({2, 7}));
  rank.observe(name + " mean", net.norm->running_mean);
  net.train();
  // This forward changes the buffers of each rank in a different way.
  loss_of(net, rank, 2);
  const StateDict state = model.state_dict();
  rank.observe(name + " saved", state.at("norm.running_mean"));
  model.load_state_dict(state);
}

MULTI_RANK_TEST(ModelStateDict, with_broadcast_buffers_the_state_dict_has_the_buffers_of_rank_0) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    train_with_buffers<FullyShardedDataParallel<Module>>(rank, "FSDP");
    train_with_buffers<DistributedDataParallel<Module>>(rank, "DDP");
  });
  const RankRun one = run_oracle([&](TestRank& rank) {
    torch::manual_seed(1);
    NormNet net;
    for (int step = 0; step < 3; ++step) {
      net(batch_part(0, world_size(), step, {5, 7}));
      for (const std::string name : {"FSDP", "DDP"})
        if (step > 0) rank.observe(name + (step == 1 ? " mean" : " saved"), net.norm->running_mean);
    }
  });
  expect_as(run, one);
}

}  // namespace
}  // namespace fsdp
