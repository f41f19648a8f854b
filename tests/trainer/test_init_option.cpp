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

TEST_F(InitOption, names_a_folder) {
  EXPECT_EQ(parse({"--model", "gpt2-tiny", "--init", option()}).init, folder_.path());
  EXPECT_EQ(parse({"--model", "gpt2-tiny"}).init, "");
  EXPECT_EQ(refusal({"--init", folder_.path()}), "--init " + folder_.path() + ": takes hf:FOLDER");
  EXPECT_EQ(refusal({"--init", "hf:"}), "--init hf:: takes hf:FOLDER");
}

TEST_F(InitOption, of_a_model_of_another_size_is_refused) {
  EXPECT_EQ(refusal({"--model", "gpt2-36m", "--init", option()}),
            "--init " + option() + ": config.json has vocab_size 61, and gpt2-36m has 20000");
  files_.config["n_layer"] = 2;
  files_.write(folder_.path());
  EXPECT_EQ(refusal({"--model", "gpt2-tiny", "--init", option()}),
            "--init " + option() + ": config.json has n_layer 2, and gpt2-tiny has 3");
  EXPECT_EQ(refusal({"--model", "small", "--init", option()}),
            "--init " + option() +
                ": small is no GPT-2; give --model gpt2-tiny, gpt2-36m, "
                "gpt2-124m, gpt2-355m, gpt2-774m, gpt2-1558m");
}

TEST_F(InitOption, with_a_wrong_file_is_refused_before_any_rank_starts) {
  files_.remove("transformer.ln_f.bias");
  files_.write(folder_.path());
  EXPECT_EQ(refusal({"--model", "gpt2-tiny", "--init", option()}),
            "--init " + option() + ": " + folder_.path() +
                "/model.safetensors: has no tensor transformer.ln_f.bias");
}

}  // namespace
}  // namespace fsdp
