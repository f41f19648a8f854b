#include <data/dataset.h>

#include "fuzz_target.h"

// The input has a file to train on and, optionally, a second one that is held out.
bool fsdp::read_token_files(const std::string& input, const TemporaryFolder& folder) {
  std::vector<std::string> paths;
  for (const std::string& file : files_in(input, 1))
    if (paths.size() < 2) paths.push_back(folder.write(std::to_string(paths.size()), file));
  std::shared_ptr<Dataset> data;
  constexpr int64_t kRows = 2, kSeq = 4;
  const auto read = [&] { data = make_token_dataset(paths, 50257, 1); };
  return accepts<std::invalid_argument>(folder.path(), read) &&
         accepts<std::invalid_argument>("", [&] {
           data->batch(0, kRows, kSeq);
           data->held_out(kRows, kSeq);
         });
}
