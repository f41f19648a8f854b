#include <agreement/agreement.h>
#include <base/plain_error.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

at::Tensor gather(Communicator& comm, const at::Tensor& input) {
  const at::Tensor output = at::empty({comm.world_size() * input.numel()},
                                      at::TensorOptions(input.dtype()).device(comm.device()));
  comm.all_gather_into(output, input.to(comm.device()), kState).wait();
  return output.cpu();
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& comm, const std::string& text) {
  const auto size = static_cast<int64_t>(text.size());
  const at::Tensor sizes = gather(comm, at::full({1}, size, at::kLong));
  const auto longest = sizes.max().item<int64_t>();
  std::vector<std::string> texts(static_cast<size_t>(comm.world_size()));
  if (longest == 0) return texts;  // all texts are empty, so there is nothing more to gather
  const at::Tensor padded = at::zeros({longest}, at::kByte);
  std::copy(text.begin(), text.end(), padded.data_ptr<uint8_t>());
  const at::Tensor all = gather(comm, padded);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto* begin = all.data_ptr<uint8_t>() + static_cast<int64_t>(rank) * longest;
    texts[rank].assign(begin, begin + sizes.data_ptr<int64_t>()[rank]);
  }
  return texts;
}

std::vector<std::string> gather_all_texts(Communicator& comm, const std::string& text) {
  auto own = gather_texts(comm, text);
  const auto replicas = comm.replicas();
  if (!replicas) return own;
  std::vector<std::string> all(own.size() * static_cast<size_t>(replicas->world_size()));
  for (size_t rank = 0; rank < own.size(); ++rank) {
    const auto same_rank = gather_texts(*replicas, own[rank]);
    for (size_t replica = 0; replica < same_rank.size(); ++replica)
      all[replica * own.size() + rank] = same_rank[replica];
  }
  return all;
}

void agree_on(Communicator& comm, const std::function<void()>& action) {
  agreed_texts(comm, [&] {
    action();
    return std::string();
  });
}

void agree_on_rank_0(Communicator& comm, const std::function<void()>& action) {
  agree_on(comm, [&] {
    if (comm.global_rank() == 0) action();
  });
}

std::vector<std::string> agreed_texts(Communicator& comm,
                                      const std::function<std::string()>& action) {
  constexpr char kDone = '+', kFailed = '-';
  std::string own;
  try {
    own = kDone + action();
  } catch (const c10::Error& error) {
    own = kFailed + std::string(error.what_without_backtrace());
  } catch (const std::exception& error) {
    own = kFailed + std::string(plain_text(error));
  }
  const auto failed = [](const std::string& text) { return text.at(0) == kFailed; };
  auto texts = gather_texts(comm, own);
  const auto first = std::ranges::find_if(texts, failed);
  std::vector<std::string> of_replicas{first == texts.end() ? own : *first};
  if (const auto replicas = comm.replicas()) of_replicas = gather_texts(*replicas, of_replicas[0]);
  const auto failure = std::ranges::find_if(of_replicas, failed);
  if (failure != of_replicas.end()) throw std::runtime_error(failure->substr(1));
  for (std::string& text : texts)
    text.erase(0, 1);
  return texts;
}

}  // namespace fsdp
