#include <exchange/gpt2_config.h>
#include <exchange/gpt2_names.h>
#include <exchange/hugging_face_folder.h>
#include <testing/multi_rank.h>

#include <functional>

#include <common/expect_text.h>
#include <common/temporary_folder.h>
#include "hugging_face_files.h"
#include "saved_state.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using Change = std::function<void(HuggingFaceFiles&)>;

ModelState zeros_of(ModelState state) {
  for (StateRange& range : state.ranges)
    range.value.zero_();
  return state;
}

TEST(HuggingFace, names_and_shapes_are_known_without_the_model) {
  const auto model = tiny_gpt2();
  EXPECT_EQ(gpt2_parameters(*gpt2_options("gpt2-tiny")),
            state_without_ranges(distinct_parameters(*model)).parameters);
}

TEST(HuggingFace, tied_names_are_those_of_the_model) {
  run_ranks(1, [](TestRank&) {
    for (const char* name : {"gpt2-tiny", "small"}) {
      std::map<const void*, std::string> first;
      std::map<std::string, std::string> tied;
      for (const auto& item : make_model(name)->named_parameters()) {
        const auto [other, is_new] = first.emplace(item.value().unsafeGetTensorImpl(), item.key());
        if (!is_new) tied[item.key()] = other->second;
      }
      EXPECT_EQ(tied_names(name), tied) << name;
    }
  });
}

TEST(HuggingFace, a_config_says_what_it_was_made_from) {
  const TemporaryFolder folder;
  for (const std::string name : {"gpt2-tiny", "gpt2-124m"}) {
    const GPT2Options options = *gpt2_options(name);
    folder.write("config.json", gpt2_config(options).dump());
    EXPECT_EQ(difference_of_sizes(read_gpt2_config(folder.path()), name, options), "");
  }
  folder.write("config.json",
               R"({"model_type": "gpt2", "vocab_size": 61, "n_positions": 19, "n_embd": 35,
                   "n_layer": 3, "n_head": 5, "n_inner": null})");
  EXPECT_EQ(read_gpt2_config(folder.path()).d_ff, 4 * 35);
  EXPECT_EQ(
      difference_of_sizes(read_gpt2_config(folder.path()), "gpt2-tiny", *gpt2_options("gpt2-tiny")),
      "n_inner 140, and gpt2-tiny has 121");
}

// The files with their change, and the first part of what is said of them.
struct Refused {
  Change change;
  std::string text;
};

void expect_refused(const std::vector<Refused>& all, const std::string& file) {
  const auto model = tiny_gpt2();
  for (const auto& [change, text] : all) {
    const TemporaryFolder folder;
    HuggingFaceFiles files = files_of(*model);
    change(files);
    files.write(folder.path());
    const std::string said = error_of([&] { HuggingFaceFolder read(folder.path()); });
    EXPECT_EQ(said, folder.path() + '/' + file + ": " + text);
  }
}

TEST(HuggingFace, tensors_that_are_not_as_the_config_says_are_refused) {
  const std::string bias = "transformer.h.2.attn.c_attn.bias";
  expect_refused(
      {{[&](auto& files) { files.remove(bias); }, "has no tensor " + bias},
       {[&](auto& files) { files.remove("transformer.wte.weight"); },
        "has no tensor transformer.wte.weight"},
       {[&](auto& files) { files.at(bias) = at::zeros({104}); },
        "tensor " + bias + ": has the shape [104], not [105]"},
       {[](auto& files) {
          auto& weight = files.at("transformer.h.0.mlp.c_fc.weight");
          weight = weight.t().contiguous();
        },
        "tensor transformer.h.0.mlp.c_fc.weight: has the shape [121,35], not [35,121]"},
       {[&](auto& files) { files.at(bias) = at::zeros({105}, at::kLong); },
        "tensor " + bias + ": has a dtype that is not F32, F16 or BF16"},
       {[](auto& files) { files.add("transformer.h.3.ln_1.bias", at::zeros({35})); },
        "tensor transformer.h.3.ln_1.bias: is of no parameter of the GPT-2 that config.json "
        "describes"},
       {[](auto& files) {
          files.add("wpe.weight", at::zeros({19, 35}));
        },
        "tensor wpe.weight: is there as transformer.wpe.weight too"},
       {[](auto& files) {
          files.add("lm_head.weight", at::zeros({35, 61}));
        },
        "tensor lm_head.weight: has the shape [35,61], not [61,35]"}},
      "model.safetensors");
}

