#include <optim/exact_sum.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace fsdp {
namespace {

constexpr int kBase = 32;                  // each digit of an exact sum has 32 bits
constexpr int kLowestExponent = -2 * 149;  // exponent of the square of the smallest fp32 number
constexpr int kInfinite = 255;             // the exponent field of an fp32 infinity or NaN
constexpr int kFractionBits = 23;          // bits of an fp32 mantissa, without the leading one
constexpr int64_t kFraction = (int64_t{1} << kFractionBits) - 1;
// On the CPU, consecutive elements are added to different tables of bins, so that an addition
// seldom waits for the result of the addition before. A bin gets at most kCpuChunk / kBinTables =
// 2^14 squares below 2^48, so it stays below 2^62.
constexpr int64_t kCpuChunk = 1 << 16;
constexpr int kBinTables = 4;
// On a GPU, atomic additions to one bin wait for each other, so there are more tables.
constexpr int64_t kGpuChunk = 1 << 22;
constexpr int64_t kGpuTables = 64;

class Digits {
 public:
  // Adds the number value x 2^(shift + kLowestExponent) to the sum.
  void add(uint64_t value, int shift) {
    const auto wide = static_cast<UInt128>(value) << (shift % kBase);
    for (int i = 0; i < 3; ++i)
      digits_[shift / kBase + i] += static_cast<uint32_t>(wide >> (kBase * i));
  }
  // Carries what each digit has above its lowest kBase bits into the next digit. The last digit may
  // keep more than kBase bits.
  void carry() {
    for (size_t i = 0; i + 1 < kDigits; ++i) {
      digits_[i + 1] += digits_[i] >> kBase;
      digits_[i] = static_cast<uint32_t>(digits_[i]);
    }
  }
  uint64_t& operator[](size_t i) { return digits_[i]; }

 private:
  std::array<uint64_t, kDigits> digits_{};
};

// Returns the `shift` with which Digits::add() adds the square of a mantissa that has this exponent
// field. Numbers below 2^-126 (field 0) have the exponent of field 1.
int shift_of(int field) {
  return 2 * (std::max(field, 1) - 1);
}

at::Tensor as_tensor(Digits digits, at::Device device) {
  digits.carry();
  const at::Tensor tensor = at::empty({kDigits}, at::kDouble);
  for (size_t i = 0; i < kDigits; ++i)
    tensor.data_ptr<double>()[i] = static_cast<double>(digits[i]);
  return tensor.to(device);
}

at::Tensor infinity_or_nan(const at::Tensor& tensor) {
  const double value = tensor.isnan().any().item<bool>() ? std::numeric_limits<double>::quiet_NaN()
                                                         : std::numeric_limits<double>::infinity();
  return at::full({kDigits}, value, at::TensorOptions(at::kDouble).device(tensor.device()));
}

// Adds the squares of the elements to `digits`. Returns whether all elements are finite. The square
// of an element is the square of its mantissa times a power of two that depends only on the
// exponent field. So the squares of the mantissas are added as integers, in one bin for each
// exponent field.
bool add_squares(Digits& digits, const float* elements, int64_t numel) {
  std::array<std::array<uint64_t, 256>, kBinTables> bins{};
  for (int64_t i = 0; i < numel; ++i) {
    const auto bits = std::bit_cast<uint32_t>(elements[i]);
    const uint32_t field = bits >> kFractionBits & 255;
    const uint64_t mantissa = (bits & kFraction) | static_cast<uint32_t>(field != 0)
                                                       << kFractionBits;
    bins[i % kBinTables][field] += mantissa * mantissa;
  }
  bool finite = true;
  for (const auto& table : bins) {
    for (int field = 0; field < kInfinite; ++field)
      digits.add(table[field], shift_of(field));
    finite = finite && table[kInfinite] == 0;
  }
  return finite;
}

// Returns, for each exponent field, the sum of the squares of the mantissas with this field: [2,
// 256] on the CPU. Row 0 sums the lower 24 bits of the squares, row 1 their higher bits.
at::Tensor bins_of(const at::Tensor& elements) {
  const at::Tensor bits = elements.view(at::kInt).to(at::kLong);
  const at::Tensor field = bits.bitwise_right_shift(kFractionBits).bitwise_and_(255);
  const at::Tensor mantissa =
      bits.bitwise_and(kFraction).add_(field.ne(0).to(at::kLong), kFraction + 1);
  const at::Tensor squares = mantissa.square();
  const at::Tensor table = at::arange(elements.numel(), field.options()).remainder_(kGpuTables);
  const at::Tensor bin = field.add(table, 256);
  const at::Tensor bins = at::zeros({2, kGpuTables * 256}, field.options());
  bins[0].scatter_add_(0, bin, squares.bitwise_and(0xffffff));
  bins[1].scatter_add_(0, bin, squares.bitwise_right_shift(24));
  return bins.view({2, kGpuTables, 256}).sum(1).cpu();
}

}  // namespace

at::Tensor sum_of_squares(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return sum_of_squares_on_gpu(tensor);
  const at::Tensor elements = tensor.detach().to(at::kFloat).contiguous();
  const float* data = elements.data_ptr<float>();
  Digits digits;
  for (int64_t begin = 0; begin < elements.numel(); begin += kCpuChunk) {
    const int64_t numel = std::min(kCpuChunk, elements.numel() - begin);
    if (!add_squares(digits, data + begin, numel)) return infinity_or_nan(elements);
  }
  return as_tensor(digits, elements.device());
}

at::Tensor sum_of_squares_on_gpu(const at::Tensor& tensor) {
  const at::Tensor elements = tensor.detach().to(at::kFloat).flatten();
  Digits digits;
  for (const at::Tensor& chunk : elements.split(kGpuChunk)) {
    const at::Tensor bins = bins_of(chunk);
    const auto values = bins.accessor<int64_t, 2>();
    if (values[1][kInfinite] != 0) return infinity_or_nan(elements);
    for (int field = 0; field < kInfinite; ++field) {
      digits.add(static_cast<uint64_t>(values[0][field]), shift_of(field));
      digits.add(static_cast<uint64_t>(values[1][field]), shift_of(field) + 24);
    }
  }
  return as_tensor(digits, elements.device());
}

at::Tensor exact_sum_of(UInt128 whole, int exponent) {
  Digits digits;
  digits.add(static_cast<uint64_t>(whole), exponent - kLowestExponent);
  digits.add(static_cast<uint64_t>(whole >> 64), exponent - kLowestExponent + 64);
  return as_tensor(digits, at::kCPU);
}

double value_of_sum(const at::Tensor& exact_sum) {
  const at::Tensor tensor = exact_sum.cpu();
  const double* values = tensor.data_ptr<double>();
  if (!std::isfinite(values[0])) return values[0];
  Digits digits;
  for (size_t i = 0; i < kDigits; ++i)
    digits[i] = static_cast<uint64_t>(values[i]);
  digits.carry();
  size_t top = kDigits - 1;
  while (top > 2 && digits[top] == 0)
    --top;
  // The three leading digits have more bits than an fp64. Of the lower digits, the rounding depends
  // only on whether any is not zero, so the lowest bit of `leading` stands for them.
  auto leading = static_cast<UInt128>(digits[top]) << (2 * kBase) |
                 static_cast<UInt128>(digits[top - 1]) << kBase | digits[top - 2];
  for (size_t i = 0; i + 2 < top; ++i)
    leading |= static_cast<unsigned>(digits[i] != 0);
  return std::ldexp(static_cast<double>(leading),
                    kBase * static_cast<int>(top - 2) + kLowestExponent);
}

}  // namespace fsdp
