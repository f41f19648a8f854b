#include <base/text.h>
#include <command_line/command_line.h>
#include <plan/machines.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// The memory and the published peak speeds of a GPU; docs/plan.md names the sources.
struct Gpu {
  const char* name;
  int64_t memory;  // [GB] memory of the GPU
  // [Tflop/s] Peak speeds of dense matrix products: `narrow` in bf16, `wide` in fp32.
  double narrow, wide;
  double within;  // [GB/s] bandwidth of a GPU's links within its host, in one direction
  // [GB/s] Bandwidth of the network card of one GPU; 0: unknown, because hosts with this GPU have
  // no usual network.
  double between;
};

constexpr Gpu kGpus[] = {
    {"A100-40GB", 40, 312, 19.5, 300, 25}, {"A100-80GB", 80, 312, 19.5, 300, 25},
    {"H100-80GB", 80, 989, 67, 450, 50},   {"H200-141GB", 141, 989, 67, 450, 50},
    {"RTX3090-24GB", 24, 71, 35.6, 32, 0}, {"RTX4090-24GB", 24, 165, 82.6, 32, 0},
};

// The fractions of the published peaks that training reaches: kOfFlops for the matrix products of a
// model, kOfLinks for collectives.
constexpr double kOfFlops = 0.5, kOfLinks = 0.75;

Link link_of(std::chrono::nanoseconds latency, double gigabytes) {
  return {latency, kOfLinks * gigabytes * 1e9};
}

}  // namespace

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const Gpu& gpu : kGpus)
    names.emplace_back(gpu.name);
  return names;
}

KnownMachine parse_machine(const std::string& text) {
  const size_t x = text.find('x');
  const std::string name = x == std::string::npos ? "" : text.substr(x + 1);
  const auto* gpu = std::ranges::find(kGpus, name, &Gpu::name);
  if (gpu == std::end(kGpus)) {
    throw UsageError("--machine " + one_line(text) +
                     ": must be a number of GPUs and their name, such as 8xA100-80GB; known are " +
                     in_a_row(gpu_names(), "and"));
  }
  KnownMachine known{text, 0, gpu->memory * 1'000'000'000, {}};
  known.gpus = static_cast<int>(parse_number<int64_t>("--machine", text.substr(0, x), {1, 64}));
  Machine& machine = known.machine;
  machine.ranks_per_host = known.gpus;
  machine.within = link_of(5us, gpu->within);
  if (gpu->between > 0) machine.between = link_of(20us, gpu->between);
  machine.links_of_ring = known.gpus;
  machine.flops = kOfFlops * gpu->wide * 1e12;
  machine.flops_in_16_bits = kOfFlops * gpu->narrow * 1e12;
  return known;
}

std::string speeds_text(const Machine& machine) {
  char text[200];
  std::snprintf(text, sizeof text, "%.4g Tflop/s in bf16, %.4g in fp32; links %.4g GB/s",
                machine.flops_in_16_bits * 1e-12, machine.flops * 1e-12,
                machine.within->bytes_per_second * 1e-9);
  std::string line = text;
  if (!machine.between) return line;
  std::snprintf(text, sizeof text, ", between hosts %.4g",
                machine.between->bytes_per_second * 1e-9);
  return line + text;
}

}  // namespace fsdp
