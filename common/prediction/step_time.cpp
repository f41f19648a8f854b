#include <prediction/step_time.h>

#include <algorithm>
#include <optional>

namespace fsdp {
namespace {

class Step {
 public:
  Step(const std::vector<UnitTime>& units, int limit)
      : units_(units), window_(limit - 1), arrival_(units.size()) {}

  int64_t time() const { return now_; }

  void forward(bool reshard_after_forward) {
    const int last = static_cast<int>(units_.size()) - 1;
    unshard(0);
    for (int next = 1; next <= std::min(window_, last); ++next)
      gather(next);
    for (int i = 1; i <= last; ++i) {
      unshard(i);
      for (int next = i + 1; next <= std::min(i + window_, last); ++next)
        gather(next);
      now_ += unit(i).forward;
      if (reshard_after_forward) arrival(i).reset();
    }
    now_ += unit(0).forward;
  }

  void backward() {
    now_ += unit(0).backward;
    for (int i = static_cast<int>(units_.size()) - 1; i >= 1; --i) {
      unshard(i);
      for (int next = i - 1; next >= std::max(i - window_, 1); --next)
        gather(next);
      now_ += unit(i).backward;
      reduce(i);
    }
    reduce(0);
    now_ = std::max(now_, reduced_);
  }

 private:
  const UnitTime& unit(int i) const { return units_[static_cast<size_t>(i)]; }
  std::optional<int64_t>& arrival(int i) { return arrival_[static_cast<size_t>(i)]; }

  // When what is issued now will be done.
  int64_t issue(int64_t took) { return free_ = std::max(free_, now_) + took; }

  void gather(int i) {
    if (!arrival(i)) arrival(i) = issue(unit(i).all_gather);
  }

  void unshard(int i) {
    gather(i);
    now_ = std::max(now_, *arrival(i));
  }

  void reduce(int i) {
    if (unit(i).reduce_scatter == 0) return;
    now_ = std::max(now_, reduced_);
    reduced_ = issue(unit(i).reduce_scatter);
  }

  const std::vector<UnitTime>& units_;
  int window_;                                   // units issued ahead of the running one
  std::vector<std::optional<int64_t>> arrival_;  // when what was issued is gathered
  int64_t now_{};                                // of the rank
  int64_t free_{};                               // when the link has moved all that was issued
  int64_t reduced_{};                            // when the last reduce-scatter is done
};

}  // namespace

int64_t predict_step_time(const std::vector<UnitTime>& units, int limit,
                          bool reshard_after_forward) {
  Step step(units, limit);
  step.forward(reshard_after_forward);
  step.backward();
  return step.time();
}

}  // namespace fsdp
