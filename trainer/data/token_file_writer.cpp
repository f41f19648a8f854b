#include <base/whole_file.h>
#include <data/token_file_format.h>
#include <data/token_file_writer.h>

#include <limits>
#include <stdexcept>

namespace fsdp {
namespace {

template <typename Number>
void append(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

}  // namespace

TokenFileWriter::TokenFileWriter(int64_t vocabulary)
    : bytes_per_id_(vocabulary <= int64_t{1} << 16 ? 2 : 4) {}

void TokenFileWriter::add(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    if (bytes_per_id_ == 2)
      append(ids_, static_cast<uint16_t>(id));
    else
      append(ids_, static_cast<uint32_t>(id));
  }
}

void TokenFileWriter::write(const std::string& path) const {
  if (count() > std::numeric_limits<int32_t>::max())
    throw std::runtime_error(path + ": would have " + std::to_string(count()) +
                             " tokens, and its header can count 2147483647; split the text");
  const TokenFileKind kind = bytes_per_id_ == 2 ? kOf16Bits : kOf32Bits;
  const TokenFileHeader header{kind.magic, kind.version, static_cast<int32_t>(count())};
  write_whole_file(path, [&](const WritePiece& piece) {
    piece({reinterpret_cast<const char*>(header.data()), sizeof(header)});
    piece(ids_);
  });
}

}  // namespace fsdp
