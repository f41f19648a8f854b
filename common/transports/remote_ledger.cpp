#include <base/torch.h>
#include <comm/recording.h>
#include <transports/gloo_group.h>
#include <transports/remote_ledger.h>

#include <cstring>
#include <type_traits>

namespace fsdp {

static_assert(std::is_trivially_copyable_v<PublishedCall>);

// Exchanges the calls of all ranks with one all-to-all over gloo. Exchange has a gloo group of its
// own, so that no other collective can come in between. The memory of the exchanged calls does not
// count as live.
struct RemoteLedger::Exchange {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  // [W] the calls that this rank sends to, and receives from, each rank.
  std::vector<PublishedCall> sent, received;

  static at::Tensor bytes(std::vector<PublishedCall>& calls) {
    return at::from_blob(calls.data(), static_cast<int64_t>(calls.size() * sizeof(PublishedCall)),
                         at::kByte);
  }
  void operator()(const PublishedCall& mine) {
    std::fill(sent.begin(), sent.end(), mine);
    at::Tensor from = bytes(sent), to = bytes(received);
    std::vector<int64_t> equal_parts;
    gloo->alltoall_base(to, from, equal_parts, equal_parts)->wait();
  }
};

RemoteLedger::RemoteLedger(const RankContext& context, const CallRings& rings, int rank,
                           std::chrono::milliseconds timeout)
    : Ledger(rings, rank, timeout) {
  const auto size = static_cast<size_t>(group().size);
  histories_.resize(size);
  exchange_.reset(new Exchange{connect_gloo(context, *this, "calls", timeout),
                               std::vector<PublishedCall>(size), std::vector<PublishedCall>(size)});
}

// The destructor of a gloo group waits for its calls. After a failure some calls may never end, so
// ~RemoteLedger() leaves the group allocated until the process ends.
RemoteLedger::~RemoteLedger() {
  if (rings_.lost(rank())) exchange_.release()->gloo.release();
}

void RemoteLedger::publish(const PublishedCall& call) {
  const uint64_t sequence = call.call.sequence;
  require_waited_for(sequence);
  publish_unchecked(call);
  try {
    (*exchange_)(call);
  } catch (const std::exception& error) {
    throw library_error("gloo", sequence, error);
  }
  bool all_agree = true;
  for (size_t other = 0; other < histories_.size(); ++other) {
    auto& calls = histories_[other].calls;
    if (calls.size() == kRing) calls.erase(calls.begin());
    calls.push_back(exchange_->received[other].call);
    all_agree = all_agree && agree(call.call, calls.back());
  }
  if (!all_agree) throw CollectiveError(describe_mismatch(sequence, group(), histories_));
}

CollectiveError RemoteLedger::library_error(const char* library, uint64_t sequence,
                                            const std::exception& error) {
  const std::string reason = std::string(" failed in ") + library + " (" + message_of(error) + ')';
  // This process only knows how ranks of its own host have ended; ExitProtocol reports on other
  // hosts.
  constexpr std::chrono::milliseconds kCauseTimeout{300};
  if (const auto absent = rings_.find_ended_rank(kCauseTimeout))
    return missing(reason, *absent, sequence);
  rings_.note_lost(rank(), sequence);
  return fsdp::library_error(library, group(), rank(), at(rank(), sequence).call, error);
}

std::shared_ptr<Ledger> make_ledger(const RankContext& context, const CallRings& rings,
                                    std::chrono::milliseconds timeout) {
  const Group& group = rings.group();
  const int rank = group.rank_of(context.rank);
  if (replays()) return make_replayed_ledger(rings, rank, timeout);
  if (context.on_one_host(group)) return std::make_shared<Ledger>(rings, rank, timeout);
  return std::make_shared<RemoteLedger>(context, rings, rank, timeout);
}

}  // namespace fsdp
