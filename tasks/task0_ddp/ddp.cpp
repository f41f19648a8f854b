#include <base/todo.h>
#include <ddp.h>

namespace fsdp {

void all_reduce_gradients(const std::vector<NamedParameter>& parameters, Communicator& comm) {
  todo("all_reduce_gradients", "0.1");
}

std::unique_ptr<BucketReducer> make_bucket_reducer(const std::vector<std::vector<int64_t>>& shapes,
                                                   BucketSizes sizes,
                                                   std::shared_ptr<Communicator> comm) {
  todo("make_bucket_reducer", "0.2");
}

std::unique_ptr<DataParallel> make_data_parallel(Module& model, std::shared_ptr<Communicator> comm,
                                                 BucketSizes sizes) {
  todo("make_data_parallel", "0.3");
}

}  // namespace fsdp
