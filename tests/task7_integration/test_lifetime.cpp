#include <fully_shard.h>
#include <malloc.h>
#include <testing/call_text.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace {

// While this is true, `delete` fills the deleted memory with kFreed and never frees it. So code
// that reads a deleted object finds kFreed, and not the old values or those of another object.
bool keeps_deleted_blocks = false;
// The byte that fills deleted memory. A pointer of such bytes, 0xdbdbdbdbdbdbdbdb, is no valid
// address, so code that follows it crashes.
constexpr unsigned char kFreed = 0xdb;

struct DeletedBlock {
  DeletedBlock* next;
};
DeletedBlock* deleted_blocks = nullptr;

}  // namespace

// These functions replace those of the standard library in the whole program. The other forms of
// new and delete call them, except those for aligned memory.
void* operator new(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void operator delete(void* block) noexcept {
  if (!keeps_deleted_blocks || block == nullptr) return std::free(block);
  std::memset(block, kFreed, malloc_usable_size(block));
  deleted_blocks = new (block) DeletedBlock{deleted_blocks};
}
void operator delete(void* block, size_t) noexcept {
  operator delete(block);
}

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T7_1_lifetime);

MULTI_RANK_TEST(T7_1_lifetime, a_training_step_works_after_the_fully_sharded_object_is_destroyed) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel model(3);
    auto sharded = fully_shard(model, rank.communicator());
    keeps_deleted_blocks = true;
    sharded.reset();
    keeps_deleted_blocks = false;
    for (const std::string step : {"first", "second"}) {
      rank.observe("the " + step + " step begins; the FullySharded is gone, and its memory too",
                   true);
      const auto loss = model(toy_tokens(rank.rank())).square().sum();
      take_calls(*rank.communicator());
      loss.backward();
      rank.observe("calls of the " + step + " backward", take_calls(*rank.communicator()));
    }
  });
  for (const std::string step : {"first", "second"}) {
    expect_on_all_ranks(
        run, "calls of the " + step + " backward",
        "all_gather blocks2; all_gather blocks1; reduce_scatter blocks2; all_gather blocks0; "
        "reduce_scatter blocks1; reduce_scatter blocks0; reduce_scatter root; ");
  }
}

}  // namespace
}  // namespace fsdp
