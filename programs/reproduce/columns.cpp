#include <comm/link.h>
#include <reproduce/columns.h>
#include <reproduce/number_text.h>
#include <reproduce/option_text.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

namespace fsdp {
namespace {

std::string millions(double value) {
  return fixed(value / 1e6, 1);
}

std::string ms(double seconds) {
  return fixed(seconds * 1e3, 1);
}

double number(const nlohmann::json& json, const char* key) {
  return json.at(key);
}

// [bytes] Returns the peak memory of the rank whose peak is highest.
double peak(const TrainResult& run) {
  const std::vector<double> ranks = run.last.at("peak_bytes");
  return *std::ranges::max_element(ranks);
}

// [bytes] Returns the largest peak of the memory class `cls` that rank 0 measured in a phase of the
// run.
double most(const TrainResult& run, const std::string& cls) {
  double most = 0;
  for (const auto& phase : run.last.at("live_bytes"))
    most = std::max(most, phase.at(cls).at("measured").get<double>());
  return most;
}

// Returns a text with a number for each collective operation of the run's second step: "all_gather
// 9, reduce_scatter 5". The function `number` returns the number of an operation; the text shows it
// with `digits` decimals.
template <typename Number>
std::string of_operations(const TrainResult& run, int digits, Number number) {
  std::string text;
  for (const auto& [name, operation] : run.steps.at(1).at("operations").items())
    text += (text.empty() ? "" : ", ") + name + " " + fixed(number(operation), digits);
  return text;
}

// [bytes] Sizes of whole units in fp32, with padding: the sum over all units, the root unit, and
// the largest of the other units.
struct UnitSizes {
  double all{}, root{}, largest{};
};

UnitSizes unit_sizes(const TrainResult& run) {
  UnitSizes sizes;
  for (const auto& unit : run.last.at("units")) {
    const double bytes = 4 * number(unit, "padded");
    sizes.all += bytes;
    if (unit.at("root"))
      sizes.root = bytes;
    else
      sizes.largest = std::max(sizes.largest, bytes);
  }
  return sizes;
}

// [s] Returns how long the all-gathers and reduce-scatters of the run's second step would take, one
// after another, on the simulated link of --link.
double seconds_on_link(const RunOfLine& run) {
  const Link link = parse_link(value_of(run.options, "--link"));
  const double hops = std::stod(value_of(run.options, "--world")) - 1;
  double seconds = 0;
  for (const auto& [name, operation] : run.result.steps.at(1).at("operations").items())
    if (name == "all_gather" || name == "reduce_scatter")
      seconds +=
          number(operation, "bytes") / link.bytes_per_second +
          number(operation, "calls") * hops * std::chrono::duration<double>(link.latency).count();
  return seconds;
}

// [s] Returns how long the rank computes in a step: the time of the step minus the time in which
// the rank waits for collectives.
double computing(const TrainResult& run) {
  return run.seconds_of("step") - run.seconds_of("waiting");
}

// Runs train with the options of `run`, but with `value` as the value of `option`. Returns the
// result.
const TrainResult& run_with(const RunOfLine& run, const std::string& option,
                            const std::string& value) {
  TrainOptions options = run.options;
  const auto at = std::ranges::find(options, option);
  if (at != options.end()) options.erase(at, at + 2);
  options.insert(options.end(), {option, value});
  return run.train(options);
}

const TrainResult& without_prefetch(const RunOfLine& run) {
  return run_with(run, "--prefetch", "off");
}

std::string off_by_on(const RunOfLine& run) {
  const TrainResult& off = without_prefetch(run);
  const bool is_disturbed = relative_difference(computing(off), computing(run.result)) > 0.1;
  return is_disturbed ? "busy" : fixed(off.seconds_of("step") / run.result.seconds_of("step"), 2);
}

std::string bound_of_prefetch(const RunOfLine& run) {
  const double c = computing(run.result), n = seconds_on_link(run);
  return fixed((c + n) / std::max(c, n), 2);
}

// Returns the number of the first step after which the model predicts all held-out data right,
// counted from 1; "never" if the run has no such step.
std::string solved_at(const RunOfLine& run) {
  for (const Fields& step : run.result.steps)
    if (step.contains("held_out") && step.at("held_out").at("accuracy") == 1)
      return std::to_string(step.at("step").get<int64_t>() + 1);
  return "never";
}

std::string predicted_step(const RunOfLine& run) {
  const Fields& last = run.result.last;
  return last.contains("step_seconds") ? ms(number(last.at("step_seconds"), "predicted")) : "-";
}

// Returns the cell for a column about the checkpoint: text(last line of the run's JSON), or "-" if
// the run has saved no checkpoint.
template <typename Text>
std::string of_checkpoint(const RunOfLine& run, Text text) {
  const Fields& last = run.result.last;
  return last.contains("checkpoint_files") ? text(last) : "-";
}

using Column = std::function<std::string(const RunOfLine&)>;
using Columns = std::map<std::string, Column>;

void add_times(Columns& columns) {
  columns["tokens/s"] = [](const auto& run) { return fixed(run.result.tokens_per_s(), 0); };
  columns["speedup"] = [](const auto& run) {
    return fixed(run.result.tokens_per_s() / run.first.tokens_per_s(), 2);
  };
  columns["ms a step"] = [](const auto& run) { return ms(run.result.seconds_of("step")); };
  columns["predicted"] = predicted_step;
  for (const std::string part : {"computing", "waiting", "data", "optimizer"})
    columns[part] = [part](const auto& run) { return fixed(1e3 * run.result.seconds_of(part), 2); };
  columns["ms a call"] = [](const auto& run) {
    return of_operations(run.result, 2, [](const auto& operation) {
      return 1e3 * number(operation, "seconds_waiting") / number(operation, "calls");
    });
  };
  columns["s of the run"] = [](const auto& run) { return fixed(run.result.seconds, 1); };
}

void add_prefetch(Columns& columns) {
  columns["off"] = [](const auto& run) { return ms(without_prefetch(run).seconds_of("step")); };
  columns["off / on"] = off_by_on;
  columns["C"] = [](const auto& run) { return ms(computing(run.result)); };
  columns["N"] = [](const auto& run) { return ms(seconds_on_link(run)); };
  columns["bound"] = bound_of_prefetch;
}

void add_memory(Columns& columns) {
  columns["peak"] = [](const auto& run) { return millions(peak(run.result)); };
  columns["DDP"] = [](const auto& run) { return millions(peak(run_with(run, "--mode", "ddp"))); };
  columns["saves"] = [](const auto& run) {
    return millions(unit_sizes(run.result).all * (4 - 4 / number(run.result.last, "world")));
  };
  columns["needs"] = [](const auto& run) {
    const UnitSizes sizes = unit_sizes(run.result);
    return millions(2 * sizes.root + 4 * sizes.largest);
  };
  columns["mismatches"] = [](const auto& run) {
    return run.result.last.at("live_bytes_mismatches").dump();
  };
  for (const std::string cls :
       {"shards", "sharded_gradients", "optimizer_state", "gathered", "gradients", "other"})
    columns[cls] = [cls](const auto& run) { return millions(most(run.result, cls)); };
}

void add_traffic(Columns& columns) {
  columns["calls"] = [](const auto& run) {
    return of_operations(run.result, 0,
                         [](const auto& operation) { return number(operation, "calls"); });
  };
  for (const std::string operation : {"all_gather", "reduce_scatter", "all_reduce"})
    columns[operation] = [operation](const auto& run) {
      return millions(run.result.last.at("comm_bytes").value(operation, 0.0));
    };
}

void add_results(Columns& columns) {
  columns["first loss"] = [](const auto& run) { return fixed(run.result.loss(0), 4); };
  columns["loss"] = [](const auto& run) {
    return fixed(run.result.loss(run.result.steps.size() - 1), 4);
  };
  columns["solved at"] = solved_at;
  columns["sha256"] = [](const auto& run) { return run.result.hash().substr(0, 8); };
  columns["state"] = [](const auto& run) {
    return run.result.last.at("state_sha256").template get<std::string>().substr(0, 8);
  };
}

void add_sizes(Columns& columns) {
  columns["params"] = [](const auto& run) { return run.result.last.at("params").dump(); };
  columns["16 N / W"] = [](const auto& run) {
    const Fields& last = run.result.last;
    return millions(16 * number(last, "params") / number(last, "world"));
  };
  columns["units"] = [](const auto& run) {
    return std::to_string(run.result.last.at("units").size());
  };
  columns["files"] = [](const auto& run) {
    return of_checkpoint(run,
                         [](const Fields& last) { return last.at("checkpoint_files").dump(); });
  };
  columns["MB"] = [](const auto& run) {
    return of_checkpoint(
        run, [](const Fields& last) { return millions(number(last, "checkpoint_bytes")); });
  };
  columns["bytes / N"] = [](const auto& run) {
    return of_checkpoint(run, [](const Fields& last) {
      return fixed(number(last, "checkpoint_bytes") / number(last, "params"), 2);
    });
  };
}

const Columns& columns() {
  static const Columns all = [] {
    Columns made;
    for (const auto add :
         {add_times, add_prefetch, add_memory, add_traffic, add_results, add_sizes})
      add(made);
    return made;
  }();
  return all;
}

}  // namespace

std::vector<std::string> names_of_columns() {
  std::vector<std::string> names;
  for (const auto& [name, column] : columns())
    names.push_back(name);
  return names;
}

std::string cell_of(const std::string& column, const RunOfLine& run) {
  return columns().at(column)(run);
}

}  // namespace fsdp
