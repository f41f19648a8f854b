#include <gtest/gtest.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>
#include <trainer/hugging_face_files.h>

#include "parsed.h"

namespace fsdp {
namespace {

class InitOption : public testing::Test {
 protected:
  InitOption() { files_.write(folder_.path()); }
  std::string option() const { return "hf:" + folder_.path(); }

  TemporaryFolder folder_;
  HuggingFaceFiles files_ = files_of(*tiny_gpt2());
};

TEST_F(InitOption, the_option_init_takes_hf_and_a_folder) {
  EXPECT_EQ(parse({"--model", "gpt2-tiny", "--init", option()}).model.init, folder_.path());
  EXPECT_EQ(parse({"--model", "gpt2-tiny"}).model.init, "");
  EXPECT_EQ(refusal({"--init", "/none"}), "--init /none: takes hf:FOLDER");
  EXPECT_EQ(refusal({"--init", folder_.path()}),
            "--init " + folder_.path() + ": takes hf:FOLDER; give --init " + option());
  EXPECT_EQ(refusal({"--init", "hf:"}), "--init hf:: takes hf:FOLDER");
}

TEST_F(InitOption, an_init_folder_that_is_not_of_hugging_face_is_refused_with_the_reason) {
  const TemporaryFolder other;
  const std::string path = other.path(), file = other.write("notes", "");
  EXPECT_CONTAINS(refusal({"--init", "hf:" + path}), path + ": has no config.json; give a folder");
  EXPECT_CONTAINS(refusal({"--init", "hf:" + file}),
                  file + ": is a file; give the folder that has config.json");
  other.write("step-000003/checkpoint.json", "{}");
  for (const std::string& text : {"hf:" + path, path})
    EXPECT_EQ(refusal({"--init", text}),
              "--init " + text + ": " + path +
                  " is a checkpoint, not a Hugging Face folder; give --resume " + path +
                  ", or make a Hugging Face folder of it with ./fsdp export --format hf");
}

TEST_F(InitOption, an_init_folder_with_a_model_of_another_size_is_refused) {
  EXPECT_EQ(refusal({"--model", "gpt2-36m", "--init", option()}),
            "--init " + option() + ": config.json has vocab_size 61, and gpt2-36m has 20000");
  files_.config["n_layer"] = 2;
  files_.write(folder_.path());
  EXPECT_EQ(refusal({"--model", "gpt2-tiny", "--init", option()}),
            "--init " + option() + ": config.json has n_layer 2, and gpt2-tiny has 3");
  EXPECT_EQ(refusal({"--model", "small", "--init", option()}),
            "--init " + option() + ": config.json has model_type gpt2, and small is a llama");
}

TEST_F(InitOption, the_model_defaults_to_that_of_the_init_folder) {
  EXPECT_EQ(parse({"--init", option()}).model.name, "gpt2-tiny");
  EXPECT_EQ(
      refused({"--init", option(), "--seq", "19"}),
      "--init " + option() + ": config.json has vocab_size 61, and gpt2-tiny on text has 256");
  files_.config["vocab_size"] = 256;
  files_.at("transformer.wte.weight") = at::zeros({256, 35});
  files_.write(folder_.path());
  const std::string model = "gpt2:vocabulary=256,context=19,d_model=35,layers=3,heads=5,d_ff=121";
  EXPECT_EQ(parse({"--init", option(), "--seq", "19"}).model.name, model);
}

TEST_F(InitOption,
       train_prints_that_a_tokenizer_in_the_init_folder_has_no_effect_on_the_training_text) {
  files_.config["vocab_size"] = 256;
  files_.at("transformer.wte.weight") = at::zeros({256, 35});
  files_.write(folder_.path());
  folder_.write("tokenizer.json", "{}");
  const auto notes = [&](Arguments arguments) {
    arguments.insert(arguments.end(), {"--init", option(), "--seq", "19"});
    testing::internal::CaptureStderr();
    parsed(arguments);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_CONTAINS(notes({}), "the tokenizer.json in " + folder_.path() + " has no effect");
  EXPECT_EQ(notes({"--recipe", "published"}), "");
}

TEST_F(InitOption, an_init_folder_that_lacks_a_tensor_is_refused_before_any_rank_starts) {
  files_.remove("transformer.ln_f.bias");
  files_.write(folder_.path());
  EXPECT_EQ(refusal({"--model", "gpt2-tiny", "--init", option()}),
            "--init " + option() + ": " + folder_.path() +
                "/model.safetensors: has no tensor transformer.ln_f.bias");
}

}  // namespace
}  // namespace fsdp