TEST(HuggingFace, models_that_compute_something_else_are_refused) {
  const auto with = [](const std::string& name, const nlohmann::ordered_json& value) {
    return [=](HuggingFaceFiles& files) { files.config[name] = value; };
  };
  expect_refused(
      {{with("model_type", "llama"), R"(model_type is "llama", not "gpt2")"},
       {[](auto& files) { files.config.erase("model_type"); }, R"(model_type is null, not "gpt2")"},
       {[](auto& files) { files.config.erase("n_embd"); },
        "n_embd is null, not a number from 1 to 1000000"},
       {with("n_layer", 1000000000), "n_layer is 1000000000, not a number from 1 to 10000"},
       {with("n_layer", -1), "n_layer is -1, not a number from 1 to 10000"},
       {with("vocab_size", "61"), R"(vocab_size is "61", not a number from 1 to 100000000)"},
       {with("n_head", 4), "n_head 4 does not divide n_embd 35"},
       {with("activation_function", "relu"),
        R"(activation_function is "relu", and this program's GPT-2 has "gelu_new")"},
       {with("layer_norm_epsilon", 1e-6),
        "layer_norm_epsilon is 1e-06, and this program's GPT-2 has 1e-05"},
       {with("scale_attn_by_inverse_layer_idx", true),
        "scale_attn_by_inverse_layer_idx is true, and this program's GPT-2 has false"},
       {with("tie_word_embeddings", false),
        "tie_word_embeddings is false, and this program's GPT-2 has true"}},
      "config.json");
}

TEST(HuggingFace, files_that_are_cut_off_or_absent_are_refused) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/model.safetensors";
  const auto said = [&] { return error_of([&] { HuggingFaceFolder read(folder.path()); }); };
  EXPECT_EQ(said(), folder.path() + "/config.json: can't be read: No such file or directory");
  files_of(*tiny_gpt2()).write(folder.path());
  const HuggingFaceFolder whole(folder.path());
  for (const auto size : {fs::file_size(file) - 4, uintmax_t{1000}, uintmax_t{0}}) {
    fs::resize_file(file, size);
    EXPECT_TRUE(said().starts_with(file + ": ")) << said();
  }
  fs::remove(file);
  EXPECT_EQ(said(), file + ": can't be read: No such file or directory");
  folder.write("config.json", "{");
  EXPECT_EQ(said(), folder.path() + "/config.json: is no JSON object");
}

// The file loses bytes at its end after the headers were compared: what is needed is still read,
// and one byte less is not enough.
TEST(HuggingFace, no_more_is_read_than_a_range_needs) {
  const auto model = tiny_gpt2();
  // Of [61, 35], and of [121, 35] as [35, 121]: three rows of ours, so three columns.
  for (const auto& [name, left_over] : std::vector<std::pair<std::string, int64_t>>{
           {"wte.weight", 61 * 35 - 100}, {"h.1.mlp.c_fc.weight", 121 - 3}}) {
    const TemporaryFolder folder;
    HuggingFaceFiles files = files_of(*model);
    const at::Tensor last = files.at("transformer." + name);
    files.remove("transformer." + name);
    files.add("transformer." + name, last);
    files.write(folder.path());
    const HuggingFaceFolder saved(folder.path());
    const std::string file = folder.path() + "/model.safetensors";
    const StateRange range{name, 0, 100, at::zeros({100}), {}, {}, {}};
    fs::resize_file(file, fs::file_size(file) - static_cast<uintmax_t>(4 * left_over));
    saved.read(range);
    const at::Tensor own = model->named_parameters()[name].detach();
    EXPECT_TRUE(range.value.equal(own.reshape({-1}).slice(0, 0, 100))) << name;
    fs::resize_file(file, fs::file_size(file) - 1);
    EXPECT_EQ(error_of([&] { saved.read(range); }), file + ": ends too early");
  }
}

MULTI_RANK_SUITE(HuggingFaceOn);

