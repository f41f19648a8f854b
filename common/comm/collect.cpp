#include <base/write_all.h>
#include <comm/collect.h>
#include <comm/join.h>
#include <comm/mapping.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

// One rank's result: a file in memory, which stays when the rank has ended.
OpenFile place_for_result() {
  OpenFile file(memfd_create("fsdp_result", MFD_CLOEXEC));
  if (file.descriptor < 0)
    throw std::system_error(errno, std::generic_category(), "a file for a result");
  return file;
}

std::string content(const OpenFile& file) {
  const off_t bytes = lseek(file.descriptor, 0, SEEK_END);
  std::string text(static_cast<size_t>(bytes), '\0');
  for (size_t read = 0; read < text.size();) {
    const ssize_t count =
        pread(file.descriptor, text.data() + read, text.size() - read, static_cast<off_t>(read));
    if (count > 0) read += static_cast<size_t>(count);
    if (count == 0 || (count < 0 && errno != EINTR))
      throw std::system_error(errno, std::generic_category(), "a rank's result");
  }
  return text;
}

}  // namespace

std::vector<std::string> collect(int world_size,
                                 const std::function<std::string(const RankContext&)>& body) {
  if (started_rank()) {
    throw std::logic_error(
        "collect(): RANK and WORLD_SIZE are set, as torchrun does: this process has one rank, and "
        "can't collect what the others return");
  }
  std::vector<OpenFile> files;
  for (int rank = 0; rank < world_size; ++rank)
    files.push_back(place_for_result());
  const LaunchResult result = launch(world_size, [&](const RankContext& context) {
    const std::string returned = body(context);
    const int error = write_all(files[static_cast<size_t>(context.rank)].descriptor, returned);
    if (error == 0) return 0;
    throw std::system_error(error, std::generic_category(),
                            "a result of " + std::to_string(returned.size()) + " bytes");
  });
  if (!result.ok())
    throw std::runtime_error(result.ranks[static_cast<size_t>(result.first_failure)].text());
  std::vector<std::string> returned;
  for (const OpenFile& file : files)
    returned.push_back(content(file));
  return returned;
}

}  // namespace fsdp
