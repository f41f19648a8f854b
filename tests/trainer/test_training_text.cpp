#include <common/temporary_folder.h>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

TEST(TrainingText, the_training_text_is_read_before_the_ranks_start) {
  const TemporaryFolder folder;
  TrainConfig config = small_run();
  config.data.kind = DataKind::text;
  config.data.text = {folder.write("text", std::string(1000, 'x'))};
  FsdpImplementation fsdp = with<UntrainedStrategy>();
  fsdp.make_strategy = [](const TrainConfig& of_rank, Workload,
                          std::shared_ptr<Communicator> comm) -> std::unique_ptr<Strategy> {
    if (of_rank.data.text_content == nullptr || of_rank.data.text_content->size() != 1000)
      throw std::logic_error("the text was not read before");
    return std::make_unique<UntrainedStrategy>(std::move(comm));
  };
  const Outcome run = train(fsdp, config);
  EXPECT_EQ(run.status, 0) << run.errors;
}

}  // namespace
}  // namespace fsdp
