#include <gtest/gtest.h>
#include <nn/models.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <train/checkpoints.h>

#include <common/expect_text.h>
#include <common/set_variables.h>
#include <common/temporary_folder.h>
#include <trainer/hugging_face_files.h>

#include "parsed.h"

namespace fsdp {
namespace {

nlohmann::ordered_json description_of(const TrainConfig& run) {
  return {{"format", "fsdp checkpoint"},
          {"version", kCheckpointVersion},
          {"step", 3},
          {"run", settings_of_run(run)}};
}

// Writes only the description (checkpoint.json) of a checkpoint of this run after step 3. Returns
// the folder of the checkpoint.
std::string saved_by(const TrainConfig& run, const TemporaryFolder& folder) {
  const std::string path = step_folder(folder.path(), 3);
  std::filesystem::create_directories(path);
  write_description(path, description_of(run), {});
  return path;
}

std::string saved(const TemporaryFolder& folder, const Arguments& arguments) {
  return saved_by(parse(arguments), folder);
}

TEST(CheckpointOption,
     resume_continues_after_the_latest_step_with_the_checkpoints_number_of_microbatches) {
  const TemporaryFolder folder;
  const std::string path = saved(folder, {"--world", "4"});
  for (const std::string& resume : {path, folder.path()}) {
    const TrainConfig config = parse({"--resume", resume, "--world", "2"});
    EXPECT_EQ(config.checkpoint.resume, path);
    EXPECT_EQ(config.checkpoint.first_step, 3);
    EXPECT_EQ(config.training.microbatches, 4);
  }
  EXPECT_EQ(
      refusal({"--resume", path, "--world", "3"}),
      "--world 3: the checkpoint has 4 microbatches (--microbatches), the same number for each rank; "
      "use a number of ranks that divides this number, or give other --microbatches");
}

TEST(CheckpointOption, a_checkpoint_takes_the_place_of_the_init_folder_of_an_earlier_start) {
  const TemporaryFolder hugging_face, run;
  files_of(*tiny_gpt2()).write(hugging_face.path());
  const std::string init = "hf:" + hugging_face.path();
  const Arguments automatic{"--init",   init,   "--checkpoint-dir", run.path(),
                            "--resume", "auto", "--model",          "gpt2-tiny"};
  EXPECT_EQ(parse(automatic).model.init, hugging_face.path());

  const std::string saved_folder = saved(run, {"--model", "gpt2-tiny"});
  EXPECT_EQ(parse(automatic).model.init, "");
  EXPECT_EQ(parse(automatic).checkpoint.resume, saved_folder);
  const std::string options = run.write("run.toml", "init = \"" + init + "\"\n");
  EXPECT_EQ(parse({"--config", options, "--resume", saved_folder}).model.init, "");
  EXPECT_EQ(refusal({"--init", init, "--resume", saved_folder}),
            "--init and --resume: give one of them; the checkpoint has the parameters");
}

TEST(CheckpointOption, the_error_of_resume_states_why_a_folder_has_no_checkpoint) {
  const TemporaryFolder folder;
  EXPECT_EQ(refusal({"--resume", folder.path() + "/rnu"}),
            "--resume " + folder.path() + "/rnu: no such folder");
  folder.write("config.json", "{}");
  EXPECT_EQ(refusal({"--resume", folder.path()}),
            "--resume " + folder.path() +
                ": is a Hugging Face folder, not a checkpoint; train and generate take it as "
                "--init hf:" +
                folder.path());
}

TEST(CheckpointOption, checkpoint_dir_refuses_a_hugging_face_folder) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  EXPECT_EQ(refusal({"--checkpoint-dir", folder.path()}),
            "--checkpoint-dir " + folder.path() +
                ": is a Hugging Face folder, which the checkpoints would hide from --init; give "
                "another folder");
}

TEST(CheckpointOption, the_error_of_resume_with_other_settings_names_the_file_of_saved_options) {
  const TemporaryFolder folder;
  const std::string path = saved(folder, {"--lr", "0.25"});
  const std::string reason =
      "--resume " + path + ": was trained with lr 0.25, and this run has 0.5";
  const Arguments other{"--resume", path, "--lr", "0.5"};
  EXPECT_EQ(refusal(other), reason);
  const std::string options = folder.write("run.toml", "lr = 0.25\n");
  EXPECT_EQ(refusal(other),
            reason + "; --config " + options + " gives the options of the saved run");
}

TEST(CheckpointOption, the_error_of_the_unknown_option_checkpoint_advises_the_right_options) {
  EXPECT_EQ(refusal({"--checkpoint", "run"}),
            "there is no option --checkpoint; --checkpoint-dir FOLDER saves checkpoints, and "
            "--resume FOLDER continues from one");
  EXPECT_EQ(refusal({"--checkpoint"}), refusal({"--checkpoint", "run"}));
}

TEST(CheckpointOption, resume_auto_continues_from_a_checkpoint_or_starts_a_run_if_there_is_none) {
  const TemporaryFolder folder;
  const Arguments arguments{"--resume", "auto", "--checkpoint-dir", folder.path()};
  EXPECT_EQ(parse(arguments).checkpoint.first_step, 0);
  saved(folder, {});
  EXPECT_EQ(parse(arguments).checkpoint.first_step, 3);
  EXPECT_EQ(refusal({"--resume", "auto"}), "--resume auto: needs --checkpoint-dir");
}

// The saved run had four ranks. After a host or a rank was lost, the launcher starts fewer ranks;
// it can also start more.
TEST(CheckpointOption, resume_uses_the_largest_number_of_ranks_that_divides_the_microbatches) {
  const TemporaryFolder folder;
  const std::string path = saved(folder, {"--world", "4"});
  for (const auto& [started, train] : {std::pair{"2", 2}, {"3", 2}, {"4", 4}, {"6", 4}}) {
    const SetVariables set({{"RANK", "0"},
                            {"WORLD_SIZE", started},
                            {"MASTER_ADDR", "127.0.0.1"},
                            {"MASTER_PORT", "29500"}});
    const TrainConfig config = parse({"--resume", path, "--mode", "fsdp"});
    EXPECT_EQ(config.ranks.world, train);
    EXPECT_EQ(config.training.microbatches, 4);
  }
}

TEST(CheckpointOption,
     resume_prefers_the_option_microbatches_to_the_checkpoints_number_and_prints_a_note) {
  const TemporaryFolder folder;
  const std::string path = saved(folder, {"--world", "4"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse({"--resume", path, "--world", "3", "--microbatches", "3"}).training.microbatches,
            3);
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "fsdp train: --microbatches is 3 here, and 4 in the checkpoint: from here on, sums are rounded "
      "differently\n");
}

TEST(CheckpointOption, resume_refuses_a_run_whose_settings_differ_from_the_checkpoint) {
  const TemporaryFolder folder;
  const std::string path = saved(folder, {"--lr", "0.5", "--clip", "1"});
  const Arguments same{"--resume", path, "--lr", "0.5", "--clip", "1"};
  EXPECT_EQ(refusal(same), "accepted");
  const auto refused = [&](const Arguments& others) {
    Arguments arguments = same;
    arguments.insert(arguments.end(), others.begin(), others.end());
    const std::string text = refusal(arguments);
    const std::string start = "--resume " + path + ": was trained with ";
    EXPECT_TRUE(text.starts_with(start)) << text;
    return text.substr(std::min(text.size(), start.size()));
  };
  EXPECT_EQ(refused({"--seed", "7"}), "seed 42, and this run has 7");
  EXPECT_EQ(refused({"--seq", "5"}).substr(0, 4), "seq ");
  EXPECT_EQ(refused({"--optimizer", "sgd"}), "optimizer \"adamw\", and this run has \"sgd\"");
  EXPECT_EQ(refused({"--model", "gpt2-tiny"}), "model \"small\", and this run has \"gpt2-tiny\"");
  EXPECT_EQ(refused({"--norm-type", "inf"}), "norm_type 2.0, and this run has \"inf\"");
  EXPECT_EQ(refused({"--no-decay", "bias"}), "no_decay \"\", and this run has \"bias\"");
  EXPECT_EQ(refusal({"--resume", path, "--lr", "0.5"}),
            "--resume " + path + ": was trained with clip 1.0, and this run has none");
  EXPECT_EQ(refusal({"--resume", path, "--lr", "0.25", "--clip", "1"}),
            "--resume " + path + ": was trained with lr 0.5, and this run has 0.25");
}

TEST(CheckpointOption, the_model_of_a_resumed_run_defaults_to_that_of_the_checkpoint) {
  const TemporaryFolder folder;
  const std::string model = "llama:context=9,vocabulary=256,d_model=8,layers=1,heads=2,d_ff=8";
  const std::string path = saved(folder, {"--model", model});
  EXPECT_EQ(parse({"--resume", path}).model.name, model_name(model_shape(model)));
  EXPECT_EQ(refusal({"--resume", path, "--model", model}), "accepted");
}

// The hashes of the checkpoint match the changed checkpoint.json, as if a user had changed both. So
// the mistake can be found only by a check of the settings.
TEST(CheckpointOption, resume_refuses_a_checkpoint_with_impossible_settings_and_names_it) {
  const TemporaryFolder folder;
  const std::string path = saved(folder, {});
  const auto said = [&](const std::function<void(nlohmann::ordered_json&)>& change) {
    nlohmann::ordered_json json = description_of(parse({}));
    change(json);
    write_description(path, json, {});
    const std::string text = refusal({"--resume", path, "--steps", "9"});
    EXPECT_TRUE(text.starts_with("--resume " + path)) << text;
    return text.substr(std::min(text.size(), path.size() + 9));
  };
  const std::string file = "/checkpoint.json: ";
  const auto no_number = [&](const std::string& text) {
    return file + "has " + text + " where a number of steps, bytes or elements goes";
  };
  EXPECT_EQ(said([](auto& json) { json["step"] = -1; }), no_number("-1"));
  EXPECT_EQ(said([](auto& json) { json["step"] = 1e30; }), no_number("1e+30"));
  EXPECT_EQ(said([](auto& json) { json["run"]["parts"] = 0; }), ": has 0 microbatches");
  EXPECT_EQ(said([](auto& json) { json["run"]["parts"] = int64_t{1} << 32; }),
            ": has 4294967296 microbatches");
  EXPECT_EQ(said([](auto& json) { json["run"]["parts"] = "2"; }), no_number("\"2\""));
  EXPECT_EQ(said([](auto& json) { json["run"]["model"] = 7; }), file + "model is no text");
  EXPECT_EQ(said([](auto& json) { json["run"]["model"] = "x:"; }),
            ": model 'x:': x is not a family of models; known families: gpt2, llama");
  EXPECT_EQ(said([](auto& json) {
              json["run"]["loss_scaler"] = {{"scale", 3}};
            }),
            ": loss scale 3: takes a power of two from 1 to 16777216");
  EXPECT_EQ(said([](auto& json) { json["run"] = nullptr; }),
            ": was trained with model none, and this run has \"small\"");
}

TEST(CheckpointOption, resume_refuses_a_run_whose_training_text_has_changed) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text", std::string(200, 'x'));
  const std::string path = saved_by(parsed({"--text", text}), folder);
  EXPECT_EQ(parsed({"--text", text, "--resume", path}).checkpoint.first_step, 3);
  folder.write("text", std::string(200, 'y'));
  EXPECT_EQ(error_of<UsageError>([&] {
              parsed({"--text", text, "--resume", path});
            }),
            "--resume " + path +
                ": was trained with another text, or it has changed since; give the same --text");
}

