#include <base/whole_file.h>
#include <comm/recording.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

namespace files = std::filesystem;

// The head of an entry in a recording. In the file it is followed by the bytes of the tensor if the
// entry is an `output`, by the text of the failure if it is the `end`, and by nothing if it is a
// `call`.
struct Record {
  // The mark at the head of each entry. It depends on sizeof(Call), so that a recording of a build
  // with another Call is refused.
  static constexpr uint32_t kMark = 0xf5d90000 + sizeof(Call);
  enum class Kind : uint32_t { call, output, end };

  uint32_t mark{kMark};
  Kind kind{};
  uint64_t number{};  // number of the call among all calls of the rank
  uint64_t bits{};    // in a `call` entry: hash of the bytes that this rank sends
  uint64_t bytes{};   // number of bytes that follow this Record in the file: the entry's content
  Call call{};
};

std::string_view content_bytes(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

uint64_t bits_given(const Collective& collective, int rank) {
  const Call& call = collective.call;
  const bool gives = call.operation != Operation::broadcast || call.root == rank;
  return gives ? std::hash<std::string_view>{}(content_bytes(collective.input)) : 0;
}

class Written {
 public:
  Written(const std::string& path, int rank)
      : path_(path), rank_(rank), file_(path, std::ios::binary) {}

  // Writes an entry for a call that this rank issues. Returns the number of the call.
  uint64_t issue(const Collective& collective) {
    write({.kind = Record::Kind::call,
           .number = calls_,
           .bits = bits_given(collective, rank_),
           .call = collective.call});
    return calls_++;
  }
  void receive(uint64_t number, const Collective& collective) {
    write({.kind = Record::Kind::output, .number = number}, content_bytes(collective.output));
  }
  void end(const std::string& failure) { write({.kind = Record::Kind::end}, failure); }

 private:
  void write(Record record, std::string_view bytes = {}) {
    record.bytes = bytes.size();
    file_.write(reinterpret_cast<const char*>(&record), sizeof record);
    (file_ << bytes).flush();
    if (!file_) throw std::system_error(errno, std::generic_category(), "recording " + path_);
  }

  std::string path_;
  int rank_;
  std::ofstream file_;
  uint64_t calls_{};
};

class Replayed {
 public:
  Replayed(const std::string& path, int rank) : rank_(rank), file_(path, std::ios::binary) {
    const uint64_t size = files::file_size(path);
    Record record;
    for (uint64_t at = 0; at + sizeof record <= size; at += record.bytes) {
      read(at, &record, sizeof record);
      const bool output = record.kind == Record::Kind::output;
      if (record.mark != Record::kMark || (output && record.number >= calls_.size()))
        throw std::runtime_error(path + ": not a recording of this build (from byte " +
                                 std::to_string(at) + " on)");
      at += sizeof record;
      if (record.bytes > size - at) break;
      if (record.kind == Record::Kind::call) calls_.push_back({record.call, record.bits});
      if (output) calls_[record.number].output = {at, record.bytes};
      if (record.kind != Record::Kind::end) continue;
      read(at, end_.emplace(record.bytes, ' ').data(), record.bytes);
    }
  }

  uint64_t issue(const Collective& collective) {
    const Call& mine = collective.call;
    if (next_ == calls_.size()) stand("calls", mine, "; the recording has no more");
    const auto& [call, bits, output] = calls_[next_];
    if (!agree(call, mine) || std::tie(call.level, call.communicator, call.bytes) !=
                                  std::tie(mine.level, mine.communicator, mine.bytes))
      stand("calls", mine, ", but the recording has " + call.text());
    if (bits != bits_given(collective, rank_) && differences_++ == 0)
      say("gives other bits than recorded to " + call.text());
    return next_++;
  }

  void receive(uint64_t number, const Collective& collective) {
    const auto& [call, bits, output] = calls_[number];
    if (!output) stand("waits here for", call, ", which never came");
    const at::Tensor& tensor = collective.output;
    if (!tensor.defined()) return;
    // Reads the bytes into a buffer and copies them from there: if the system wrote them into the
    // tensor, a debugger's watchpoint on the tensor would not see the write.
    std::string bytes(std::min(output->second, tensor.nbytes()), ' ');
    read(output->first, bytes.data(), bytes.size());
    receiving_ = &collective;
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    receiving_ = nullptr;
  }

  const Collective* receiving() const { return receiving_; }

  void end(const std::string& failure) {
    if (stands_) return;
    say("has made " + std::to_string(next_) + " of " + std::to_string(calls_.size()) +
        " recorded calls, and given the recorded bits to " + std::to_string(next_ - differences_) +
        "; it " + (failure.empty() ? "ends well" : "failed: " + failure));
    if (end_ != failure) say(recorded_end());
  }

 private:
  struct Recorded {
    Call call;
    uint64_t bits;
    // The position in the file at which the recorded output begins, and its number of bytes;
    // nothing: the output of this call was not recorded.
    std::optional<std::pair<uint64_t, size_t>> output{};
  };

  void read(uint64_t at, void* into, size_t bytes) {
    file_.seekg(static_cast<std::streamoff>(at));
    file_.read(static_cast<char*>(into), static_cast<std::streamsize>(bytes));
  }
  void say(const std::string& what) const {
    std::fflush(stdout);
    std::fprintf(stderr, "fsdp replay: rank %d %s\n", rank_, what.c_str());
  }
  std::string recorded_end() const {
    if (!end_) return "was recorded up to here: it was killed or stopped, or its file is cut";
    return "was recorded to its end: it " + (end_->empty() ? "ended well" : "failed: " + *end_);
  }
  // Called when the replayed rank cannot continue. Prints the reason, which consists of `does`, the
  // text of `call`, and `why`: for example "waits here for", a call, and ", which never came". Then
  // calls replay_breakpoint_stuck(), on which a debugger can stop, and throws CollectiveError.
  [[noreturn]] void stand(const std::string& does, const Call& call, const std::string& why) {
    stands_ = true;
    const std::string what = does + ' ' + call.text() + why;
    say(what);
    say(recorded_end());
    replay_breakpoint_stuck();
    throw CollectiveError("rank " + std::to_string(rank_) + ' ' + what);
  }

  int rank_;
  std::ifstream file_;
  std::vector<Recorded> calls_;
  // The text of the failure with which the recorded rank ended, "" if it succeeded; nothing: the
  // recording has no `end`.
  std::optional<std::string> end_;
  bool stands_{};
  uint64_t next_{}, differences_{};
  const Collective* receiving_{};  // the collective whose output receive() is writing; null: none
};

// `written` is the recording that this process writes, `replayed` the one that it replays. At most
// one of the two is set, and only in the process of a rank.
std::optional<Written> written;
std::optional<Replayed> replayed;

class RecordedTransfer final : public Transfer {
 public:
  RecordedTransfer(std::unique_ptr<Transfer> inner, Collective collective)
      : inner_(std::move(inner)), collective_(std::move(collective)) {}

  uint64_t address() const override { return inner_->address(); }
  void start() override {
    number_ = replayed ? replayed->issue(collective_) : written->issue(collective_);
    inner_->start();
  }
  void complete() override {
    inner_->complete();
    if (written) written->receive(number_, collective_);
    if (replayed) replayed->receive(number_, collective_);
  }
  std::optional<std::pair<int64_t, int64_t>> moved() const override { return inner_->moved(); }

 private:
  std::unique_ptr<Transfer> inner_;
  Collective collective_;
  uint64_t number_{};
};

class RecordedTransport final : public Transport {
 public:
  explicit RecordedTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<Transfer> begin(const Collective& collective) override {
    return std::make_unique<RecordedTransfer>(inner_->begin(collective), collective);
  }
  c10::Allocator* allocator() override { return inner_->allocator(); }
  void wait_for_readers() override { inner_->wait_for_readers(); }

 private:
  std::shared_ptr<Transport> inner_;
};

// The Ledger of a replayed rank. Publishes each call of this rank for the other ranks too. So the
// inner transport computes and allocates what it would with the other ranks, but reads this rank's
// data in place of theirs. Then RecordedTransfer overwrites the output with the recorded one.
class ReplayLedger final : public Ledger {
 public:
  using Ledger::Ledger;

  void publish(const PublishedCall& call) override {
    PublishedCall theirs = call;
    // If this rank publishes no data (address 0), the calls of the other ranks get address 1, which
    // is the first byte of the shared arenas, because the transport may read the other ranks' data
    // and address 0 would be a null pointer.
    theirs.address = std::max<uint64_t>(call.address, 1);
    for (int other = 0; other < group().size; ++other) {
      if (other == rank()) continue;
      rings_.publish(other, theirs);
      rings_.advance(other, call.call.sequence, Stage::finished);
    }
    Ledger::publish(call);
  }
};

// Returns whether the file `command` of a recording includes the environment variable. The file
// includes the variables that may change what a rank computes: those whose names begin with
// "FSDP_", "OMP_" or another prefix in the list below. ./fsdp replay sets only the recorded
// variables.
bool is_recorded(std::string_view variable) {
  const auto begins = [&](const char* name) { return variable.starts_with(name); };
  return std::ranges::any_of(
      std::array{"FSDP_", "OMP_", "MKL_", "DNNL_", "ONEDNN_", "ATEN_", "TORCH_", "GLOO_"}, begins);
}

// Returns the text of the file `command`, from which ./fsdp replay starts the program again. Each
// word ends with a zero byte: the working directory, the program's name, the recorded environment
// variables, an empty word; then the arguments of the program. If FSDP_RECORD_AS is set, its value
// replaces the arguments.
std::string command_of_process() {
  std::string words = files::current_path().string() + '\0' +
                      files::read_symlink("/proc/self/exe").filename().string() + '\0';
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (is_recorded(*variable)) words += std::string(*variable) + '\0';
  words += '\0';
  if (const char* as = std::getenv("FSDP_RECORD_AS")) return words + as + '\0';
  const std::string line = content_of("/proc/self/cmdline");
  return words + line.substr(line.find('\0') + 1);
}

// `recording` is the folder that FSDP_RECORD names; empty if no run was recorded yet.
// `recorded_run` is the folder of the latest run inside it; empty if the latest run is not
// recorded.
std::string recording, recorded_run;

}  // namespace

