#include <testing/channel.h>
#include <testing/observed_tensor.h>
#include <testing/rank_report.h>
#include <testing/tensor_bits.h>
#include <testing/test_rank.h>
#include <trace/recorder.h>
#include <watch/watch.h>

namespace fsdp {

TestRank::TestRank(const RankContext& context, const RunOptions& options, Channel& channel)
    : context_(context), options_(options), channel_(channel) {
  check_dispatch();
}

const std::shared_ptr<Communicator>& TestRank::communicator() {
  if (!communicator_) communicator_ = another_communicator();
  return communicator_;
}

std::shared_ptr<Communicator> TestRank::another_communicator() const {
  return Communicator::create(context_, options());
}

const std::shared_ptr<Communicator>& TestRank::hybrid(int shard_size) {
  if (!hybrid_) hybrid_ = Communicator::create_hybrid(context_, options(), shard_size);
  return hybrid_;
}

CommunicatorOptions TestRank::options() const {
  CommunicatorOptions options{options_.backend, options_.timeout, options_.fault, options_.link,
                              options_.clock};
  options.device = options_.device;
  options.keep_log = true;
  return options;
}

void TestRank::observe(const std::string& name, const nlohmann::json& value) {
  if (!names_.insert(name).second) {
    throw std::logic_error("observe: \"" + name + "\" was observed before on this rank");
  }
  watch::observed(name, value);
  const uint64_t events = Recorder::current() == nullptr ? 0 : Recorder::current()->count();
  channel_.send(observation_frame(name, value, events));
}

void TestRank::observe(const std::string& name, const at::Tensor& tensor) {
  watch::observed(name, tensor);
  observe(name, to_observation(tensor));
}

void TestRank::observe(const std::string& name, const at::Tensor& tensor, const Places& places) {
  watch::observed(name, tensor);
  observe(name, with_places(to_observation(tensor), places));
}

}  // namespace fsdp
