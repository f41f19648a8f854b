#pragma once

#include <c10/util/intrusive_ptr.h>
#include <comm/group.h>
#include <comm/shared_region.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace fsdp {

// Where the ranks of `group` meet to connect. `timeout` limits every wait for one of them.
// Throws std::runtime_error if there is no /proc, through which they meet.
c10::intrusive_ptr<c10d::Store> rendezvous_of(const Group& group, const SharedRegion& shared,
                                              std::chrono::milliseconds timeout);

}  // namespace fsdp
