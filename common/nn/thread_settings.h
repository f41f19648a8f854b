#pragma once

#include <base/torch.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace fsdp {

// The settings of a thread on which the results of a forward depend:
// - autocast: for each device whether it is on, and its dtype; whether the cache of casts is on;
// - the modes of autograd, and the dispatch keys that guards have included or excluded;
// - the default dtype, which belongs to the process.
class ThreadSettings {
 public:
  ThreadSettings();                            // saves the current settings of this thread
  void restore() const;                        // sets the saved settings in the current thread
  bool autocast() const { return autocast_; }  // whether autocast is on for any device

 private:
  // The dispatch keys that guards have included or excluded. They also say for which devices
  // autocast is on.
  c10::impl::LocalDispatchKeySet keys_;
  c10::AutogradState modes_;
  // The dtype of autocast on each device type that supports autocast.
  std::vector<at::ScalarType> autocast_dtypes_;
  bool autocast_{}, keeps_casts_{};
  caffe2::TypeMeta default_dtype_;
};

}  // namespace fsdp
