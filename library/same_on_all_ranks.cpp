#include <digest/sha256.h>
#include <same_on_all_ranks.h>
#include <state/agreement.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

using Traits = std::vector<std::pair<std::string, std::string>>;

// " on rank 0", " on ranks 1, 2"
std::string on_ranks(const std::vector<size_t>& ranks) {
  std::string text = ranks.size() == 1 ? " on rank " : " on ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

// What the ranks have in one place of their lists, and which ranks: in the order of ranks.
std::string tell(const std::vector<std::string>& of_ranks) {
  std::vector<std::string> distinct;
  std::map<std::string, std::vector<size_t>> ranks;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    auto& same = ranks[of_ranks[rank]];
    if (same.empty()) distinct.push_back(of_ranks[rank]);
    same.push_back(rank);
  }
  std::string text;
  for (const std::string& value : distinct)
    text += (text.empty() ? "" : ", ") + value + on_ranks(ranks[value]);
  return text;
}

std::string first_difference(const std::vector<Traits>& of_ranks) {
  for (size_t i = 0;; ++i) {
    std::vector<std::string> whats, values;
    for (const Traits& traits : of_ranks) {
      whats.push_back(i < traits.size() ? traits[i].first : "nothing");
      values.push_back(i < traits.size() ? traits[i].second : "nothing");
    }
    const auto differ = [](const auto& all) {
      return std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) != all.end();
    };
    if (differ(whats)) return "what the model has: " + tell(whats);
    if (differ(values)) return whats[0] + ": " + tell(values);
  }
}

// Other replicas are reached by a sum alone.
bool same_on_all_replicas(Communicator& comm, const std::string& digest) {
  const at::Tensor own =
      at::tensor(std::vector<float>(digest.begin(), digest.end())).to(at::Device(comm.device()));
  const at::Tensor sum = at::empty_like(own);
  comm.reduce_scatter_into(sum, own.repeat({comm.world_size()}), kState).wait();
  return at::equal(sum, own * comm.summed_ranks());
}

}  // namespace

void check_same_on_all_ranks(Communicator& comm, const std::vector<Trait>& traits,
                             const std::string& where, const std::string& advice) {
  auto json = nlohmann::json::array();
  for (const Trait& trait : traits)
    json.push_back({trait.what, trait.value});
  const std::string own = json.dump();
  Sha256 hash;
  hash.update(std::as_bytes(std::span(own)));
  const auto digests = gather_texts(comm, hash.hex());
  if (std::ranges::count(digests, digests[0]) == comm.world_size()) {
    const bool replicas = comm.summed_ranks() > comm.world_size();
    if (!replicas || same_on_all_replicas(comm, digests[0])) return;
    throw std::invalid_argument(where + ": replicas differ; " + advice);
  }
  std::vector<Traits> of_ranks;
  for (const std::string& text : gather_texts(comm, own))
    of_ranks.push_back(nlohmann::json::parse(text).get<Traits>());
  throw std::invalid_argument(where + ": ranks differ in " + first_difference(of_ranks) + "; " +
                              advice);
}

std::string values_digest(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().contiguous();
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  const size_t size = values.nbytes();
  uint64_t state = size;
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof(word), size - i));
    state = std::rotl((state ^ word) * 0x9e3779b97f4a7c15U, 29);
  }
  std::ostringstream text;
  text.width(16);
  text.fill('0');
  text << std::hex << (state ^ (state >> 32));
  return text.str();
}

std::string dtype_and_sizes(const at::Tensor& tensor) {
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
  return text.str();
}

}  // namespace fsdp
