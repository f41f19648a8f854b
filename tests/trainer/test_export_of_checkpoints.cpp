#include <base/whole_file.h>
#include <exchange/export.h>
#include <exchange/hugging_face_folder.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <testing/multi_rank.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>
#include "hugging_face_files.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// Saves `model` as a checkpoint that all ranks write.
void save(const Module& model, const std::string& name, TestRank& rank, const std::string& folder) {
  save_checkpoint(folder, CheckpointFormat::sharded, 3, {{"model", name}},
                  cut(model, rank.rank(), rank.world_size(), /*moments=*/true),
                  *rank.communicator());
}

at::Tensor tensor_in(const SafetensorsReader& file, const std::string& name) {
  const auto& entry = file.entries().at(name);
  const at::Tensor values = at::empty(entry.sizes, entry.dtype);
  file.read(entry, 0, values);
  return values;
}

MULTI_RANK_SUITE(ExportedCheckpoint);

MULTI_RANK_TEST(ExportedCheckpoint, an_export_as_hf_has_the_files_that_transformers_would_save) {
  for (const std::string& name : {std::string("gpt2-tiny"), kTinyLlama, kTinyQwen2}) {
    const TemporaryFolder folder;
    run_ranks(world_size(),
              [&](TestRank& rank) { save(*tiny(name), name, rank, folder.path() + "/run"); });
    const std::string output = folder.path() + "/new/hf";
    export_parameters(folder.path() + "/run", ExportFormat::hf, output);
    const SafetensorsReader file(output + "/model.safetensors");
    const HuggingFaceFiles expected = files_of(*tiny(name));
    EXPECT_EQ(file.entries().size(), expected.names.size());
    for (size_t i = 0; i < expected.names.size(); ++i)
      EXPECT_TRUE(tensor_in(file, expected.names[i]).equal(expected.tensors[i]))
          << expected.names[i];
    EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
    const HuggingFaceFolder read(output);
    EXPECT_EQ(read.shape(), model_shape(name));
  }
}

MULTI_RANK_TEST(ExportedCheckpoint, an_export_in_safetensors_has_the_names_of_this_projects_model) {
  const TemporaryFolder folder;
  run_ranks(world_size(),
            [&](TestRank& rank) { save(*tiny_gpt2(), "gpt2-tiny", rank, folder.path() + "/run"); });
  export_parameters(folder.path() + "/run", ExportFormat::safetensors, folder.path() + "/plain/");
  const SafetensorsReader file(folder.path() + "/plain/model.safetensors");
  const auto model = tiny_gpt2();
  const auto parameters = distinct_parameters(*model);
  EXPECT_EQ(file.entries().size(), parameters.size());
  for (const auto& [name, parameter] : parameters)
    EXPECT_TRUE(tensor_in(file, name).equal(parameter)) << name;
  EXPECT_EQ(file.metadata(),
            (SafetensorsMetadata{{"format", "pt"}, {"lm_head.weight", "wte.weight"}}));
  EXPECT_FALSE(fs::exists(folder.path() + "/plain/config.json"));
}

class Export : public testing::Test {
 protected:
  // Saves a checkpoint that has the parameters of gpt2-tiny, but whose checkpoint.json states that
  // its model is `model`. Returns the folder of the checkpoint.
  std::string saved(const std::string& model) {
    run_ranks(1, [&](TestRank& rank) { save(*tiny_gpt2(), model, rank, path("run")); });
    return step_folder(path("run"), 3);
  }
  std::string said(ExportFormat format) {
    return error_of([&] { export_parameters(path("run"), format, path("out")); });
  }
  std::string path(const std::string& name) const { return folder_.path() + '/' + name; }
  bool nothing_left() const { return !fs::exists(path("out")) && !fs::exists(path("out.part")); }

  TemporaryFolder folder_;
};

