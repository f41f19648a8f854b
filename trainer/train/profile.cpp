#include <base/whole_file.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <train/profile.h>

#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

namespace fsdp {

namespace profiler = torch::profiler::impl;

Profile::Profile(c10::DeviceType device) : device_(device) {
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU};
  if (device == c10::kCUDA) activities.insert(profiler::ActivityType::CUDA);
  // Stops Kineto's warnings on machines without a GPU.
  setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
}

Profile::~Profile() {
  if (runs_) torch::autograd::profiler::disableProfiler();
}

void Profile::write(const std::string& path) {
  if (device_ != c10::kCPU) {
    const c10::impl::VirtualGuardImpl guard(device_);
    guard.synchronizeDevice(guard.getDevice().index());
  }
  runs_ = false;
  torch::autograd::profiler::disableProfiler()->save(path);
  std::error_code unknown;  // save() reports no failure, so check the file
  if (!std::filesystem::exists(path, unknown))
    throw std::runtime_error("--profile " + path + ": could not be written");
}

}  // namespace fsdp
