#include <memory/storage_guard.h>
#include <torch/version.h>

#include <memory>

namespace fsdp {
namespace {

static_assert(
    TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11 && TORCH_VERSION_MINOR <= 15,
    "this file was tried with LibTorch 2.11 to 2.15: compare what c10::StorageImpl does "
    "with the two members below, run the tests StorageGuard.*, then widen the range here");

// c10::StorageImpl has a function that makes access to its data throw, but none that allows access
// again. So this file changes two private members of c10::StorageImpl. C++ allows an explicit
// template instantiation to name private members.
bool& throws(c10::StorageImpl& storage);
std::unique_ptr<c10::StorageExtraMeta>& extra_meta(c10::StorageImpl& storage);

template <bool c10::StorageImpl::*Member>
struct ThrowsMember {
  friend bool& throws(c10::StorageImpl& storage) { return storage.*Member; }
};
template struct ThrowsMember<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

template <std::unique_ptr<c10::StorageExtraMeta> c10::StorageImpl::*Member>
struct ExtraMetaMember {
  friend std::unique_ptr<c10::StorageExtraMeta>& extra_meta(c10::StorageImpl& storage) {
    return storage.*Member;
  }
};
template struct ExtraMetaMember<&c10::StorageImpl::extra_meta_>;

}  // namespace

void guard_storage(const c10::Storage& storage, const std::string& message, int64_t bytes) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  impl.release_data_and_set_meta_custom_data_ptr_error_msg_(message);
  impl.set_nbytes(static_cast<size_t>(bytes));
}

void set_guard_message(const c10::Storage& storage, const std::string& message) {
  extra_meta(*storage.unsafeGetStorageImpl())->custom_data_ptr_error_msg_ = message;
}

bool is_guarded(const c10::Storage& storage) {
  const auto& meta = extra_meta(*storage.unsafeGetStorageImpl());
  return meta && meta->custom_data_ptr_error_msg_.has_value();
}

void refuse_access(const c10::Storage& storage, bool refused) {
  throws(*storage.unsafeGetStorageImpl()) = refused;
}

bool is_freed(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return false;
  const c10::Storage& storage = tensor.storage();
  return storage.nbytes() < tensor.nbytes() || throws(*storage.unsafeGetStorageImpl());
}

}  // namespace fsdp
