#include <comm/link.h>
#include <reproduce/described.h>

#include <algorithm>

namespace fsdp {
namespace {

std::string millions(double value) {
  return fixed(value / 1e6, 1);
}

std::string ms(double seconds) {
  return fixed(seconds * 1e3, 1);
}

double peak(const TrainResult& run) {
  const std::vector<double> ranks = run.last.at("peak_bytes");
  return *std::ranges::max_element(ranks);
}

// The most bytes of a class in any phase.
double most(const TrainResult& run, const std::string& cls) {
  double most = 0;
  for (const auto& phase : run.last.at("live_bytes"))
    most = std::max(most, phase.at(cls).at("measured").get<double>());
  return most;
}

// "all_gather 9, reduce_scatter 5": a number of each operation of a step.
template <typename Number>
std::string of_operations(const TrainResult& run, int digits, Number number) {
  std::string text;
  for (const auto& [name, operation] : run.steps.at(1).at("operations").items())
    text += (text.empty() ? "" : ", ") + name + " " + fixed(number(operation), digits);
  return text;
}

double number(const nlohmann::json& json, const char* key) {
  return json.at(key);
}

// Sizes of the padded units, in bytes.
struct Sizes {
  double all{}, root{}, largest{};
};

Sizes sizes_of(const TrainResult& run) {
  Sizes sizes;
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

std::string after(const TrainOptions& options, const std::string& name) {
  return *std::next(std::ranges::find(options, name));
}

// What the collectives of a step take on the link, one after another. [s]
double on_link(const TrainResult& run, const TrainOptions& options) {
  const Link link = parse_link(after(options, "--link"));
  const double hops = std::stod(after(options, "--world")) - 1;
  double seconds = 0;
  for (const auto& [name, operation] : run.steps.at(1).at("operations").items())
    if (name == "all_gather" || name == "reduce_scatter")
      seconds +=
          number(operation, "bytes") / link.bytes_per_second +
          number(operation, "calls") * hops * std::chrono::duration<double>(link.latency).count();
  return seconds;
}

std::string solved_at(const TrainResult& run) {
  for (const Fields& step : run.steps)
    if (step.contains("held_out") && step.at("held_out").at("accuracy") == 1)
      return std::to_string(step.at("step").get<int64_t>() + 1);
  return "never";
}

}  // namespace

std::string cell_of(const std::string& column, const Train& train, const TrainOptions& options,
                    const TrainResult& run, const TrainResult& first) {
  const auto step = [](const TrainResult& of) { return of.seconds_of("step"); };
  // The same run with another value of an option.
  const auto with = [&](const std::string& name, const std::string& value) -> const TrainResult& {
    TrainOptions others = options;
    const auto at = std::ranges::find(others, name);
    if (at != others.end()) others.erase(at, at + 2);
    others.insert(others.end(), {name, value});
    return train(others);
  };
  const auto off = [&]() -> const TrainResult& { return with("--prefetch", "off"); };
  const auto computing = [&](const TrainResult& of) { return step(of) - of.seconds_of("waiting"); };
  if (column == "tokens/s") return fixed(run.tokens_per_s(), 0);
  if (column == "speedup") return fixed(run.tokens_per_s() / first.tokens_per_s(), 2);
  if (column == "ms a step") return ms(step(run));
  if (column == "ms a call")
    return of_operations(run, 2, [](const auto& operation) {
      return 1e3 * number(operation, "seconds_waiting") / number(operation, "calls");
    });
  if (column == "calls")
    return of_operations(run, 0, [](const auto& operation) { return number(operation, "calls"); });
  if (column == "predicted")
    return run.last.contains("step_seconds") ? ms(number(run.last.at("step_seconds"), "predicted"))
                                             : "-";
  if (column == "off") return ms(step(off()));
  if (column == "off / on")
    return relative_difference(computing(off()), computing(run)) > 0.1
               ? "busy"
               : fixed(step(off()) / step(run), 2);
  if (column == "C") return ms(computing(run));
  if (column == "N") return ms(on_link(run, options));
  if (column == "bound") {
    const double c = computing(run), n = on_link(run, options);
    return fixed((c + n) / std::max(c, n), 2);
  }
  if (column == "DDP") return millions(peak(with("--mode", "ddp")));
  if (column == "saves" || column == "needs") {
    const Sizes sizes = sizes_of(run);
    return millions(column == "needs" ? 2 * sizes.root + 4 * sizes.largest
                                      : sizes.all * (4 - 4 / number(run.last, "world")));
  }
  if (column == "mismatches") return run.last.at("live_bytes_mismatches").dump();
  if (column == "peak") return millions(peak(run));
  if (column == "params") return run.last.at("params").dump();
  if (column == "16 N / W")
    return millions(16 * number(run.last, "params") / number(run.last, "world"));
  if (column == "units") return std::to_string(run.last.at("units").size());
  if (column == "sha256") return run.hash().substr(0, 8);
  if (column == "state") return run.last.at("state_sha256").get<std::string>().substr(0, 8);
  if (column == "first loss") return fixed(run.loss(0), 4);
  if (column == "loss") return fixed(run.loss(run.steps.size() - 1), 4);
  if (column == "solved at") return solved_at(run);
  if (column == "s of the run") return fixed(run.seconds, 1);
  if (column == "files" || column == "MB" || column == "bytes / N") {
    if (!run.last.contains("checkpoint_files")) return "-";
    if (column == "files") return run.last.at("checkpoint_files").dump();
    const double bytes = number(run.last, "checkpoint_bytes");
    return column == "MB" ? millions(bytes) : fixed(bytes / number(run.last, "params"), 2);
  }
  if (column == "all_gather" || column == "reduce_scatter" || column == "all_reduce")
    return millions(run.last.at("comm_bytes").value(column, 0.0));
  if (run.steps.at(1).at("seconds").contains(column)) return fixed(1e3 * run.seconds_of(column), 2);
  return millions(most(run, column));
}

}  // namespace fsdp