TEST(CheckpointOption, resume_is_refused_if_no_step_is_left_to_train) {
  const TemporaryFolder folder;
  const std::string path = saved(folder, {});
  EXPECT_EQ(refusal({"--resume", path, "--steps", "3"}),
            "--steps 3: the checkpoint has 3 of them already; give a larger number");
  EXPECT_EQ(refusal({"--resume", path, "--steps", "4"}), "accepted");
}

TEST(CheckpointOption, a_new_run_does_not_overwrite_existing_checkpoints) {
  const TemporaryFolder folder;
  const std::string path = saved(folder, {});
  EXPECT_EQ(refusal({"--checkpoint-dir", folder.path()}),
            "--checkpoint-dir " + folder.path() +
                ": has step 3 already; continue from it (--resume " + folder.path() +
                "), or give another folder");
  EXPECT_EQ(refusal({"--checkpoint-dir", folder.path(), "--resume", path}), "accepted");
  EXPECT_EQ(refusal({"--checkpoint-dir", folder.path() + "/new"}), "accepted");
}

TEST(CheckpointOption, resume_refuses_a_checkpoint_dir_with_checkpoints_of_another_run) {
  const TemporaryFolder folder, other;
  saved(folder, {});
  const std::string path = saved(other, {});
  EXPECT_EQ(refusal({"--checkpoint-dir", folder.path(), "--resume", path}),
            "--checkpoint-dir " + folder.path() +
                ": has step 3 of another run than --resume; give another folder");
}

