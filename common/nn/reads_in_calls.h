#pragma once

namespace fsdp {

// A model derives from this class too if each of its parameters is read in calls, module(x), of the
// modules that have registered it, and nowhere else. A function of the model or of the loss that
// takes a module's weight, as a head without a module of its own does, reads it elsewhere.
//
// Of such a model FSDP knows by the calls when backward has read the root's parameters for the last
// time, and frees them there, if the modules that have them are children of the model. Those of
// every other model stay unsharded to the end of the pass. If a model that derives from this class
// reads a parameter elsewhere, backward may find it freed.
class ReadsInCalls {
 protected:
  ~ReadsInCalls() = default;
};

}  // namespace fsdp
