#include <base/memory_file.h>
#include <base/write_all.h>
#include <launch/collect.h>
#include <launch/launched.h>
#include <launch/launcher.h>
#include <launch/rank_exit.h>

#include <stdexcept>
#include <system_error>

namespace fsdp {
std::vector<std::string> collect(int world_size,
                                 const std::function<std::string(const RankContext&)>& body) {
  if (launched_rank()) {
    throw std::logic_error(
        "collect(): a launcher (torchrun, mpirun or srun) has started this process as one rank, so "
        "it can't collect what the other ranks return; run the program without a launcher");
  }
  std::vector<OpenFile> files;
  for (int rank = 0; rank < world_size; ++rank)
    files.push_back(memory_file("fsdp_result"));
  const LaunchResult result = launch(world_size, [&](const RankContext& context) {
    const std::string returned = body(context);
    const int error = write_all(files[static_cast<size_t>(context.rank)].descriptor, returned);
    if (error == 0) return 0;
    throw std::system_error(
        error, std::generic_category(),
        "cannot store the result of " + std::to_string(returned.size()) + " bytes");
  });
  if (!result.ok())
    throw std::runtime_error(result.ranks[static_cast<size_t>(result.first_failure)].text());
  std::vector<std::string> returned;
  for (const OpenFile& file : files)
    returned.push_back(content_of(file, "a rank's result"));
  return returned;
}

}  // namespace fsdp
