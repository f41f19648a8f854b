#include <plan/chart.h>
#include <plan/memory_bar.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace fsdp {
namespace {

constexpr double kHeight = 260, kLeft = 90, kTop = 20, kStep = 64, kRight = 150;
constexpr std::array<const char*, kMemoryClasses> kColours{
    "#5f6e80", "#2e7fc2", "#d9822b", "#e8b36a", "#7b5ea7", "#8a8f98", "#3f9c6b"};

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[300];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

class Chart {
 public:
  Chart(const std::vector<Bar>& bars, std::optional<int64_t> memory)
      : width_(kLeft + kStep * static_cast<double>(bars.size()) + kRight),
        most_(memory.value_or(1)) {
    for (const Bar& bar : bars)
      most_ = std::max(most_, bar.bytes.total);
    svg_ = formatted(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n",
        width_, kTop + kHeight + 50);
    svg_ +=
        "<style>text{font:12px sans-serif;fill:#222}line{stroke:#888}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n";
  }

  void scale() {
    for (const double part : {0.0, 0.5, 1.0}) {
      const auto bytes = std::llround(part * static_cast<double>(most_));
      line(bytes, "opacity=\".4\"");
      text(kLeft - 6, y_of(bytes) + 4, "end", bytes_text(bytes));
    }
  }
  void memory(int64_t bytes) {
    line(bytes, "stroke-dasharray=\"5 4\" stroke-width=\"2\"");
    text(width_ - kRight - 4, y_of(bytes) - 4, "end", "memory of a rank");
  }
  void bar(size_t index, const Bar& bar) {
    const double x = kLeft + kStep * static_cast<double>(index) + 10;
    int64_t below = 0;
    for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
      below += bar.bytes.by_class[cls];
      const double height = y_of(below - bar.bytes.by_class[cls]) - y_of(below);
      svg_ += formatted("<rect x=\"%.0f\" y=\"%.2f\" width=\"44\" height=\"%.2f\" fill=\"%s\"/>", x,
                        y_of(below), height, kColours[cls]);
    }
    text(x + 22, kTop + kHeight + 18, "middle", bar.label);
  }
  void legend() {
    for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
      const double y = kTop + 20 * static_cast<double>(kMemoryClasses - 1 - cls);
      svg_ += formatted("<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>",
                        width_ - kRight + 10, y, kColours[cls]);
      text(width_ - kRight + 28, y + 11, "start", name_of(static_cast<MemoryClass>(cls)));
    }
  }
  std::string end(const std::string& caption) {
    text(kLeft, kTop + kHeight + 40, "start", caption);
    return svg_ + "</svg>\n";
  }

 private:
  double y_of(int64_t bytes) const {
    return kTop + kHeight * (1 - static_cast<double>(bytes) / static_cast<double>(most_));
  }
  void line(int64_t bytes, const char* style) {
    svg_ += formatted("<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" %s/>", kLeft,
                      width_ - kRight, y_of(bytes), y_of(bytes), style);
  }
  void text(double x, double y, const char* anchor, const std::string& words) {
    svg_ += formatted("<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) + words +
            "</text>\n";
  }

  double width_;
  int64_t most_;
  std::string svg_;
};

}  // namespace

std::string chart_of(const std::vector<Bar>& bars, std::optional<int64_t> memory,
                     const std::string& caption) {
  Chart chart(bars, memory);
  chart.scale();
  for (size_t i = 0; i < bars.size(); ++i)
    chart.bar(i, bars[i]);
  if (memory) chart.memory(*memory);
  chart.legend();
  return chart.end(caption);
}

}  // namespace fsdp
