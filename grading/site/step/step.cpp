// Predicts a training step: for a model and a run, which a line of settings describes, prints every
// action of the step. docs/step.html calls this code as WebAssembly.
#include <prediction/prediction.h>
#include <prediction/step_time.h>

#include <algorithm>
#include <array>
#include <sstream>

namespace fsdp {
namespace {

constexpr int64_t kSeq = 127;  // number of tokens in each row of a batch, as for the model `small`

// The settings of a run, and of the model that it trains: a TransformerLM with heads of size 64 and
// d_ff = 4 d_model. The page checks the values before it calls this code.
struct Settings {
  int world{};
  int64_t layers{}, width{}, vocabulary{}, rows{};  // rows: number of rows in a rank's batch
  std::string wrap;                                 // value of --wrap: auto, block or none
  std::string mode;                                 // value of --mode: fsdp, ddp or single
  int shard_size{};                                 // number of ranks that shard one replica
  int limit{};
  bool reshard{};
  // Values of --param-dtype and --reduce-dtype: fp32 or bf16.
  std::string param_dtype, reduce_dtype;
  int recompute_every{};  // n: checkpoints activations of every n-th block; 0: none
  int64_t latency{};      // [ns] latency of the simulated link
  int64_t bandwidth{};    // [MB/s] bandwidth of the simulated link
  int64_t speed{};        // [Gflop/s] computing speed of a rank