const std::vector<std::pair<std::string, Change>> kForms{
    {"as saved", [](HuggingFaceFiles&) {}},
    {"with head and masks",
     [](HuggingFaceFiles& files) {
       files.add("lm_head.weight", files.at("transformer.wte.weight"));
       files.add("transformer.h.0.attn.bias", at::ones({1, 1, 19, 19}, at::kByte));
       files.add("transformer.h.0.attn.masked_bias", at::full({}, -1e4));
     }},
    {"without prefix",
     [](HuggingFaceFiles& files) {
       for (std::string& name : files.names)
         name.erase(0, std::string("transformer.").size());
     }},
    {"F16",
     [](HuggingFaceFiles& files) {
       for (at::Tensor& tensor : files.tensors)
         tensor = tensor.to(at::kHalf);
     }},
    {"BF16", [](HuggingFaceFiles& files) {
       for (at::Tensor& tensor : files.tensors)
         tensor = tensor.to(at::kBFloat16);
     }}};

// What load_hugging_face() says; "loaded" if nothing.
std::string load(TestRank& rank, const std::string& folder, const ModelState& state) {
  try {
    load_hugging_face(folder, state, *rank.communicator());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "loaded";
}

MULTI_RANK_TEST(HuggingFaceOn, any_number_of_ranks_gets_its_ranges) {
  const TemporaryFolder folder;
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto model = tiny_gpt2();
    for (const auto& [name, change] : kForms) {
      HuggingFaceFiles files = files_of(*model);
      change(files);
      if (rank.rank() == 0) files.write(folder.path() + '/' + name);
      rank.communicator()->barrier("written").wait();
      const ModelState state = zeros_of(cut(*model, rank.rank(), rank.world_size()));
      rank.observe(name, load(rank, folder.path() + '/' + name, state));
      ModelState expected = cut(*model, rank.rank(), rank.world_size());
      const auto dtype = files.tensors[0].scalar_type();
      for (StateRange& range : expected.ranges)
        range.value = range.value.to(dtype).to(at::kFloat);
      rank.observe(name + ": equal", equal(state, expected));
    }
  });
  for (const auto& [name, change] : kForms) {
    expect_on_all_ranks(run, name, "loaded");
    expect_on_all_ranks(run, name + ": equal", true);
  }
}

MULTI_RANK_TEST(HuggingFaceOn, every_rank_refuses_before_a_value_changes) {
  const TemporaryFolder folder;
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto model = tiny_gpt2();
    HuggingFaceFiles files = files_of(*model);
    at::Tensor head = files.at("transformer.wte.weight").clone();
    head[60][34] += 1;
    files.add("lm_head.weight", head);
    if (rank.rank() == 0) files.write(folder.path());
    rank.communicator()->barrier("written").wait();
    const ModelState state = zeros_of(cut(*model, rank.rank(), rank.world_size()));
    rank.observe("head", load(rank, folder.path(), state));
    ModelState other = state;
    other.parameters.back().sizes = {36};
    rank.observe("other model", load(rank, folder.path(), other));
    const bool zero = equal(state, zeros_of(cut(*model, rank.rank(), rank.world_size())));
    rank.observe("unchanged", zero);
  });
  expect_on_all_ranks(run, "head",
                      folder.path() +
                          "/model.safetensors: tensor lm_head.weight: differs from "
                          "transformer.wte.weight, and they are one parameter here");
  expect_on_all_ranks(run, "other model", folder.path() + "/config.json: describes another model");
  expect_on_all_ranks(run, "unchanged", true);
}

TEST(HuggingFace, in_several_files_is_refused_with_the_way_to_one) {
  const TemporaryFolder folder;
  run_ranks(1, [&](TestRank&) { files_of(*tiny_gpt2()).write(folder.path()); });
  std::filesystem::rename(folder.path() + "/model.safetensors",
                          folder.path() + "/model.safetensors.index.json");
  EXPECT_CONTAINS(error_of([&] { HuggingFaceFolder saved(folder.path()); }),
                  "the tensors lie in several files, and one is read; save the model anew by "
                  "save_pretrained(folder, max_shard_size=");
}

}  // namespace
}  // namespace fsdp
