#pragma once

#include <comm/communicator.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Returns what each rank passes as `text`, in the order of ranks. Collective: two all-gathers, or
// one if all texts are empty.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& text);

// Returns what each rank of all replicas passes as `text`, in the order of global ranks.
// Collective.
std::vector<std::string> gather_all_texts(Communicator& comm, const std::string& text);

// Collective. Runs `action` on every rank; `action` itself must call no collective. If `action`
// throws a std::exception on any rank of any replica, agree_on() throws std::runtime_error on all
// ranks with the text of the lowest rank that failed. So no rank continues and waits for a rank
// that has failed.
void agree_on(Communicator& comm, const std::function<void()>& action);
// Collective. Runs `action` only on global rank 0. Throws as agree_on() does.
void agree_on_rank_0(Communicator& comm, const std::function<void()>& action);
// Runs `action` on every rank and returns the result of every rank of this replica, by rank.
// Collective; throws as agree_on() does.
std::vector<std::string> agreed_texts(Communicator& comm,
                                      const std::function<std::string()>& action);

}  // namespace fsdp
