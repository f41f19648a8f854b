#pragma once

#include <comm/communicator.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Collective over the ranks of `comm`. Returns the `text` of each of these ranks, in the order of
// ranks. If the model has replicas, these are the ranks of one replica. Takes two all-gathers, or
// one if all texts are empty.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& text);

// Collective. Returns the `text` of each rank of every replica, in the order of global ranks.
std::vector<std::string> gather_all_texts(Communicator& comm, const std::string& text);

// Collective. Runs `action` on every rank; `action` itself must call no collective. If `action`
// throws a std::exception on any rank of any replica, agree_on() throws std::runtime_error on all
// ranks, with the text of the exception of the lowest rank that failed. So no rank continues and
// waits for a rank that has failed.
void agree_on(Communicator& comm, const std::function<void()>& action);
// Collective. Runs `action` only on global rank 0. If `action` throws a std::exception there,
// agree_on_rank_0() throws std::runtime_error on all ranks, with the text of that exception.
void agree_on_rank_0(Communicator& comm, const std::function<void()>& action);
// Collective. Runs `action` on every rank. Returns the text that `action` has returned on each rank
// of this replica, in the order of ranks. Throws as agree_on() does.
std::vector<std::string> agreed_texts(Communicator& comm,
                                      const std::function<std::string()>& action);

}  // namespace fsdp
