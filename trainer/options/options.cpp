#include <base/text.h>
#include <comm/communicator_options.h>
#include <command_line/command_line.h>
#include <command_line/commit.h>
#include <command_line/config_file.h>
#include <command_line/usage.h>
#include <cuda/gpu.h>
#include <data/dataset.h>
#include <launch/launched.h>
#include <nn/models.h>
#include <optim/shard_layout.h>
#include <options/groups.h>
#include <options/options.h>
#include <state/checkpoint.h>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <regex>

namespace fsdp {
namespace {

constexpr double kMaxReal = std::numeric_limits<double>::max();
const char* const kNormsAndBiases = R"(bias$|(^|\.)(ln|norm)[^.]*\.weight$)";

// What the options say before defaults that depend on one another are filled in.
struct Given {
  DataOptions data;
  std::string optimizer{"adamw"}, device{"cpu"}, stack{"reference"}, fault, link, compare, strategy;
  double timeout{300};
  std::optional<int64_t> steps, batch, seq, parts, shard_size;
  std::optional<double> lr;
};

void on_off(CLI::App& app, const std::string& name, bool& value, const std::string& help) {
  const std::vector<std::pair<std::string, bool>> words{{"on", true}, {"off", false}};
  add_choice(app, name, value, words, help + " (default " + (value ? "on" : "off") + ")");
}

void add_task_options(CLI::App& app, TrainConfig& config, Given& given, int max_world) {
  add_choice(app, "--mode", config.mode, {"single", "ddp", "fsdp"},
             "single (one process that plays the ranks in turn), ddp (a replica on each rank) or "
             "fsdp (default single)");
  add_number(app, "--world", config.world, NumberRange<int64_t>{1, max_world},
             "number of ranks (default 1, or torchrun's)");
  add_model_option(app, config);
  add_data_options(app, config, given.data);
  add_number(app, "--steps", given.steps, NumberRange<int64_t>{0, kMany},
             "optimizer steps; 0 computes the loss only (default 100)");
  add_number(app, "--batch", given.batch, NumberRange<int64_t>{1, kMany},
             "rows of the global batch, which is cut into equal parts");
  add_number(app, "--parts", given.parts, NumberRange<int64_t>{1, kMaxParts},
             "parts of the batch; ranks compute theirs one after another (default: one for each)");
  add_choice(app, "--accumulate", config.accumulate, {"each", "last"},
             "reduce the gradients of each part, or add up those of a rank's parts and reduce "
             "them after its last (default each)");
  add_number(app, "--seq", given.seq, NumberRange<int64_t>{1, kMany}, "tokens in a row");
  add_number(app, "--seed", config.seed,
             NumberRange<uint64_t>{0, std::numeric_limits<uint64_t>::max()},
             "seed of the parameters and the batches (default 42)");
  add_choice(app, "--stack", given.stack, {"reference", "mine"}, "whose tasks: reference or mine");
}

void add_optimizer_options(CLI::App& app, TrainConfig& config, Given& given) {
  add_number(app, "--lr", given.lr, positive_up_to(kMaxReal), "learning rate");
  add_number(app, "--warmup", config.warmup, NumberRange<int64_t>{0, kMany},
             "steps over which the rate grows to --lr (default 0)");
  add_choice(app, "--lr-decay", config.lr_decay, {"cosine", "linear"},
             "how the rate then falls until the last step: cosine or linear (default: it "
             "stays)");
  add_number(app, "--min-lr", config.min_lr, NumberRange<double>{0, kMaxReal},
             "rate of the last step, with --lr-decay (default 0)");
  add_choice(app, "--optimizer", given.optimizer, {"adamw", "sgd"}, "adamw or sgd (default adamw)");
  add_number(app, "--weight-decay", config.optimizer.weight_decay, NumberRange<double>{0, kMaxReal},
             "weight decay (default 0.01)");
  add_number(app, "--clip", config.clip, positive_up_to(kMaxReal),
             "largest norm of all gradients together (default: none)");
  const auto take_norm_type = [&config](const std::string& text) {
    config.norm_type = text == "inf" ? std::numeric_limits<double>::infinity()
                                     : parse_number("--norm-type", text, positive_up_to(kMaxReal));
  };
  app.add_option_function<std::string>("--norm-type", take_norm_type,
                                       "p of the p-norm by which --clip goes (default 2)")
      ->type_name("NUMBER|inf");
  on_off(app, "--step-in-backward", config.step_in_backward,
         "update each unit as soon as its gradient is reduced, and free that");
  app.add_option("--no-decay", config.no_decay,
                 "parameters without weight decay: a regular expression, or usual: norms and "
                 "biases");
  app.add_flag("--allow-nan", config.allow_nan,
               "go on when a loss or the norm of the gradients is not finite");
}

// A number of units, or all. Target: int, or a std::optional of one.
template <typename Target>
void add_limit(CLI::App& app, const std::string& name, Target& target, const std::string& help) {
  const auto take = [&target, name](const std::string& text) {
    target =
        text == "all" ? kAllUnits : static_cast<int>(parse_number<int64_t>(name, text, {1, 1000}));
  };
  app.add_option_function<std::string>(name, take, help)->type_name("INT|all");
}

void add_checkpoint_activations(CLI::App& app, TrainConfig& config) {
  const std::string name = "--checkpoint-activations";
  const auto take = [&config, name](const std::string& text) {
    const bool number = text.starts_with("every:");
    if (!number && text != "none" && text != "all")
      throw UsageError(name + " must be none, all or every:K, not " + text);
    const int64_t every =
        number ? parse_number<int64_t>(name + " every:", text.substr(6), {1, 1000}) : text == "all";
    config.checkpoint_every = static_cast<int>(every);
  };
  app.add_option_function<std::string>(name, take,
                                       "blocks that keep their input alone, and compute the rest "
                                       "again in backward (default none)")
      ->type_name("none|all|every:K");
}

void add_fsdp_options(CLI::App& app, TrainConfig& config, Given& given, int max_world) {
  app.add_option(
      "--wrap", config.wrap,
      "units: block, none, type:NAME, size:BYTES, or auto: blocks, and what is as large as "
      "one, such as an embedding (default auto)");
  app.add_flag("--print-units", config.print_units,
               "print the units that --mode fsdp makes on --world ranks, and train nothing");
  const auto take_strategy_name = [&given](const std::string& text) {
    const auto names = strategy_names();
    given.strategy = names[index_of_word("--strategy", text, names, /*ignore_case=*/true)];
  };
  app.add_option_function<std::string>(
         "--strategy", take_strategy_name,
         "full (shard over all ranks), grad_op (keep units gathered from forward to "
         "backward), no (a replica on each rank) or hybrid (a replica on every --shard-size "
         "neighbours); PyTorch's names too (default full)")
      ->type_name("NAME");
  add_number(app, "--shard-size", given.shard_size, NumberRange<int64_t>{1, max_world},
             "ranks of a replica in --strategy hybrid; they divide the ranks (default: under a "
             "launcher the ranks of a host)");
  on_off(app, "--reshard-after-forward", config.reshard_after_forward, "free units after forward");
  on_off(app, "--prefetch", config.prefetch, "gather units ahead of their use");
  add_limit(app, "--limit", config.limit,
            "units gathered at a time, the running one counted (default 2; 1: no prefetch)");
  add_limit(app, "--forward-limit", config.forward_limit, "the same in forward (default --limit)");
  add_limit(app, "--backward-limit", config.backward_limit,
            "the same in backward (default --limit)");
  on_off(app, "--meta-init", config.meta_init,
         "build the model without memory, then materialize it shard by shard");
}

void add_run_options(CLI::App& app, TrainConfig& config, Given& given) {
  add_number(app, "--threads", config.threads, NumberRange<int64_t>{1, 1024},
             "threads of each rank (default 1)");
  add_number(app, "--timeout", given.timeout, NumberRange<double>{0.001, 1e6},
             "seconds to wait for another rank (default 300)");
  add_choice(app, "--backend", config.comm.backend, {"auto", "shm", "gloo", "nccl"},
             "auto, shm, gloo or nccl (default auto)");
  add_choice(app, "--device", given.device, {"cpu", "cuda"}, "cpu or cuda (default cpu)");
  add_choice(app, "--compare", given.compare, {"always", "first", "never"},
             "which collectives are compared between ranks: always, first (iteration) or never "
             "(default always; first over nccl)");
  app.add_option("--link", given.link,
                 "simulate a network of this latency and bandwidth: 200us,1GB/s");
  on_off(app, "--poison", config.poison, "NaN in freed and unwritten memory and in padding");
  app.add_option("--fault", given.fault, "break a rank: rank=R,skip=N or rank=R,kill=N at call N");
  app.add_flag("--print-settings", config.print_settings,
               "check all options and files, print the settings on which the numbers of the run "
               "depend as one line of JSON, and train nothing");
  add_lost_host_option(app, config);
  add_output_options(app, config);
}

Fault parse_fault(const std::string& text, int world) {
  static const std::regex kPattern("rank=([0-9]{1,4}),(skip|kill)=([0-9]{1,9})");
  std::smatch match;
  if (!std::regex_match(text, match, kPattern)) {
    throw UsageError("--fault " + text + ": takes rank=R,skip=N or rank=R,kill=N");
  }
  const int rank = std::stoi(match[1]);
  if (rank >= world) {
    throw UsageError("--fault " + text + ": there are " + std::to_string(world) + " ranks");
  }
  return {match[2] == "skip" ? Fault::Kind::skip : Fault::Kind::kill, rank,
          static_cast<uint64_t>(std::stoull(match[3]))};
}

// In a process that a launcher has started as a rank, the number of ranks is the launcher's.
void take_world_from_environment(TrainConfig& config, bool world_given) {
  const auto self = started_rank();
  if (!self) return;
  const std::string started =
      self->launcher + " has started " + std::to_string(self->world_size) + " ranks";
  if (config.mode == "single") {
    if (self->world_size > 1) throw UsageError("--mode single is one process; " + started);
    return;
  }
  if (self->world_size > kMaxTrainingWorld) {
    throw UsageError("at most " + std::to_string(kMaxTrainingWorld) + " ranks can train; " +
                     started);
  }
  if (world_given && config.world != self->world_size) {
    throw UsageError("--world " + std::to_string(config.world) + ": leave it out; " + started);
  }
  if (!config.trace.empty()) {
    throw UsageError("--trace: needs ranks that one process forks; " + started);
  }
  config.world = self->world_size;
}

// Of the ranks that a launcher has started, as many train as share out the parts: after the loss of
// a host the others go on with the parts, and so with the bits, that the run began with.
void leave_ranks_spare(TrainConfig& config, std::optional<int64_t> parts) {
  if (!parts || config.mode == "single" || !started_rank()) return;
  while (*parts % config.world != 0)
    --config.world;
}

void fill_in_defaults(TrainConfig& config, const Given& given) {
  const ModelInfo& info = model_info(config.model);
  config.parts = static_cast<int>(given.parts.value_or(config.world));
  const Defaults defaults = defaults_of(config, given.data);
  config.steps = given.steps.value_or(defaults.steps);
  config.batch = given.batch.value_or(defaults.batch);
  config.seq = given.seq.value_or(defaults.seq);
  config.optimizer.lr = given.lr.value_or(defaults.lr);
  if (given.optimizer == "sgd") {
    config.optimizer.kind = OptimizerOptions::Kind::sgd;
    if (!given.lr) config.optimizer.lr = 0.1;
  }
  if (config.no_decay == "usual") config.no_decay = kNormsAndBiases;
  if (config.warmup > 0 || !config.lr_decay.empty())
    config.optimizer.lr_factor = std::make_shared<double>(1);
  config.comm.timeout = std::chrono::milliseconds(static_cast<int64_t>(given.timeout * 1000));
  if (given.device == "cuda") config.comm.device = c10::kCUDA;
  if (given.compare == "always") config.comm.compare = Compare::always;
  if (given.compare == "first") config.comm.compare = Compare::first_iteration;
  if (given.compare == "never") config.comm.compare = Compare::never;
  if (!given.link.empty()) config.comm.link = parse_link(given.link);
  if (!given.fault.empty()) config.comm.fault = parse_fault(given.fault, config.world);
  if (config.data == "text" && config.text.empty()) {
    config.text = repository_text(source_root());
  }
  if (config.seq > info.context) {
    throw UsageError("--seq " + std::to_string(config.seq) + ": " + config.model +
                     " takes at most " + std::to_string(info.context) + " tokens");
  }
}

// For a plan, which takes nothing of a checkpoint but the model, if --model does not say it.
void resume_for_a_plan(TrainConfig& config) {
  if (config.resume != "auto") return;
  const bool saved = !config.checkpoint_dir.empty() && latest_step(config.checkpoint_dir);
  config.resume = saved ? config.checkpoint_dir : "";
}

// For a plan: what the run would write, resume or suffer.
void leave_out_files(TrainConfig& config, std::string& fault) {
  config.json = config.log = config.trace = config.profile = "";
  config.hashes = config.capture = "";
  config.checkpoint_dir = config.resume = "";
  config.first_step = 0;
  config.on_lost_host = "end";
  fault.clear();
}

// What needs all gradients at a time.
void check_step_in_backward(const TrainConfig& config) {
  if (!config.step_in_backward || config.mode != "fsdp") return;
  const std::string option = "--step-in-backward on: ";
  if (config.clip)
    throw UsageError(option + "the norm of --clip is that of all gradients together");
  if (config.loss_scaler)
    throw UsageError(option +
                     "with a loss scale (--loss-scale, fp16) a step may have to be left "
                     "out, which shows when all gradients are there");
  if (config.parts > config.world)
    throw UsageError(option + "takes one part for each rank; give --parts " +
                     std::to_string(config.world));
}

// Before a fork: the ranks will use the GPUs, this process must not.
void check_cuda(const TrainConfig& config) {
  if (!gpu::built()) {
    throw UsageError(
        "--device cuda: this build has no CUDA; build with ./fsdp build --preset cuda");
  }
  if (config.poison) throw UsageError("--poison: takes --device cpu");
  if (config.comm.link) throw UsageError("--link: takes --device cpu");
  const int gpus = gpu::count_gpus_before_fork();
  if (gpus == 0) throw UsageError("--device cuda: needs a GPU; this machine has none");
  const int ranks = config.mode == "single" ? 1 : config.world;
  if (config.comm.backend == "nccl" && ranks > gpus) {
    throw UsageError("--backend nccl: needs " + std::to_string(ranks) +
                     " GPUs, one for each rank; this machine has " + std::to_string(gpus));
  }
}

void check_compare(const TrainConfig& config) {
  if (config.comm.compare.value_or(Compare::always) == Compare::always) return;
  if (config.comm.link) throw UsageError("--compare: with --link calls are compared always");
  const bool shm = config.comm.backend == "shm" || config.comm.backend == "auto";
  if (shm && !config.on_cuda() && !started_rank()) {
    throw UsageError("--compare: over shm calls are compared always; give --backend gloo");
  }
}

void check(const TrainConfig& config) {
  if (config.on_cuda()) {
    check_cuda(config);
  } else if (config.comm.backend == "nccl") {
    throw UsageError("--backend nccl: needs --device cuda");
  }
  check_compare(config);
  if (config.comm.link && config.mode == "fsdp" && config.shards() < config.world) {
    throw UsageError("--link: simulates one replica; give --strategy full or grad_op");
  }
  if (config.parts % config.world != 0)
    throw UsageError("--parts " + std::to_string(config.parts) + ": must be a multiple of the " +
                     std::to_string(config.world) + " ranks (--world)");
  if (config.batch % config.parts != 0) {
    throw UsageError("--batch " + std::to_string(config.batch) + ": can't be cut into " +
                     std::to_string(config.parts) + " equal parts (" +
                     (config.parts > config.world ? "--parts)" : "--world)"));
  }
  if (config.min_lr > 0 && (config.lr_decay.empty() || config.min_lr > config.optimizer.lr))
    throw UsageError("--min-lr: needs --lr-decay, and at most the rate of --lr");
  for (const std::string& path : config.text) {
    std::error_code unknown;
    if (!std::filesystem::exists(path, unknown) && !unknown)
      throw UsageError("--text " + path + ": no such file");
    const bool folder = std::filesystem::is_directory(path, unknown);
    if (!unknown && !folder && !std::filesystem::is_regular_file(path, unknown))
      throw UsageError("--text " + path + ": is neither a plain file nor a folder");
    if (access(path.c_str(), folder ? R_OK | X_OK : R_OK) != 0)
      throw UsageError("--text " + path + ": " + std::strerror(errno));
  }
  check_tokens(config);
  check_pattern("--no-decay", config.no_decay);
}

// What was given and has no effect: one line for each, of one process.
void name_unused_options(const CLI::App& app, const TrainConfig& config) {
  const auto self = started_rank();
  if (config.print_units || (self && self->rank > 0)) return;
  const auto unused = [&](const std::string& option, const std::string& beside) {
    if (app.count(option) == 0) return;
    std::fprintf(stderr, "fsdp train: %s has no effect with %s\n", option.c_str(), beside.c_str());
  };
  const std::string mode = "--mode " + config.mode;
  if (config.mode != "fsdp") {
    for (const char* option :
         {"--wrap", "--reshard-after-forward", "--prefetch", "--limit", "--forward-limit",
          "--backward-limit", "--meta-init", "--step-in-backward"})
      unused(option, mode);
    if (config.mode == "ddp") {
      for (const char* option : {"--strategy", "--shard-size"})
        unused(option, mode);
    }
  } else if (config.prefetch && config.limit_in_forward() == 1 && config.limit_in_backward() == 1) {
    unused("--prefetch", "--limit 1");
  }
  if (config.mode == "single") unused("--backend", mode);
  if (config.parts == config.world) unused("--accumulate", "one part for each rank (--parts)");
  if (config.warmup >= config.steps && config.steps > 0)
    std::fprintf(stderr,
                 "fsdp train: --warmup %lld: --lr %.4g is not reached in %s; the last one has the "
                 "rate %.4g\n",
                 static_cast<long long>(config.warmup), config.optimizer.lr,
                 counted(config.steps, "step").c_str(), config.lr_of(config.steps - 1));
}

}  // namespace

TrainConfig parse_train_options(const std::vector<std::string>& arguments,
                                const std::function<void(const std::string&)>& check_wrap,
                                const TrainParsing& parsing) {
  TrainConfig config;
  Given given;
  CLI::App app("Trains a model on W ranks and reports what it cost.", "fsdp train");
  app.get_formatter()->column_width(34);
  add_config_option(app);
  const auto in_group = [&app](const char* group) {
    for (CLI::Option* option : app.get_options())
      if (option->get_group() == "Options") option->group(group);
  };
  in_group("Help and settings");
  add_task_options(app, config, given, parsing.max_world);
  add_init_option(app, config);
  in_group("What is trained, and on what");
  add_optimizer_options(app, config, given);
  in_group("Optimizer");
  add_fsdp_options(app, config, given, parsing.max_world);
  in_group("Units and sharding");
  add_checkpoint_activations(app, config);
  PrecisionOptions precision;
  precision.add(app, config);
  add_offload_options(app, config);
  in_group("Memory and precision");
  add_checkpoint_options(app, config);
  in_group("Checkpoints");
  add_run_options(app, config, given);
  in_group("Ranks, reports and faults");
  const auto settle = [&] {
    check_wrap(config.wrap);
    if (!parsing.only_plans) take_world_from_environment(config, app.count("--world") > 0);
    if (parsing.only_plans) {
      resume_for_a_plan(config);
    } else {
      find_checkpoint_to_resume(config, given.parts);
    }
    if (!parsing.only_plans) leave_ranks_spare(config, given.parts);
    take_data(app, config, given.data);
    take_model(app, config);
    if (parsing.only_plans) leave_out_files(config, given.fault);
    fill_in_defaults(config, given);
    take_strategy(config, given.strategy, given.shard_size,
                  app.count("--reshard-after-forward") > 0);
    if (app.count("--norm-type") > 0 && !config.clip) throw UsageError("--norm-type: needs --clip");
    precision.settle(app, config);
    check_step_in_backward(config);
    check(config);
    check_init_option(config);
    check_offload_options(app, config, parsing.only_plans);
    if (parsing.only_plans) return;
    check_lost_host_option(config);
    check_checkpoint_options(app, config);
    check_output_options(app, config);
  };
  parse_command_line(app, arguments, settle, parsing.other_options);
  if (parsing.only_plans) return config;
  name_unused_options(app, config);
  // Not the files of this run's own results: a run that is repeated would write over them.
  config.given = config_of(app, {"log", "json", "trace", "profile", "hashes", "capture", "record"});
  return config;
}

}  // namespace fsdp
