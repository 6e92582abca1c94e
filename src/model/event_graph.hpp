// SPDX-License-Identifier: Apache-2.0
// Event graph: the steps and messages of a plan's ranks in flat arrays, for price and simulator.
//
// Programs are read rank by rank and dropped; what stays is about 50 bytes a step. Every message is
// known to the step that sends it and to the one that receives it: schedules are balanced, so the
// k-th message of a connection within a slice is the k-th in every slice.
//
// Where the algorithm's symmetry moves whole nodes of the network to nodes, only representative
// ranks are held: a message to or from another rank is that of its image among them, on the links
// of the image's node. (The links of a node carry the images of what the links of every node
// carry.) `order` makes a walk of all ranks decide ties as a walk of the representatives does.
//
// Immutable once built; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "model/network.hpp"

namespace tutti {

struct EventGraph {
  struct Step {
    std::uint32_t first_receive, first_send, first_wait, first_dependent;  // to those of the next
    std::uint32_t lane;
    std::uint32_t order;           // of ties in time: the same for the images of one step
    std::uint32_t remotes;         // operands in a peer's memory
    std::uint32_t remote_chunks;   // their chunks, all together
    std::uint32_t store_chunks;    // of those, in destinations
    std::uint64_t operand_chunks;  // of all operands, those included
  };
  struct Lane {
    std::uint32_t first_step, step_count;
    std::uint32_t rank;  // index in `ranks`
    std::uint32_t replica;
  };
  // An awaited step, or one that waits, and how many rounds lie between.
  struct Wait {
    std::uint32_t step, back;
  };
  struct Message {
    std::uint32_t send_step, receive_step;
    std::uint32_t connection;
    std::uint32_t chunks;
  };
  struct Connection {
    std::uint32_t first_message, message_count;  // of one slice
    std::uint32_t first_link;                    // in `route_links`
    std::uint8_t link_count;
    Hop hop;
    Rank peer;  // that receives, before it is folded to its representative
    double latency_ns;
    double ns_per_byte;  // of the route, at its slowest link
  };

  std::vector<Step> steps;  // and one more, where the lists of the last end
  std::vector<Lane> lanes;
  std::vector<std::uint32_t> receives, sends;  // messages, step by step
  std::vector<Wait> waits;                     // step by step: what it waits for
  std::vector<Wait> dependents;                // step by step: what waits for it
  std::vector<Message> messages;
  std::vector<Connection> connections;
  std::vector<LinkId> route_links;
  std::vector<double> link_ns_per_byte;  // of the represented nodes
  std::vector<Rank> ranks;               // those represented, ascending
  std::int32_t pool_ranks = 1, pool_workers = 1;
  double represented = 1;  // ranks that each of them stands for
  std::uint32_t chunks = 1;
  std::uint32_t replicas = 1;
  std::uint32_t max_back = 0;
  std::uint32_t least_messages = 1, most_messages = 0;  // of a connection, in a slice

  [[nodiscard]] std::uint32_t step_count() const {
    return static_cast<std::uint32_t>(steps.size() - 1);
  }

  struct Options {
    std::uint32_t replicas = 1;
    bool every_rank = false;  // no representatives
    std::size_t most_events = kMostEvents;
  };
  // Steps and messages of a graph: 6 GB. Ids have 32 bits.
  static constexpr std::size_t kMostEvents = std::size_t{1} << 27;
  // Errors: check_problem's; kInvalidArgument where the ranks are not the network's;
  // kNotSupported where it would be too large; kInternalError names a message without a receiver.
  [[nodiscard]] static Result<EventGraph> build(const Algorithm& algorithm, const Problem& problem,
                                                const Network& network, const Options& options);
};

}  // namespace tutti
