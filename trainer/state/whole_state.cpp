#include <agreement/agreement.h>
#include <digest/sha256.h>
#include <state/whole_state.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace fsdp {

WholeState::WholeState(ModelState state, Communicator& comm)
    : state_(std::move(state)), comm_(comm), owners_(state_.parameters.size()) {
  std::map<std::string, size_t> places;
  for (const auto& parameter : state_.parameters)
    places.emplace(parameter.name, places.size());
  auto rows = nlohmann::json::array();
  for (const StateRange& range : state_.ranges) {
    std::array<bool, kStateKinds.size()> has{};
    for (const StateKind kind : kStateKinds)
      has[static_cast<size_t>(kind)] = tensor_of(range, kind).defined();
    rows.push_back({places.at(range.parameter), range.begin, range.end, has});
  }
  const auto of_ranks = gather_texts(comm_, rows.dump());
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    size_t index = 0;
    for (const auto& row : nlohmann::json::parse(of_ranks[rank])) {
      auto& owners = owners_.at(row[0]);
      const Owner owner{static_cast<int>(rank), index++, row[1], row[2], row[3]};
      const bool copy = std::ranges::any_of(owners, [&](const Owner& lower) {
        return lower.begin == owner.begin && lower.end == owner.end;
      });
      if (!copy) owners.push_back(owner);
    }
  }
  for (auto& owners : owners_)
    std::ranges::sort(owners, {}, &Owner::begin);
  check();
}

void WholeState::check() const {
  for (size_t i = 0; i < owners_.size(); ++i) {
    int64_t end = 0;
    for (const Owner& owner : owners_[i])
      end = owner.begin == end ? owner.end : -1;
    if (end != state_.parameters[i].numel()) {
      throw std::logic_error("the ranges of all ranks do not cover the parameter " +
                             state_.parameters[i].name + " once");
    }
  }
}

std::vector<StateRange> WholeState::owned() const {
  std::vector<StateRange> owned;
  for (const auto& owners : owners_)
    for (const Owner& owner : owners)
      if (owner.rank == comm_.rank()) owned.push_back(state_.ranges[owner.range]);
  return owned;
}

at::ScalarType WholeState::dtype(const std::string& parameter, StateKind kind) const {
  if (kind != StateKind::parameter) return at::kFloat;
  return std::ranges::find(state_.parameters, parameter, &ModelState::Parameter::name)->dtype;
}

bool WholeState::has(size_t parameter, StateKind kind) const {
  const auto& owners = owners_[parameter];
  return kind == StateKind::parameter ||
         (!owners.empty() && owners.front().has[static_cast<size_t>(kind)]);
}

void WholeState::visit(size_t parameter, StateKind kind, const Visitor& visit) const {
  if (!has(parameter, kind)) return;
  for (const Owner& owner : owners_[parameter]) {
    at::Tensor elements;
    if (owner.rank == comm_.rank()) {
      elements = tensor_of(state_.ranges[owner.range], kind).detach().reshape({-1});
    } else {
      const int64_t numel = kind == StateKind::step ? 1 : owner.end - owner.begin;
      elements = at::empty(
          {numel},
          at::TensorOptions(dtype(state_.parameters[parameter].name, kind)).device(comm_.device()));
    }
    if (owner.rank != 0) comm_.broadcast(elements, owner.rank, kState).wait();
    if (comm_.rank() == 0) visit(elements.cpu());
    if (kind == StateKind::step) return;
  }
}

std::string state_sha256(ModelState state, Communicator& comm) {
  const WholeState whole(std::move(state), comm);
  Sha256 hash;
  for (size_t i = 0; i < whole.parameters().size(); ++i) {
    for (const StateKind kind : kStateKinds) {
      whole.visit(i, kind, [&](const at::Tensor& elements) {
        hash.update({static_cast<const std::byte*>(elements.data_ptr()), elements.nbytes()});
      });
    }
  }
  return comm.rank() == 0 ? hash.hex() : "";
}

}  // namespace fsdp
