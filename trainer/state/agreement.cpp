#include <state/agreement.h>

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
  if (longest == 0) return texts;  // a collective has an element
  const at::Tensor padded = at::zeros({longest}, at::kByte);
  std::copy(text.begin(), text.end(), padded.data_ptr<uint8_t>());
  const at::Tensor all = gather(comm, padded);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto* begin = all.data_ptr<uint8_t>() + static_cast<int64_t>(rank) * longest;
    texts[rank].assign(begin, begin + sizes.data_ptr<int64_t>()[rank]);
  }
  return texts;
}

std::vector<std::string> agree_on(Communicator& comm, const std::function<std::string()>& action) {
  constexpr char kDone = '+', kFailed = '-';
  std::string own;
  try {
    own = kDone + action();
  } catch (const std::exception& error) {
    own = kFailed + std::string(error.what());
  }
  auto texts = gather_texts(comm, own);
  for (std::string& text : texts) {
    if (text.at(0) == kFailed) throw std::runtime_error(text.substr(1));
    text.erase(0, 1);
  }
  return texts;
}

}  // namespace fsdp
