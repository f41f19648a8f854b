#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <comm/communicator_state.h>
#include <comm/recording.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>
#include <transports/backends.h>
#include <transports/remote_ledger.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

// Connects the ranks: defines Communicator::create() and create_hybrid(). comm/communicator.h
// declares them, but they cannot be defined in comm/, which does not know the transports.
namespace fsdp {
namespace {

std::shared_ptr<CommunicatorState> make_state(const RankContext& context,
                                              const CommunicatorOptions& options) {
  if (!context.shared) throw std::invalid_argument("a Communicator needs a rank made by start()");
  context.shared->wait_at_most(options.timeout);
  CallRings rings(context.shared->call_rings(), Group::world(context.world_size));
  // If a launcher has started the ranks, each rank is forked by a process of its own, which may be
  // killed together with the rank and then cannot report the end of the rank. So the other ranks
  // themselves check whether the process of this rank exists.
  if (context.hosts) rings.register_process(context.rank, getpid());
  const auto state = std::make_shared<CommunicatorState>();
  state->global_rank = context.rank;
  state->device = options.device;
  state->fault = options.fault;
  state->clock = options.clock;
  state->keep_log = options.keep_log;
  state->place = rings.acquire_set(context.rank, options.timeout);
  state->gives_place_back = std::shared_ptr<void>(
      nullptr, [rings, rank = context.rank, set = state->place.set,
                shared = context.shared](void*) mutable { rings.release_set(rank, set); });
  return state;
}

Connection connect(const RankContext& context, const CommunicatorOptions& options,
                   const CommunicatorState& state, Group group) {
  group.communicator = state.place.communicator;
  Connection connection;
  connection.backend = choose_backend(context, options, group);
  connection.compare = comparison_over(connection.backend, context, options);
  connection.ledger = make_ledger(
      context, CallRings(context.shared->call_rings(), group, state.place.set), options.timeout);
  connection.transport =
      recorded(make_transport(connection.backend, context, connection.ledger, options));
  return connection;
}

}  // namespace

std::shared_ptr<Communicator> Communicator::create(const RankContext& context) {
  return create(context, {});
}

std::shared_ptr<Communicator> Communicator::create(const RankContext& context,
                                                   const CommunicatorOptions& options) {
  const auto state = make_state(context, options);
  state->ranks = connect(context, options, *state, Group::world(context.world_size));
  return std::shared_ptr<Communicator>(new Communicator(state, state->ranks));
}

std::shared_ptr<Communicator> Communicator::create_hybrid(const RankContext& context,
                                                          const CommunicatorOptions& options,
                                                          int shard_size) {
  const int world = context.world_size;
  if (shard_size < 1 || world % shard_size != 0) {
    throw std::invalid_argument("create_hybrid(): shard_size " + std::to_string(shard_size) +
                                " does not divide " + std::to_string(world) + " ranks");
  }
  if (options.link && shard_size < world) {
    throw std::invalid_argument("create_hybrid(): a simulated link works with one replica only");
  }
  const auto state = make_state(context, options);
  state->ranks = connect(context, options, *state, Group::shards(context.rank, world, shard_size));
  if (shard_size < world) {
    state->replicas =
        connect(context, options, *state, Group::replicas(context.rank, world, shard_size));
  }
  return std::shared_ptr<Communicator>(new Communicator(state, state->ranks));
}

}  // namespace fsdp