TEST_F(Export, an_export_is_refused_if_the_checkpoints_parameters_are_not_those_of_its_model) {
  const std::string checkpoint = saved("gpt2-36m");
  EXPECT_EQ(said(ExportFormat::hf), checkpoint + ": has other parameters than gpt2-36m");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Export, an_export_of_a_damaged_checkpoint_is_refused) {
  const std::string file = saved("gpt2-tiny") + "/rank-0000-of-0001.safetensors";
  std::fstream(file, std::ios::in | std::ios::out).seekp(-1, std::ios::end).put('x');
  for (const ExportFormat format : {ExportFormat::hf, ExportFormat::safetensors}) {
    EXPECT_EQ(said(format), file + ": is damaged; its SHA-256 is not the one in SHA256SUMS");
    EXPECT_TRUE(nothing_left());
  }
}

TEST_F(Export, an_export_copies_tokenizer_json_into_the_exported_folder) {
  saved("gpt2-tiny");
  folder_.write("theirs/tokenizer.json", R"({"model": {}})");
  export_parameters(path("run"), ExportFormat::hf, path("out"), path("theirs"));
  EXPECT_EQ(content_of(path("out/tokenizer.json")), R"({"model": {}})");
  EXPECT_EQ(HuggingFaceFolder(path("out")).shape(), model_shape("gpt2-tiny"));
}

TEST_F(Export, an_export_that_fails_because_of_an_invalid_tokenizer_leaves_no_files) {
  saved("gpt2-tiny");
  const std::string wrong = folder_.write("theirs/tokenizer.json", "{}");
  EXPECT_EQ(error_of([&] {
              export_parameters(path("run"), ExportFormat::hf, path("out"), path("theirs"));
            }),
            wrong + ": is not a tokenizer.json, which has a model");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Export, an_export_refuses_a_tokenizer_that_the_model_does_not_fit) {
  saved("gpt2-tiny");
  const std::string file =
      folder_.write("theirs/tokenizer.json", R"({"model": {"vocab": {"a": 60, "b": 61}}})");
  const auto error = [&] {
    return error_of(
        [&] { export_parameters(path("run"), ExportFormat::hf, path("out"), path("theirs")); });
  };
  EXPECT_EQ(error(), file +
                         ": a token has the id 61, and the model has only those below 61; give "
                         "the tokenizer of the model (--tokenizer)");
  EXPECT_TRUE(nothing_left());
  folder_.write("theirs/tokenizer.json", R"({"model": {"vocab": {"a": 60}}})");
  const std::string damaged = folder_.write("theirs/generation_config.json", "{");
  EXPECT_EQ(error(), damaged +
                         ": is no JSON object; it lies beside the tokenizer: mend it, or "
                         "remove it");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Export, the_config_of_an_export_has_the_end_of_text_token_of_its_tokenizer) {
  saved("gpt2-tiny");
  folder_.write("theirs/tokenizer.json", R"({"model": {"vocab": {"a": 6, "<|end|>": 60}}})");
  const auto end = [&](const std::string& name) {
    export_parameters(path("run"), ExportFormat::hf, path(name), path("theirs"));
    EXPECT_EQ(HuggingFaceFolder(path(name)).shape(), model_shape("gpt2-tiny"));
    return nlohmann::json::parse(content_of(path(name + "/config.json"))).at("eos_token_id");
  };
  EXPECT_EQ(end("unknown"), nlohmann::json());
  folder_.write("theirs/tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  EXPECT_EQ(end("known"), 60);
  folder_.write("theirs/generation_config.json", R"({"eos_token_id": [3, 5]})");
  EXPECT_EQ(end("several"), nlohmann::json({3, 5}));
}

TEST_F(Export, an_export_into_an_existing_folder_is_refused) {
  saved("gpt2-tiny");
  folder_.write("out/notes", "mine");
  EXPECT_EQ(said(ExportFormat::hf), path("out") + ": is there already");
  EXPECT_TRUE(fs::exists(path("out/notes")));
  EXPECT_FALSE(fs::exists(path("out/config.json")));
  fs::rename(path("out"), path("out.part"));
  EXPECT_EQ(said(ExportFormat::hf),
            path("out.part") + ": exists, perhaps from an export that was stopped; remove it");
  EXPECT_TRUE(fs::exists(path("out.part/notes")));
}

}  // namespace
}  // namespace fsdp
