#include <base/child_program.h>
#include <gtest/gtest.h>
#include <hosts/start.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/shared_words.h>
#include <common/temporary_folder.h>
#include <library/one_process.h>

#include <csignal>
#include <filesystem>
#include <sstream>

// What docs/ and examples/ show.
namespace fsdp {
namespace {

// What the example prints, which is built beside this program.
std::string output_of(const std::string& example, const std::string& folder) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename(example);
  ChildProgram child([&](int pipe) {
    dup2(pipe, STDOUT_FILENO);
    setenv("OMP_NUM_THREADS", "1", 1);  // each rank has a core at most
    return std::vector{program, folder};
  });
  std::string output;
  char bytes[4096];
  const auto deadline = ChildProgram::Clock::now() + std::chrono::minutes(2);
  while (const auto count = child.read(bytes, sizeof(bytes), deadline)) {
    if (*count == 0) break;
    output.append(bytes, *count);
  }
  const auto end = child.end(std::chrono::minutes(1));
  EXPECT_EQ(end.code, 0) << end.text();
  return output;
}

double loss_of_step(const std::string& output, int step) {
  const std::string label = "step " + std::to_string(step) + ": ";
  const size_t place = output.find(label);
  EXPECT_NE(place, std::string::npos) << output;
  return place == std::string::npos ? -1 : std::stod(output.substr(place + label.size()));
}

TEST(OwnTraining, goes_on_from_what_it_has_saved) {
  const TemporaryFolder folder;
  const std::string first = output_of("own_training", folder.path());
  const std::string second = output_of("own_training", folder.path());
  EXPECT_LT(loss_of_step(first, 9), loss_of_step(first, 0));
  EXPECT_LT(loss_of_step(second, 0), loss_of_step(first, 0));
  EXPECT_NE(first, second);
}

TEST(OwnPlan, is_what_the_training_then_takes) {
  const TemporaryFolder folder;
  std::istringstream lines(output_of("own_plan", folder.path()));
  int compared = 0;
  for (std::string cls, word, planned, measured; lines >> cls >> word >> planned; ++compared) {
    lines >> word >> measured >> word;
    EXPECT_EQ(planned, measured + ",") << cls;
  }
  EXPECT_EQ(compared, 5);
}

volatile std::sig_atomic_t asked_to_end = 0;

// As docs/checkpoints.md shows it, but never at its end by itself. `steps`: of each rank so far.
int train_until_asked(const std::string& file, SharedWords& steps) {
  for (const int signal : {SIGUSR1, SIGTERM})
    std::signal(signal, [](int) { asked_to_end = 1; });
  return start(2, [&](const RankContext& context) {
    const auto comm = Communicator::create(context);
    const auto net = block_net();
    FullyShardedDataParallel model(*net, comm);
    for (;;) {
      model(at::ones({1, 7})).sum().backward();
      ++steps[context.rank];
      const at::Tensor ends = at::full({1}, static_cast<float>(asked_to_end));
      comm->all_reduce(ends, "asked to end").wait();
      if (ends.item<float>() == 0) continue;
      save_state_dict(model.state_dict(), file, *comm);
      return 0;
    }
  });
}

TEST(Preemption, lets_ranks_save_and_end_after_the_same_step) {
  for (const int signal : {SIGUSR1, SIGTERM}) {
    const TemporaryFolder folder;
    SharedWords steps;
    const pid_t launcher = fork();
    if (launcher == 0) {
      alarm(30);
      _exit(train_until_asked(folder.path() + "/model.pt", steps));
    }
    while (steps[0] < 3 || steps[1] < 3)
      sched_yield();
    kill(launcher, signal);
    int status = 0;
    waitpid(launcher, &status, 0);
    EXPECT_EQ(status, 0) << "signal " << signal;
    EXPECT_EQ(steps[0], steps[1]);
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/model.pt"));
  }
}

}  // namespace
}  // namespace fsdp
