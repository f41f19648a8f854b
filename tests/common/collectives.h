#pragma once

#include <comm/communicator.h>
#include <testing/channel.h>
#include <testing/multi_rank.h>

namespace fsdp {

inline void all_gather(Communicator& comm, const std::string& unit, int64_t n = 8) {
  comm.all_gather_into(at::zeros({comm.world_size() * n}), at::zeros({n}), unit).wait();
}

// Calls every collective on values that depend on `number`. Sends the results to `channel`, one
// frame for each of the four collectives that have a result; barrier() has none.
inline void send_collectives(Communicator& comm, int number, Channel& channel) {
  at::set_num_threads(1);
  const int64_t world = comm.world_size();
  const at::Tensor mine =
      at::sin(at::arange(world * 5, at::kFloat) + 0.1 * static_cast<double>(number));
  const at::Tensor all = at::empty({world * world * 5}), part = at::empty({5});
  comm.all_gather_into(all, mine, "a").wait();
  comm.reduce_scatter_into(part, mine, "b").wait();
  const at::Tensor sum = mine.clone(), last = mine.clone();
  comm.all_reduce(sum, "c").wait();
  comm.broadcast(last, static_cast<int>(world) - 1, "d").wait();
  comm.barrier("e").wait();
  for (const at::Tensor& result : {all, part, sum, last})
    channel.send(to_observation(result));
}

}  // namespace fsdp
