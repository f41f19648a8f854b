#include <agreement/agreement.h>
#include <agreement/same_on_all_ranks.h>
#include <digest/sha256.h>

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

constexpr size_t kHashDigits = 16;  // number of digits that values_digest() returns

using RankInvariants = std::vector<std::pair<std::string, std::string>>;

// Returns the numbers of `ranks` as the end of a sentence: " on rank 0" or " on ranks 1, 2".
std::string on_ranks(const std::vector<size_t>& ranks) {
  std::string text = ranks.size() == 1 ? " on rank " : " on ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

// Returns a text that says which ranks have which value: "0.5 on rank 0, 0.25 on ranks 1, 2".
// of_ranks[rank] is the value of a rank. The text lists a value of a lower rank first.
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

bool differ(const std::vector<std::string>& texts) {
  return std::ranges::adjacent_find(texts, std::not_equal_to<>()) != texts.end();
}

std::string hash_of(const at::Tensor& values) {
  return "hash " + values_digest(values);
}

// Finds the first part of a text that is not the same on all ranks. of_ranks[rank] is the text of a
// rank; it consists of parts of `characters` characters, and all texts have the same length.
// Returns the index of the part.
size_t first_part_that_differs(const std::vector<std::string>& of_ranks, size_t characters) {
  for (size_t begin = 0; begin < of_ranks[0].size(); begin += characters)
    for (const std::string& text : of_ranks)
      if (text.compare(begin, characters, of_ranks[0], begin, characters) != 0)
        return begin / characters;
  return 0;
}

// Returns the indices of an element of a tensor in each dimension: "[0, 3]". `element` is the index
// of the element in row-major order, `sizes` the sizes of the tensor.
std::string index_text(int64_t element, at::IntArrayRef sizes) {
  std::vector<int64_t> index(sizes.size());
  for (size_t dim = sizes.size(); dim-- > 0; element /= sizes[dim])
    index[dim] = element % sizes[dim];
  std::ostringstream text;
  text << at::IntArrayRef(index);
  return text.str();
}

// Returns the value of a tensor with one element as a text such as "0.25", with enough digits that
// different values have different texts.
std::string element_text(const at::Tensor& element) {
  std::ostringstream text;
  if (element.is_complex()) {
    const at::Tensor parts = at::view_as_real(element.resolve_conj());
    return element_text(parts[0]) + " + " + element_text(parts[1]) + "i";
  }
  if (element.is_floating_point()) {
    text.precision(element.scalar_type() == at::kDouble ? 17 : 9);
    text << element.item<double>();
  } else {
    text << element.item<int64_t>();
  }
  return text.str();
}

// Returns a text such as "element [0, 3] is 0.5 on rank 0, 0.25 on ranks 1, 2". Collective over the
// ranks of all replicas. Call it only if the values of `tensor` differ between ranks. Finds the
// element by comparing hashes of 64 parts of the tensor, then of 64 parts of the first part that
// differs, and so on. If the element has the same text on all ranks but different bits, such as two
// kinds of NaN, the returned text has hashes in place of the values.
std::string first_element_that_differs(Communicator& comm, const at::Tensor& tensor) {
  const auto shapes = gather_all_texts(comm, dtype_and_sizes(tensor));
  if (differ(shapes)) return tell(shapes);
  constexpr int64_t kParts = 64;
  const at::Tensor values = tensor.detach().cpu().contiguous().view({-1});
  int64_t begin = 0, end = values.numel();
  while (end - begin > 1) {
    const int64_t size = (end - begin + kParts - 1) / kParts;
    std::string hashes;
    for (int64_t part = begin; part < end; part += size)
      hashes += values_digest(values.slice(0, part, std::min(part + size, end)));
    begin += size * static_cast<int64_t>(
                        first_part_that_differs(gather_all_texts(comm, hashes), kHashDigits));
    end = std::min(begin + size, end);
  }
  const at::Tensor element = values[begin];
  const auto texts = gather_all_texts(comm, element_text(element));
  const auto hashes = gather_all_texts(comm, hash_of(element));
  std::string found = differ(texts) ? tell(texts) : tell(hashes);
  if (tensor.dim() == 0) return found;
  return "element " + index_text(begin, tensor.sizes()) + " is " + found;
}

// Collective. Compares the lists of invariants of all ranks and returns the first difference.
// Requires that the lists differ.
Difference first_difference(Communicator& comm, const std::vector<RankInvariants>& of_ranks,
                            const std::vector<RankInvariant>& own,
                            const std::string& what_differs) {
  for (size_t i = 0;; ++i) {
    std::vector<std::string> whats, values;
    for (const RankInvariants& invariants : of_ranks) {
      whats.push_back(i < invariants.size() ? invariants[i].first : "nothing");
      values.push_back(i < invariants.size() ? invariants[i].second : "nothing");
    }
    const std::string what = "what they have";
    if (differ(whats)) return {what, whats, what + ": " + tell(whats) + "; " + what_differs};
    if (!differ(values)) continue;
    const std::string of_values =
        own[i].values.defined() ? first_element_that_differs(comm, own[i].values) : tell(values);
    return {whats[0], values, whats[0] + ": " + of_values + "; " + own[i].advice};
  }
}

}  // namespace

std::optional<Difference> difference_between_ranks(Communicator& comm,
                                                   const std::vector<RankInvariant>& invariants,
                                                   const std::string& what_differs) {
  auto json = nlohmann::json::array();
  for (const RankInvariant& invariant : invariants)
    json.push_back({invariant.what, invariant.value});
  const std::string own = json.dump();
  Sha256 hash;
  hash.update(std::as_bytes(std::span(own)));
  const auto digests = gather_texts(comm, hash.hex());
  std::vector<std::string> of_replicas{differ(digests) ? "" : digests[0]};
  if (const auto replicas = comm.replicas()) of_replicas = gather_texts(*replicas, of_replicas[0]);
  if (!of_replicas[0].empty() && !differ(of_replicas)) return std::nullopt;
  std::vector<RankInvariants> of_ranks;
  for (const std::string& text : gather_all_texts(comm, own))
    of_ranks.push_back(nlohmann::json::parse(text).get<RankInvariants>());
  return first_difference(comm, of_ranks, invariants, what_differs);
}

void check_same_on_all_ranks(Communicator& comm, const std::vector<RankInvariant>& of_model,
                             const std::string& where, const std::string& what_differs) {
  std::vector<RankInvariant> invariants{{"what they call", where, "call the same on every rank"}};
  invariants.insert(invariants.end(), of_model.begin(), of_model.end());
  if (const auto difference = difference_between_ranks(comm, invariants, what_differs))
    throw std::invalid_argument(where + ": ranks differ in " + difference->text);
}

RankInvariant invariant_of_values(const std::string& what, const at::Tensor& tensor,
                                  const std::string& advice, bool keep) {
  return {"the values of " + what, hash_of(tensor), advice, keep ? tensor : at::Tensor()};
}

void add_values(std::vector<RankInvariant>& invariants, const std::string& kind,
                const std::vector<NamedParameter>& tensors, const std::string& advice) {
  for (const auto& [name, tensor] : tensors)
    invariants.push_back(invariant_of_values(kind + ' ' + name, tensor, advice));
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
