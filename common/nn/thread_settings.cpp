#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <nn/thread_settings.h>

namespace fsdp {

ThreadSettings::ThreadSettings()
    : keys_(c10::impl::tls_local_dispatch_key_set()),
      modes_(c10::AutogradState::get_tls_state()),
      keeps_casts_(at::autocast::is_autocast_cache_enabled()),
      default_dtype_(c10::get_default_dtype()) {
  for (const at::DeviceType device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    autocast_dtypes_.push_back(at::autocast::get_autocast_dtype(device));
    autocast_ = autocast_ || at::autocast::is_autocast_enabled(device);
  }
}

void ThreadSettings::restore() const {
  c10::impl::_force_tls_local_dispatch_key_set(keys_);
  c10::AutogradState::set_tls_state(modes_);
  for (size_t i = 0; i < autocast_dtypes_.size(); ++i)
    at::autocast::set_autocast_dtype(at::autocast::_AUTOCAST_SUPPORTED_DEVICES[i],
                                     autocast_dtypes_[i]);
  at::autocast::set_autocast_cache_enabled(keeps_casts_);
  if (c10::get_default_dtype() != default_dtype_) c10::set_default_dtype(default_dtype_);
}

}  // namespace fsdp