TEST(CheckpointOption, an_unwritable_checkpoint_dir_is_refused_before_training) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "x"), below = file + "/run";
  EXPECT_EQ(refusal({"--checkpoint-dir", file}), "--checkpoint-dir " + file + ": Not a directory");
  EXPECT_EQ(refusal({"--checkpoint-dir", below}),
            "--checkpoint-dir " + below + ": Not a directory");
  EXPECT_EQ(refusal({"--checkpoint-dir", "/proc/fsdp/run"}),
            "--checkpoint-dir /proc/fsdp/run: No such file or directory");
  const std::string fresh = folder.path() + "/a/b/";
  EXPECT_EQ(refusal({"--checkpoint-dir", fresh}), "accepted");
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/a"))
      << "the check must remove the folder that it made";
}

// With --lr-decay, the learning rate of each step depends on --steps.
TEST(CheckpointOption, resume_with_other_steps_and_lr_decay_prints_that_learning_rates_differ) {
  const TemporaryFolder folder;
  const Arguments run{"--lr", "1", "--lr-decay", "linear", "--steps"};
  const auto with = [&](const std::string& steps) {
    Arguments arguments = run;
    arguments.push_back(steps);
    return arguments;
  };
  const std::string path = saved(folder, with("5"));
  const auto note = [&](const std::string& steps) {
    Arguments arguments = with(steps);
    arguments.insert(arguments.end(), {"--resume", path});
    testing::internal::CaptureStderr();
    parse(arguments);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(note("5"), "");
  EXPECT_EQ(note("11"),
            "fsdp train: --steps 11 beside 5 of the checkpoint: --lr-decay linear now ends there, "
            "so step 4 has the rate 0.7, not 0.25; the run has other bits than one with these "
            "--steps from the beginning\n");
  EXPECT_CONTAINS(note("4"), "step 4 has the rate 0, not 0.25");
}

TEST(CheckpointOption,
     resume_with_other_steps_prints_nothing_if_no_learning_rate_depends_on_steps) {
  const TemporaryFolder folder;
  const std::string path = saved(folder, {"--warmup", "2", "--steps", "5"});
  testing::internal::CaptureStderr();
  parse({"--warmup", "2", "--steps", "9", "--resume", path});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(CheckpointOption, options_for_saving_checkpoints_are_refused_without_checkpoint_dir) {
  for (const Arguments& option : std::vector<Arguments>{{"--save-every", "2"},
                                                        {"--keep", "2"},
                                                        {"--checkpoint-format", "full"},
                                                        {"--save-async"}})
    EXPECT_EQ(refusal(option), option[0] + ": needs --checkpoint-dir");
  EXPECT_EQ(refusal({"--checkpoint-dir", "x", "--save-every", "0"}),
            "--save-every must be at least 1, not 0");
}

TEST(CheckpointOption, save_async_is_refused_together_with_offload_or_flops) {
  const Arguments async{"--checkpoint-dir", "x", "--save-async"};
  const auto with = [&](const Arguments& others) {
    Arguments arguments = async;
    arguments.insert(arguments.end(), others.begin(), others.end());
    return refusal(arguments);
  };
  EXPECT_TRUE(parse(async).checkpoint.async);
  EXPECT_FALSE(parse({"--checkpoint-dir", "x"}).checkpoint.async);
  EXPECT_EQ(with({"--offload", "optimizer", "--offload-dir", "/"}),
            "--save-async: would copy into memory what --offload optimizer keeps out of it; leave "
            "out one of the two");
  EXPECT_CONTAINS(with({"--link", "1ms,1GB/s", "--flops", "1e9"}),
                  "--save-async: lets the speed of the disk decide on collectives, and --flops");
}

TEST(CheckpointOption, a_run_prints_that_save_async_has_no_effect_if_it_saves_only_at_its_end) {
  const auto note = [](const std::string& every) {
    testing::internal::CaptureStderr();
    parse({"--steps", "6", "--checkpoint-dir", "x", "--save-async", "--save-every", every});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(note("6"),
            "fsdp train: --save-async has no effect with one checkpoint, after the last step "
            "(--save-every)\n");
  EXPECT_EQ(note("5"), "");
}

}  // namespace
}  // namespace fsdp
