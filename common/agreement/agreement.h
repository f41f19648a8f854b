#pragma once

#include <comm/communicator.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// The text of every rank, by rank. All ranks call it together: two all-gathers.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& text);

// The same of the ranks of all replicas, by global rank.
std::vector<std::string> gather_all_texts(Communicator& comm, const std::string& text);

// Runs `action`, which calls no collective. If it threw a std::exception on some ranks, of any
// replica, throws std::runtime_error on all ranks, with what one of them said. So no rank goes on
// to wait for one that has given up. All ranks call it together.
void agree_on(Communicator& comm, const std::function<void()>& action);
// Runs it on global rank 0 alone.
void agree_on_rank_0(Communicator& comm, const std::function<void()>& action);
// Returns what it returned on every rank, by rank.
std::vector<std::string> agreed_texts(Communicator& comm,
                                      const std::function<std::string()>& action);

}  // namespace fsdp