  explicit Settings(const std::string& line) {
    std::istringstream(line) >> world >> layers >> width >> vocabulary >> rows >> wrap >> mode >>
        shard_size >> limit >> reshard >> param_dtype >> reduce_dtype >> recompute_every >>
        latency >> bandwidth >> speed;
  }
};

at::ScalarType dtype_of(const std::string& name) {
  return name == "bf16" ? at::kBFloat16 : at::kFloat;
}

Mode mode_of(const std::string& word) {
  if (word == to_string(Mode::single)) return Mode::single;
  return word == to_string(Mode::ddp) ? Mode::ddp : Mode::fsdp;
}

TrainConfig config_of(const Settings& settings) {
  TrainConfig config;
  config.ranks.mode = mode_of(settings.mode);
  config.ranks.world = settings.world;
  config.training.steps = 3;
  config.sharding.wrap = settings.wrap;
  config.sharding.shard_size = settings.shard_size == settings.world ? 0 : settings.shard_size;
  config.sharding.reshard_after_forward = settings.reshard;
  config.sharding.limit = settings.limit;
  config.precision.policy = {dtype_of(settings.param_dtype), dtype_of(settings.reduce_dtype)};
  return config;
}

// Returns the value as text, in the largest of `units` in which it is a whole number. Each unit is
// 1000 times the one before it.
std::string in_units(int64_t value, std::initializer_list<const char*> units) {
  const char* const* unit = units.begin();
  for (; value > 0 && value % 1000 == 0 && unit + 1 != units.end(); ++unit)
    value /= 1000;
  return std::to_string(value) + *unit;
}

// Returns the ./fsdp plan command for the run that `settings` describes.
std::string command_of(const Settings& settings) {
  std::ostringstream out;
  out << "./fsdp plan --mode " << settings.mode << " --world " << settings.world
      << " --model llama:vocabulary=" << settings.vocabulary
      << ",context=256,d_model=" << settings.width << ",layers=" << settings.layers
      << ",heads=" << settings.width / 64 << ",d_ff=" << 4 * settings.width << " --rows "
      << settings.rows << " --seq " << kSeq << " --wrap " << settings.wrap;
  if (settings.shard_size != settings.world)
    out << " --strategy hybrid --shard-size " << settings.shard_size;
  out << " --limit " << settings.limit << " --reshard-after-forward "
      << (settings.reshard ? "on" : "off") << " --param-dtype " << settings.param_dtype
      << " --reduce-dtype " << settings.reduce_dtype;
  if (settings.recompute_every > 0)
    out << " --checkpoint-activations every:" << settings.recompute_every;
  out << " --backend shm --gpus-per-host " << settings.world << " --intra "
      << in_units(settings.latency, {"ns", "us", "ms"}) << ','
      << in_units(settings.bandwidth, {"MB/s", "GB/s"}) << " --flops "
      << in_units(settings.speed, {"G", "T"});
  return out.str();
}

struct Parameter {
  std::string name;
  int64_t numel;
  int layer{-1};  // index of the parameter's block, from 0; -1: it is in no block
  // [flops] of the matrix products with this parameter, of all rows of a rank. output_proj also
  // counts the products of queries, keys and values in the block's attention. If the block is
  // checkpointed, the backward of w3 also counts the block's second forward.
  int64_t forward{}, backward{};
};

// Returns the model's parameters in the order of their registration, each with the number of
// floating-point operations of its matrix products in forward and in backward.
std::vector<Parameter> parameters_of(const Settings& settings) {
  const int64_t d = settings.width, tokens = settings.rows * kSeq;
  // [flops] of the product Q K^T in the attention of one block, for all rows of a rank. The product
  // of the scores and V needs as many.
  const int64_t scores = 2 * tokens * kSeq * d;
  std::vector<Parameter> all;
  const auto matrix = [&](const std::string& name, int64_t numel, int layer = -1) {
    all.push_back({name + ".weight", numel, layer, 2 * tokens * numel, 4 * tokens * numel});
  };
  all.push_back({"token_embeddings.weight", settings.vocabulary * d});
  for (int layer = 0; layer < settings.layers; ++layer) {
    const std::string block = "layers." + std::to_string(layer) + ".";
    const size_t first = all.size();
    for (const char* name : {"q_proj", "k_proj", "v_proj", "output_proj"})
      matrix(block + "attn." + name, d * d, layer);
    all.back().forward += 2 * scores;
    all.back().backward += 5 * scores;
    for (const char* name : {"w1", "w2", "w3"})
      matrix(block + "ffn." + name, 4 * d * d, layer);
    int64_t again = 0;
    const int every = settings.recompute_every;
    if (every > 0 && (layer + 1) % every == 0)
      for (size_t i = first; i < all.size(); ++i)
        again += all[i].forward;
    all.back().backward += again;
    all.push_back({block + "ln1.weight", d, layer});
    all.push_back({block + "ln2.weight", d, layer});
  }
  all.push_back({"ln_final.weight", d});
  matrix("lm_head", settings.vocabulary * d);
  return all;
}

// Returns the name of the unit that a parameter belongs to. With --wrap block, the units are the
// blocks and the root; with none, only the root; with auto, also each other module that has at
// least as many parameters as a block.
std::string unit_of(const Settings& settings, const Parameter& parameter) {
  if (settings.wrap == "none") return "root";
  if (parameter.layer >= 0) return "layers." + std::to_string(parameter.layer);
  const int64_t block = 2 * settings.width * (8 * settings.width + 1);
  if (settings.wrap == "block" || parameter.numel < block) return "root";
  return parameter.name.substr(0, parameter.name.find('.'));
}

ShardLayout layout_of(const Settings& settings, const std::vector<Parameter>& parameters) {
  ShardLayout layout;
  layout.world_size = settings.shard_size;
  layout.units.push_back({"root", 0, /*root=*/true, /*trainable=*/true});
  for (const Parameter& parameter : parameters) {
    const std::string name = unit_of(settings, parameter);
    if (name != "root" && name != layout.units.back().name)
      layout.units.push_back({name, 0, /*root=*/false, /*trainable=*/true});
    const size_t unit = name == "root" ? 0 : layout.units.size() - 1;
    if (name == "token_embeddings") layout.no_unshard_in_backward.insert(unit);
    int64_t& end = layout.units[unit].padded_numel;
    layout.parameters.push_back({parameter.name, unit, end, parameter.numel, /*trainable=*/true});
    end = round_up(end + parameter.numel, kAlignment);
  }
  for (auto& unit : layout.units)
    unit.padded_numel = round_up(unit.padded_numel, kAlignment * layout.world_size);
  return layout;
}

// Returns how many units, without the root's, come before ln_final in forward. ln_final is the
// first module that reads parameters of the root unit in backward. With --wrap none, this function
// returns nothing, because then the root unit has all parameters and stays unsharded until backward
// ends (strategies/root_readers.h).
std::optional<size_t> units_before_readers(const Settings& settings, const ShardLayout& layout) {
  if (settings.wrap == "none") return {};
  const bool has_head = layout.units.back().name == "lm_head";
  return layout.units.size() - 1 - (has_head ? 1 : 0);
}

// Returns how long each unit computes in forward and in backward, in ns.
std::vector<UnitTime> times_of(const Settings& settings, const ShardLayout& layout,
                               const std::vector<Parameter>& parameters) {
  const auto time = [&](int64_t flops) {
    return static_cast<int64_t>(static_cast<double>(flops) / static_cast<double>(settings.speed));
  };
  std::vector<UnitTime> units(layout.units.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    units[layout.parameters[i].unit].forward += parameters[i].forward;
    units[layout.parameters[i].unit].backward += parameters[i].backward;
  }
  for (UnitTime& unit : units)
    unit = {time(unit.forward), time(unit.backward)};
  return units;
}

int64_t number(const std::optional<size_t>& unit) {
  return unit ? static_cast<int64_t>(*unit) : -1;
}

// Writes the name and the fields of an action of the schedule, such as "compute 3". describe()
// writes the times of the action and the live bytes after it before these words, in the same line.
struct Words {
  std::ostream& out;
  void operator()(const Schedule::Enter& entered) { out << "enter " << to_string(entered.phase); }
  void operator()(const Schedule::Allocate& block) {
    out << "allocate " << number(block.unit) << ' ' << to_string(block.cls) << ' ' << block.bytes;
  }
  void operator()(const Schedule::Compute& part) { out << "compute " << number(part.unit); }
  void operator()(const Schedule::Issue& call) {
    out << "issue " << number(call.unit) << ' ' << to_string(call.operation) << ' '
        << call.bytes_received() << ' ' << call.ranks << ' ' << call.stride << ' '
        << (call.label.empty() ? "-" : call.label);
  }
  void operator()(const Schedule::Wait& wait) { out << "wait " << wait.action; }
};

std::string describe(const std::string& line) {
  const Settings settings(line);
  const TrainConfig config = config_of(settings);
  const std::vector<Parameter> parameters = parameters_of(settings);
  const ShardLayout layout = layout_of(settings, parameters);
  const auto times = times_of(settings, layout, parameters);
  const ModelTraces traces =
      chain_of(config, layout, times, units_before_readers(settings, layout));
  const Schedule step = schedule(config, layout, /*rank=*/0, /*first=*/false, traces);
  const CallTime link = over(
      {std::chrono::nanoseconds(settings.latency), static_cast<double>(settings.bandwidth) * 1e6});
  const PredictedMemory memory = predict_memory(step, "shm");
  const StepTime time = predict_step_time(step, link);
  int64_t flops = 0;
  for (const Parameter& parameter : parameters)
    flops += parameter.forward + parameter.backward;
  std::ostringstream out;
  out << "command " << command_of(settings) << '\n';
  for (const auto& unit : layout.units)
    out << "unit " << unit.name << ' ' << unit.padded_numel << '\n';
  out << "peak " << memory.peak.bytes.total << ' ' << to_string(memory.peak.phase) << ' '
      << number(memory.peak.unit) << '\n';
  for (size_t phase = 0; phase < kPhases; ++phase)
    for (size_t cls = 0; cls < kMemoryClasses; ++cls)
      if (memory.bytes[phase][cls])
        out << "most " << to_string(static_cast<Phase>(phase)) << ' '
            << to_string(static_cast<MemoryClass>(cls)) << ' ' << *memory.bytes[phase][cls] << '\n';
  for (const auto& [what, bytes] : predict_comm_bytes(step))
    out << "received " << what << ' ' << bytes << '\n';
  out << "flops " << flops << '\n';
  out << "time " << time.computing << ' ' << time.waiting << '\n';
  const auto live = predict_live_bytes(step, "shm");
  const auto spans = predict_spans(step, link);
  for (size_t i = 0; i < step.actions.size(); ++i) {
    out << "action " << spans[i].begin << ' ' << spans[i].end << ' ';
    for (size_t cls = 0; cls < kMemoryClasses; ++cls)
      out << live[i].by_class[cls] << ' ';
    std::visit(Words{out}, step.actions[i]);
    out << '\n';
  }
  return out.str();
}

}  // namespace
}  // namespace fsdp

// How the page calls this code: it writes a line of settings, ended by a zero byte, to the address
// that line_of_settings() returns; then it calls described() and reads the text at the returned
// address up to a zero byte.
extern "C" char* line_of_settings() {
  static std::array<char, 512> line;
  return line.data();
}
extern "C" const char* described() {
  static std::string text;
  text = fsdp::describe(line_of_settings());
  return text.c_str();
}
