#include <cstdint>
#include <map>

#include "fuzz_target.h"

// With FSDP_FUZZ, this file is a program that libFuzzer drives (scripts/fuzz.sh). Otherwise it is a
// test on the inputs in corpus.tar.gz, which has a folder for each target and a file for each
// input.

static const std::map<std::string, fsdp::Read*> kTargets{
    {"checkpoint", fsdp::read_checkpoint},   {"hugging_face", fsdp::read_hugging_face},
    {"launcher", fsdp::read_launcher},       {"safetensors", fsdp::read_safetensors},
    {"token_files", fsdp::read_token_files}, {"train_options", fsdp::read_train_options}};

#ifdef FSDP_FUZZ

#include <sanitizer/allocator_interface.h>

#include <cstdio>

static bool counting;
// All in bytes. `live`: what the current input has allocated and not freed yet. `largest`: the
// largest single allocation of all inputs. `peak`: the largest value of `live` over all inputs.
static size_t live, largest, peak;

extern "C" void __sanitizer_malloc_hook(const volatile void*, size_t size) {  // NOLINT
  if (!counting) return;
  largest = std::max(largest, size);
  peak = std::max(peak, live += size);
}
extern "C" void __sanitizer_free_hook(const volatile void* memory) {  // NOLINT
  // A freed block can have been allocated before this input, so `live` must not go below 0.
  if (counting && memory != nullptr)
    live -= std::min(live, __sanitizer_get_allocated_size(const_cast<const void*>(memory)));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto read = kTargets.at(std::getenv("FSDP_FUZZ_TARGET"));
  [[maybe_unused]] static const int told =
      std::atexit([] { std::printf("largest allocation %zu, at a time %zu\n", largest, peak); });
  const fsdp::TemporaryFolder folder;
  live = 0;
  counting = true;
  read({reinterpret_cast<const char*>(data), size}, folder);
  counting = false;
  return 0;
}

#else

#include <base/whole_file.h>
#include <command_line/child.h>
#include <command_line/commit.h>

#include <common/in_a_process.h>

// At least one input of each target must be accepted. If none is accepted, the format has changed,
// and the corpus tests only an early error.
TEST(FuzzCorpus, every_input_of_the_fuzz_corpus_is_accepted_or_throws_an_error_of_one_line) {
  const fsdp::TemporaryFolder folder;
  const auto archive = std::filesystem::absolute(fsdp::source_root()) / "tests/fuzz/corpus.tar.gz";
  const auto unpacked =
      fsdp::run_child({"tar", "-xzf", archive, "-C", folder.path()}, folder.path() + "/tar.log");
  ASSERT_TRUE(unpacked.ok()) << fsdp::content_of(folder.path() + "/tar.log");
  const auto corpus = std::filesystem::path(folder.path()) / "corpus";
  for (const auto& target : kTargets) {
    fsdp::in_a_process([&] {
      int accepted = 0;
      for (const auto& file : std::filesystem::directory_iterator(corpus / target.first)) {
        SCOPED_TRACE(file.path());
        accepted += target.second(fsdp::content_of(file.path()), fsdp::TemporaryFolder()) ? 1 : 0;
      }
      EXPECT_GT(accepted, 0) << target.first;
    });
  }
}

#endif
