#include <base/plain_error.h>
#include <base/text.h>
#include <state/safetensors.h>
#include <state/untrusted_json.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace fsdp {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr int64_t kLengthBytes = 8;
// The most bytes of a header, as in the package safetensors.
constexpr int64_t kLongestHeader = 100'000'000;
constexpr size_t kHeaderAlignment = 8;
const std::string kMetadataKey = "__metadata__";

const std::map<std::string, at::ScalarType>& dtypes() {
  static const std::map<std::string, at::ScalarType> all{
      {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
      {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
      {"U8", at::kByte},    {"BOOL", at::kBool}};
  return all;
}

int64_t element_bytes(at::ScalarType dtype) {
  return static_cast<int64_t>(at::elementSize(dtype));
}

std::string header_of(const std::vector<SafetensorsEntry>& entries,
                      const SafetensorsMetadata& metadata, int64_t& bytes) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  for (const auto& [name, dtype, sizes] : entries) {
    if (name == kMetadataKey || header.contains(name))
      throw std::invalid_argument("a safetensors file can't have this tensor: " + name);
    const int64_t begin = bytes;
    bytes += product(sizes).value() * element_bytes(dtype);
    header[name] = {
        {"dtype", safetensors_dtype(dtype)}, {"shape", sizes}, {"data_offsets", {begin, bytes}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  return text;
}

// Returns the Entry that `json`, a tensor's entry in the header, describes. `begin`: the offset in
// the file at which the data of the tensors begins. `data`: the number of bytes of all tensors.
// Throws std::runtime_error if the entry does not fit the data.
SafetensorsReader::Entry entry_of(const nlohmann::json& json, int64_t begin, int64_t data) {
  const auto dtype = dtypes().find(json.at("dtype").get<std::string>());
  if (dtype == dtypes().end()) throw std::runtime_error("has a dtype that is not known");
  const auto sizes = counts_of(json.at("shape"));
  const auto offsets = counts_of(json.at("data_offsets"));
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data)
    throw std::runtime_error("lies outside the file");
  const auto numel = product(sizes);
  int64_t bytes = 0;
  const bool fits = numel && !__builtin_mul_overflow(*numel, element_bytes(dtype->second), &bytes);
  if (!fits || bytes != offsets[1] - offsets[0])
    throw std::runtime_error("has a shape that is not as large as its bytes");
  return {dtype->second, sizes, *numel, begin + offsets[0]};
}

// Throws unless the tensors lie one after the other without a gap, from offset `begin` to the end
// of the file.
void check_order(const std::map<std::string, SafetensorsReader::Entry>& entries, int64_t begin,
                 const FileReader& file) {
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const auto& [name, entry] : entries)
    places.emplace_back(entry.offset, entry.offset + entry.numel * element_bytes(entry.dtype));
  std::ranges::sort(places);
  int64_t end = begin;
  for (const auto& [from, to] : places)
    end = from == end ? to : -1;
  if (end != file.size())
    throw std::runtime_error(file.path() +
                             ": the tensors do not fill the file one after the other");
}

}  // namespace

std::string safetensors_dtype(at::ScalarType dtype) {
  for (const auto& [name, type] : dtypes())
    if (type == dtype) return name;
  throw std::invalid_argument(std::string("safetensors has no dtype ") + at::toString(dtype));
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<SafetensorsEntry>& entries,
                                     const SafetensorsMetadata& metadata)
    : file_(path) {
  const std::string header = header_of(entries, metadata, missing_);
  const uint64_t length = header.size();
  file_.write(&length, kLengthBytes);
  file_.write(header.data(), header.size());
}

void SafetensorsWriter::write(const at::Tensor& elements) {
  write({static_cast<const std::byte*>(elements.data_ptr()), elements.nbytes()});
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes.data(), bytes.size());
  missing_ -= static_cast<int64_t>(bytes.size());
}

void SafetensorsWriter::close() {
  if (missing_ != 0)
    throw std::logic_error("safetensors: " + std::to_string(std::abs(missing_)) +
                           (missing_ > 0 ? " bytes are missing" : " bytes too many"));
  file_.close();
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error(path + ": " + one_line(what));
  };
  uint64_t length = 0;
  if (file_.size() < kLengthBytes) refuse("has no header");
  file_.read(0, &length, kLengthBytes);
  const int64_t rest = file_.size() - kLengthBytes;
  if (length > static_cast<uint64_t>(std::min(kLongestHeader, rest))) {
    std::string begin(static_cast<size_t>(std::min<int64_t>(file_.size(), 64)), '\0');
    file_.read(0, begin.data(), begin.size());
    refuse_lfs_pointer(path, begin);
    refuse("has a header of " + std::to_string(length) + " bytes, after which " +
           std::to_string(rest) + " bytes are left; it is damaged, or not a safetensors file");
  }
  std::string header(length, '\0');
  file_.read(kLengthBytes, header.data(), length);
  nlohmann::json json;
  try {
    json = read_json_object<nlohmann::json>(header);
  } catch (const std::runtime_error& error) {
    refuse(std::string("has a header that ") + plain_text(error));
  }
  const int64_t begin = kLengthBytes + static_cast<int64_t>(length);
  for (const auto& [name, value] : json.items()) {
    try {
      if (name == kMetadataKey) {
        metadata_ = value.get<SafetensorsMetadata>();
      } else {
        entries_.emplace(name, entry_of(value, begin, file_.size() - begin));
      }
    } catch (const nlohmann::json::exception&) {
      refuse("tensor " + name + ": has an entry that is not as the format says");
    } catch (const std::runtime_error& error) {
      refuse("tensor " + name + ": " + plain_text(error));
    }
  }
  check_order(entries_, begin, file_);
}

void SafetensorsReader::read(const Entry& entry, int64_t begin, const at::Tensor& elements) const {
  if (begin < 0 || elements.numel() > entry.numel - begin || elements.dtype() != entry.dtype)
    throw std::out_of_range(file_.path() +
                            ": a tensor has fewer elements than are read, or another dtype");
  file_.read(entry.offset + begin * element_bytes(entry.dtype), elements.data_ptr(),
             elements.nbytes());
}

}  // namespace fsdp
