#pragma once

// Declares the names of LibTorch that trainer/prediction uses, so that trainer/prediction compiles
// to WebAssembly without LibTorch. Dtypes are plain enums. Functions of tensors are declared but
// not defined, because no code that runs calls them.
#include <cstddef>
#include <cstdint>

namespace c10 {

class Allocator;
enum class DeviceType : int8_t { CPU, CUDA };
constexpr auto kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;

enum class ScalarType : int8_t { Byte, Half = 5, Float, Double, BFloat16 = 15 };
constexpr size_t elementSize(ScalarType dtype) {
  if (dtype == ScalarType::Byte) return 1;
  return dtype == ScalarType::Float ? 4 : dtype == ScalarType::Double ? 8 : 2;
}
const char* toString(ScalarType dtype);

}  // namespace c10

namespace at {

using c10::ScalarType;
constexpr auto kHalf = ScalarType::Half, kFloat = ScalarType::Float, kDouble = ScalarType::Double,
               kBFloat16 = ScalarType::BFloat16;

struct NoGradGuard {
  NoGradGuard();
};
struct Tensor {
  bool defined() const;
  void add_(const Tensor& other) const;
};

}  // namespace at

namespace torch::nn {

class Module;

}  // namespace torch::nn