void begin_recording() {
  static int runs;
  const char* folder = std::getenv("FSDP_RECORD");
  recorded_run.clear();
  if (folder == nullptr || *folder == 0) return;
  if (recording != folder) {
    if (!files::create_directories(folder))
      throw std::invalid_argument(std::string("recording: ") + folder +
                                  " is there already; name a new folder");
    write_whole_file(std::string(folder) + "/command", command_of_process());
    recording = folder;
    runs = 0;
  }
  recorded_run = recording + '/' + std::to_string(runs++);
  files::create_directories(recorded_run);
}

void record_rank(int rank) {
  if (!recorded_run.empty() && !replayed)
    written.emplace(recorded_run + "/rank-" + std::to_string(rank), rank);
}

void end_recording(const std::string& failure) noexcept {
  try {
    if (written) written->end(failure);
    if (replayed) replayed->end(failure);
  } catch (const std::exception&) {
    // Writing the last entry of the recording failed. The entries before it can still be replayed.
  }
}

std::string recorded_text() {
  if (recorded_run.empty()) return "";
  uintmax_t bytes = 0;
  for (const auto& file : files::directory_iterator(recorded_run))
    bytes += file.file_size();
  char size[32];
  std::snprintf(size, sizeof size, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return "recorded, " + std::string(size) + ": ./fsdp replay " + recording + " --rank R";
}

int recorded_run_number() {
  return recorded_run.empty() ? -1 : std::stoi(files::path(recorded_run).filename());
}

std::optional<int> take_replay() {
  static int runs;
  const char* named = std::getenv("FSDP_REPLAY");
  if (named == nullptr) return std::nullopt;
  const files::path path(named);
  if (path.parent_path().filename() != std::to_string(runs++)) return std::nullopt;
  const std::string name = path.filename();
  const int rank = std::stoi(name.substr(name.find('-') + 1));
  replayed.emplace(path, rank);
  return rank;
}

bool replays() {
  return replayed.has_value();
}

const Collective* receiving() {
  return replayed ? replayed->receiving() : nullptr;
}

[[gnu::noinline]] void replay_breakpoint_begin() {
  asm volatile("# begins");
}
[[gnu::noinline]] void replay_breakpoint_stuck() {
  asm volatile("# stands");
}

std::shared_ptr<Transport> recorded(std::shared_ptr<Transport> inner) {
  if (!written && !replayed) return inner;
  return std::make_shared<RecordedTransport>(std::move(inner));
}

std::shared_ptr<Ledger> make_replayed_ledger(const CallRings& rings, int rank,
                                             std::chrono::milliseconds timeout) {
  return std::make_shared<ReplayLedger>(rings, rank, timeout);
}

}  // namespace fsdp
