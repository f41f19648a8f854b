#pragma once

namespace fsdp {

// A model should also derive from this class if each of its parameters is read only in calls,
// module(x), of the modules that have registered it. A model does not qualify if one of its
// functions, or the loss, uses a module's weight directly, for example to compute the logits from
// the weight of the embedding without a module for the head.
//
// For a model of this class, FSDP knows from the calls when the backward pass has read the root's
// parameters for the last time. At that moment FSDP reshards these parameters, if each of them is
// registered by the model itself or by a direct child of the model. (root_readers.h lists the other
// conditions.) For every other model, the root's parameters stay unsharded to the end of the
// backward pass. If a model of this class reads a parameter outside such a call, the backward pass
// may find the parameter freed.
class ReadsInCalls {
 protected:
  ~ReadsInCalls() = default;
};

}  // namespace fsdp
