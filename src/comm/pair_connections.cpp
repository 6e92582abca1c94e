// SPDX-License-Identifier: Apache-2.0
#include "comm/pair_connections.hpp"

#include <utility>

#include "base/clock.hpp"
#include "transports/connection_ops.hpp"

namespace tutti {

PairFlow& PairConnections::make_flow(Rank peer, Collective direction) {
  if (flows_.empty()) flows_.resize(2 * static_cast<std::size_t>(members_.ranks()));
  std::unique_ptr<PairFlow>& flow = flows_[index_of(peer, direction)];
  flow =
      std::make_unique<PairFlow>(PairFlow{.peer = peer, .sends = direction == Collective::kSend});
  return *flow;
}

Status PairConnections::open(PairFlow& flow) {
  if (flow.form != PairFlow::Form::kClosed) return {};
  if (flow.sends)
    TUTTI_TRY(transport_->connect(flow.peer, Deadline::in_ns(members_.config().op_timeout_ns)));
  const Rank source = flow.sends ? members_.rank() : flow.peer;
  const Rank destination = flow.sends ? flow.peer : members_.rank();
  const ConnectionSpec spec = slots_.spec(source, destination);
  TUTTI_TRY_ASSIGN(flow.connection,
                   flow.sends ? transport_->open_send(spec) : transport_->open_recv(spec));
  if (transport_->shares_with(flow.peer)) {
    flow.form = PairFlow::Form::kRing;
    flow.ring = PairSlots::ring_in(flow.connection);
    flow.message_bytes = flow.ring.message_bytes();
  } else {
    flow.form = PairFlow::Form::kSlots;
    begin_operation(flow.connection, 0);
    flow.message_bytes = capacity_bytes(flow.connection);
  }
  return {};
}

PartOf PairConnections::part_of(Whole whole, std::uint64_t made_by) {
  if (whole == Whole::kItself) return {};
  if (std::exchange(made_by_, made_by) != made_by) ++calls_of_parts_;
  return {whole, calls_of_parts_};
}

std::set<Rank> PairConnections::connected() const {
  std::set<Rank> peers;
  for (const std::unique_ptr<PairFlow>& flow : flows_)
    if (flow != nullptr && flow->form != PairFlow::Form::kClosed) peers.insert(flow->peer);
  return peers;
}

}  // namespace tutti
