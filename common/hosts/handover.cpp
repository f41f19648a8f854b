#include <comm/call_rings.h>
#include <hosts/handover.h>
#include <launch/shared_region.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace fsdp {
namespace {

constexpr off_t kBegin = sizeof(int64_t);

std::optional<int64_t> steps_of(const OpenFile& file) {
  int64_t steps = 0;
  const bool is_there = pread(file.descriptor, &steps, sizeof steps, 0) == sizeof steps;
  return is_there && steps > 0 ? std::optional(steps - 1) : std::nullopt;
}

void empty(const OpenFile& file) {
  if (ftruncate(file.descriptor, 0) != 0)
    throw std::system_error(errno, std::generic_category(), "the state of a rank");
}

void rewind(const OpenFile& file) {
  lseek(file.descriptor, kBegin, SEEK_SET);
}

}  // namespace

Handover::Handover() : files_{memory_file("fsdp_state"), memory_file("fsdp_state")} {}

void Handover::save(int64_t steps, const std::function<void(int file)>& write) const {
  const OpenFile& file = files_[saved_steps().size()];
  empty(file);
  rewind(file);
  write(file.descriptor);
  ++steps;
  if (pwrite(file.descriptor, &steps, sizeof steps, 0) != sizeof steps)
    throw std::system_error(errno, std::generic_category(), "the state of a rank");
}

std::vector<int64_t> Handover::saved_steps() const {
  std::vector<int64_t> all;
  for (const OpenFile& file : files_)
    if (const auto steps = steps_of(file)) all.push_back(*steps);
  return all;
}

void Handover::select(int64_t steps) const {
  for (const OpenFile& file : files_)
    steps_of(file) == steps ? rewind(file) : empty(file);
}

std::optional<int64_t> Handover::steps() const {
  const auto all = saved_steps();
  return all.empty() ? std::nullopt : std::optional(all[0]);
}

int Handover::file() const {
  return (steps_of(files_[0]) ? files_[0] : files_[1]).descriptor;
}

void Handover::free() const {
  for (const OpenFile& file : files_)
    empty(file);
}

bool has_lost_a_rank(const RankContext& context) {
  const CallRings rings(context.shared->call_rings(), Group::world(context.world_size));
  return rings.lost(context.rank).has_value();
}

}  // namespace fsdp
