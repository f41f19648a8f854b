#include <agreement/agreement.h>
#include <state/checkpoint.h>
#include <state/files.h>
#include <state/unfinished_checkpoint.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

}  // namespace

UnfinishedCheckpoint::UnfinishedCheckpoint(const std::string& directory, int64_t step,
                                           Communicator& comm)
    : directory_(directory),
      folder_(step_folder(directory, step)),
      unfinished_(folder_ + kUnfinished),
      step_(step) {
  agree_on_rank_0(comm, [&] {
    if (fs::exists(folder_)) throw std::runtime_error(folder_ + ": is there already");
    fs::remove_all(unfinished_);
    fs::create_directories(unfinished_);
  });
}

void UnfinishedCheckpoint::complete(const nlohmann::ordered_json& run,
                                    const nlohmann::ordered_json& parameters,
                                    const std::vector<SavedFile>& files) const {
  write_description(unfinished_,
                    {{"format", "fsdp checkpoint"},
                     {"version", kCheckpointVersion},
                     {"step", step_},
                     {"run", run},
                     {"parameters", parameters}},
                    files);
  fs::rename(unfinished_, folder_);
  sync_folder(directory_);
}

void UnfinishedCheckpoint::remove() const noexcept {
  std::error_code none;
  fs::remove_all(unfinished_, none);
}

std::vector<SavedFile> files_of_ranks(Communicator& comm,
                                      const std::function<std::vector<SavedFile>()>& own) {
  using Json = nlohmann::ordered_json;
  std::vector<SavedFile> all;
  for (const std::string& files : agreed_texts(comm, [&] { return Json(own()).dump(); }))
    for (const auto& file : Json::parse(files))
      all.push_back(file.get<SavedFile>());
  return all;
}

nlohmann::ordered_json parameters_json(const std::vector<ModelState::Parameter>& parameters) {
  auto json = nlohmann::ordered_json::array();
  for (const auto& [name, sizes, dtype] : parameters) {
    if (TensorName::parse(name).parameter != name)
      throw std::runtime_error(
          "the parameter " + name +
          " can't be saved: its name ends like that of an optimizer state or a range; rename it");
    json.push_back({{"name", name}, {"shape", sizes}});
  }
  return json;
}

}  // namespace fsdp
