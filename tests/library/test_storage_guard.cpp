#include <memory/live_bytes.h>
#include <memory/storage.h>
#include <memory/storage_guard.h>
#include <torch/nn/init.h>
#include <torch/serialize.h>

#include <library/misuse.h>

#include <sstream>

// Tests the error of each use of a sharded parameter, and guarded storage that is freed and gets
// memory again.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(StorageGuard);

const std::string kOfB0 =
    "parameter b0.linear.weight and 1 more of unit b0 are sharded now: call the module (module(x), "
    "not module.forward(x)), or use summon_full_params()";

MISUSE_TEST(StorageGuard, a_kernel_that_reads_a_sharded_parameter_throws_and_names_its_unit, kOfB0,
            [](ShardedNet& one) { weight_of(one).square().sum(); })

MISUSE_TEST(StorageGuard, printing_a_sharded_parameter_throws_and_names_its_unit, kOfB0,
            [](ShardedNet& one) { std::ostringstream() << weight_of(one); })

MISUSE_TEST(StorageGuard, item_of_a_sharded_element_throws_and_names_its_unit, kOfB0,
            [](ShardedNet& one) { weight_of(one)[0][0].item<float>(); })

MISUSE_TEST(StorageGuard, copying_a_view_of_a_sharded_parameter_throws_and_names_its_unit, kOfB0,
            [](ShardedNet& one) { weight_of(one).t().clone(); })

MISUSE_TEST(StorageGuard, data_ptr_of_a_sharded_parameter_throws_and_names_its_unit, kOfB0,
            [](ShardedNet& one) { weight_of(one).data_ptr(); })

MISUSE_TEST(StorageGuard, initializing_a_sharded_parameter_throws_and_names_its_unit, kOfB0,
            [](ShardedNet& one) { torch::nn::init::zeros_(weight_of(one)); })

MISUSE_TEST(StorageGuard, calling_forward_directly_throws_and_names_the_unit, kOfB0,
            [](ShardedNet& one) {
              one.net->blocks[0]->forward(at::ones({2, 7}));
            })

MISUSE_TEST(StorageGuard, calling_a_method_that_runs_no_hook_throws_and_names_the_unit, kOfB0,
            [](ShardedNet& one) {
              one.net->blocks[0]->forward_twice(at::ones({2, 7}));
            })

MISUSE_TEST(StorageGuard, converting_a_sharded_module_throws_and_names_a_unit, kOfB0,
            [](ShardedNet& one) { one.net->to(at::kDouble); })

MISUSE_TEST(StorageGuard, reading_a_sharded_parameter_of_the_root_throws_and_names_the_root,
            "parameter scale of unit root", [](ShardedNet& one) { one.net->scale.sum(); })

MISUSE_TEST(StorageGuard, saving_a_sharded_module_throws, "sharded now", [](ShardedNet& one) {
  torch::serialize::OutputArchive archive;
  one.net->save(archive);
  std::ostringstream text;
  archive.save_to(text);
})

MISUSE_TEST(StorageGuard, saving_a_list_of_sharded_parameters_throws, "sharded now",
            [](ShardedNet& one) {
              std::ostringstream text;
              torch::save(one.net->parameters(), text);
            })

MISUSE_TEST(StorageGuard, loading_into_a_sharded_module_throws, "sharded now", [](ShardedNet& one) {
  torch::serialize::OutputArchive archive;
  block_net()->save(archive);
  std::stringstream text;
  archive.save_to(text);
  torch::serialize::InputArchive loaded;
  loaded.load_from(text);
  one.net->load(loaded);
})

// Returns a tensor [16] on a guarded storage of 64 bytes that has no memory yet. An operator that
// reads the tensor throws until resize_storage() gives memory to the storage.
at::Tensor guarded() {
  const c10::Storage storage = storage_of_no_bytes(c10::kCPU);
  guard_storage(storage, "it is away", 64);
  return view_of_storage(storage, 0, {16});
}

MULTI_RANK_TEST(StorageGuard,
                a_guarded_storage_that_gets_memory_again_is_usable_and_live_bytes_are_exact) {
  run_ranks(world_size(), [](TestRank&) {
    const int64_t before = live_bytes::now().total;
    const at::Tensor tensor = guarded();
    for (const float value : {1.F, 2.F}) {
      EXPECT_TRUE(is_freed(tensor));
      EXPECT_EQ(live_bytes::now().total, before);
      EXPECT_CONTAINS(error_of<c10::Error>([&] { tensor.sum(); }), "it is away");
      EXPECT_EQ(tensor.storage().nbytes(), 64U);
      resize_storage(tensor.storage(), 64);
      EXPECT_FALSE(is_freed(tensor));
      EXPECT_EQ(live_bytes::now().total, before + 64);
      EXPECT_EQ(at::Tensor(tensor).fill_(value).sum().item<float>(), 16 * value);
      resize_storage(tensor.storage(), 0);
    }
  });
}

MULTI_RANK_TEST(StorageGuard,
                is_freed_is_true_for_a_tensor_whose_unguarded_storage_has_too_few_bytes) {
  run_ranks(world_size(), [](TestRank&) {
    const c10::Storage storage = storage_of_no_bytes(c10::kCPU);
    const at::Tensor tensor = view_of_storage(storage, 0, {4});
    EXPECT_FALSE(is_guarded(storage));
    EXPECT_TRUE(is_freed(tensor));
    resize_storage(storage, 12);
    EXPECT_TRUE(is_freed(tensor));
    resize_storage(storage, 16);
    EXPECT_FALSE(is_freed(tensor));
    resize_storage(storage, 0);
    EXPECT_EQ(storage.nbytes(), 0U);
    EXPECT_TRUE(is_freed(tensor));
    EXPECT_FALSE(is_freed(at::empty({0})));
  });
}

}  // namespace
}  // namespace fsdp
