#pragma once

#include <base/torch.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace fsdp {

// The settings of a thread on which the results of a forward depend: autocast (for each device
// whether it is on and its dtype; and whether it keeps casts), the modes of autograd, and the
// dispatch keys that guards have included or excluded. The default dtype, which is the process's,
// is one of them too.
class ThreadSettings {
 public:
  ThreadSettings();                            // those of this thread, as they are now
  void restore() const;                        // gives them to this thread
  bool autocast() const { return autocast_; }  // whether autocast is on for some device

 private:
  c10::impl::LocalDispatchKeySet keys_;  // among them: whether autocast is on
  c10::AutogradState modes_;
  std::vector<at::ScalarType> autocast_dtypes_;  // of each device type that has autocast
  bool autocast_{}, keeps_casts_{};
  caffe2::TypeMeta default_dtype_;
};

}  // namespace fsdp
