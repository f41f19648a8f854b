#include <library/models.h>
#include <library/one_process.h>

#include <caffe2/serialize/inline_container.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/serialize.h>

#include <fstream>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(LibraryState);

MULTI_RANK_TEST(LibraryState, has_every_name_whole_and_is_owned) {
  const auto build = [] {
    torch::manual_seed(3);
    return std::make_shared<TinyNet>();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    StateDict state;
    {
      const auto net = build();
      FullyShardedDataParallel model(*net, rank.communicator());
      state = model.state_dict();
      EXPECT_EQ(model.state_dict(/*rank0_only=*/true).empty(), rank.rank() != 0);
    }
    for (const auto& entry : state)
      rank.observe(entry.key(), entry.value());
  });
  const RankRun one = run_oracle([&](TestRank& rank) {
    const auto net = build();
    auto names = nlohmann::json::array();
    for (const auto& parameter : net->named_parameters()) {
      names.push_back(parameter.key());
      rank.observe(parameter.key(), parameter.value().detach().contiguous());
    }
    rank.observe("steps", net->steps);
    rank.observe("names", names);
  });
  expect_parameters_of(one, run);
  expect_on_all_ranks(run, "steps", one.at(0, "steps"));
}

MULTI_RANK_TEST(LibraryState, that_is_no_file_of_one_is_refused_by_what_it_is) {
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
    refused({'{', '}'}, "is no file of save_state_dict() or of Python's torch.save(dict, path)");
    refused(torch::pickle_save(at::ones({2})), "holds no dict of tensors by name; save one");
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

// Saved on W ranks, loaded on 1 to 4.
MULTI_RANK_TEST(LibraryState, that_was_saved_goes_on_on_other_ranks) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model.pt", optim = folder.path() + "/optim.pt";
  run_ranks(world_size(), [&](TestRank& rank) {
    ShardedNet saved(rank);
    saved.step();
    save_state_dict(saved.model.state_dict(), path, *rank.communicator());
    save_state_dict(saved.model.optim_state_dict(*saved.optimizer), optim, *rank.communicator());
  });
  const auto equal = [](const StateDict& one, const StateDict& other) {
    bool equal = one.size() == other.size();
    for (const auto& entry : one)
      equal =
          equal && other.contains(entry.key()) && at::equal(entry.value(), other.at(entry.key()));
    return equal;
  };
  for (const int others : {1, 2, 3, 4}) {
    const RankRun run = run_ranks(others, [&](TestRank& rank) {
      const auto net = block_net(3, 9);
      FullyShardedDataParallel model(*net, rank.communicator(), {.wrap = wrap_none()});
      const auto optimizer = adamw(model.parameters());
      model.load_state_dict(load_state_dict_file(path));
      model.load_optim_state_dict(*optimizer, load_state_dict_file(optim));
      rank.observe("model", equal(model.state_dict(), load_state_dict_file(path)));
      rank.observe("optimizer",
                   equal(model.optim_state_dict(*optimizer), load_state_dict_file(optim)));
    });
    expect_on_all_ranks(run, "model", true);
    expect_on_all_ranks(run, "optimizer", true);
  }
}

MULTI_RANK_TEST(LibraryState, that_does_not_fit_is_refused_before_anything_changes) {
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
            "load_state_dict: lacks scale");
    refused([](StateDict& state) { state.insert("more", at::ones({1})); }, "has no more");
    refused([](StateDict& state) { state.insert_or_assign("scale", at::ones({8})); },
            "scale is Float [8], in the model Float [7]");
    if (rank.world_size() > 1) {
      refused(
          [&](StateDict& state) {
            state.insert_or_assign("scale", at::full({7}, static_cast<double>(rank.rank())));
          },
          "ranks differ in the values of scale");
    }
    EXPECT_TRUE(at::equal(model.state_dict().at("scale"), before.at("scale")));
  });
}

MULTI_RANK_TEST(LibraryState, is_loaded_with_buffers_and_one_value_of_what_has_two_names) {
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

MULTI_RANK_TEST(LibraryState, may_be_written_in_summon_full_params) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    loss_of(*net, rank);  // the root stays unsharded
    model.summon_full_params([&] {
      const at::NoGradGuard no_grad;
      rank.observe("before", net->blocks[0]->linear->weight.detach());
      torch::nn::init::constant_(net->blocks[0]->linear->weight, 2);
      net->scale.fill_(3);
    });
    model.summon_full_params([&] { torch::nn::init::zeros_(net->blocks[1]->linear->bias); },
                             {.writeback = false});
    const StateDict state = model.state_dict();
    rank.observe("weight", state.at("b0.linear.weight").eq(2).all().item<bool>());
    rank.observe("scale", state.at("scale").eq(3).all().item<bool>());
    rank.observe("bias", state.at("b1.linear.bias").eq(0).any().item<bool>());
    rank.observe("output", (*net)(at::ones({1, 7})));
  });
  const RankRun one = run_oracle([](TestRank& rank) {
    const auto net = block_net();
    rank.observe("before", net->blocks[0]->linear->weight.detach());
    const at::NoGradGuard no_grad;
    net->blocks[0]->linear->weight.fill_(2);
    net->scale.fill_(3);
    rank.observe("output", (*net)(at::ones({1, 7})));
  });
  expect_on_all_ranks(run, "before", one.at(0, "before"));
  expect_on_all_ranks(run, "weight", true);
  expect_on_all_ranks(run, "scale", true);
  expect_on_all_ranks(run, "bias", false);
  for (int rank = 0; rank < world_size(); ++rank)
    EXPECT_EQ(run.at(rank, "output"), one.at(0, "output"));
}

MULTI_RANK_TEST(LibraryState, that_ranks_write_differently_is_refused) {
  if (world_size() == 1) return;
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const auto write = [&] {
      model.summon_full_params([&] {
        const at::NoGradGuard no_grad;
        net->scale.fill_(rank.rank());
      });
    };
    EXPECT_CONTAINS(error_of(write), "ranks differ in the values of parameter scale: ");
    EXPECT_CONTAINS(error_of(write), "; write the same on every rank, or set .writeback to false");
    model.summon_full_params([&] { at::Tensor(net->scale.detach()).fill_(rank.rank()); },
                             {.writeback = false});
    const float kept = model.state_dict().at("scale")[0].item<float>();
    EXPECT_EQ(kept, block_net()->scale[0].item<float>());
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

MULTI_RANK_TEST(LibraryState, of_buffers_is_rank_0s_with_broadcast_buffers) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    NormNet net;
    FullyShardedDataParallel model(net, rank.communicator(), {.broadcast_buffers = true});
    for (int step = 0; step < 2; ++step)
      loss_of(net, rank, step).backward();
    net.eval();
    net(at::ones({2, 7}));
    rank.observe("mean", net.norm->running_mean);
    net.train();
    loss_of(net, rank, 2);  // each rank changes its own again
    const StateDict state = model.state_dict();
    rank.observe("saved", state.at("norm.running_mean"));
    model.load_state_dict(state);
  });
  const RankRun one = run_oracle([&](TestRank& rank) {
    torch::manual_seed(1);
    NormNet net;
    for (int step = 0; step < 3; ++step) {
      net(batch_part(0, world_size(), step, {5, 7}));
      if (step == 1) rank.observe("mean", net.norm->running_mean.clone());
    }
    rank.observe("saved", net.norm->running_mean);
  });
  expect_on_all_ranks(run, "mean", one.at(0, "mean"));
  expect_on_all_ranks(run, "saved", one.at(0, "saved"));
}

}  // namespace
}  // namespace fsdp
