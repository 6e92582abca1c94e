// The start's exchange about topology: hosts' graphs come together on rank 0, which merges them and
// decides in which order ranks stand in rings and trees; its decision goes to all.
//
// It takes place only where places differ (layout_matters); a job on a host whose places are all
// alike pays nothing. One rank a host, the lowest, discovers. What is wrong with a description
// costs a warning and the order of the ranks' numbers, never the job.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "runtime/control/control_plane.hpp"
#include "runtime/settings.hpp"
#include "schedule/rank_order.hpp"
#include "topology/seat.hpp"

namespace tutti {

// Which rank takes which place, by algorithm; equal on all ranks. Immutable; any thread.
class RankOrders {
 public:
  static constexpr std::size_t kMostRings = 8;

  RankOrders() = default;
  // rings: 1 to kMostRings; more are left out.
  RankOrders(std::vector<RankOrder> rings, RankOrder tree);

  // The rings' for all but trees, one a replica (PlanOptions::orders); by number where everybody
  // talks to everybody, so that what is summed in the order of ranks stays so. O(log ranks) to
  // O(ranks).
  [[nodiscard]] const std::vector<RankOrder>& of(const Algorithm& algorithm,
                                                 std::int32_t ranks) const;
  [[nodiscard]] bool are_by_number() const;
  // "0 2 1 3 in rings, by number in trees"; of many ranks the first ones.
  [[nodiscard]] std::string text() const;
  // As bytes of one length for so many ranks, and 0 where they are by number.
  [[nodiscard]] static std::size_t encoded_bytes(std::int32_t ranks);
  [[nodiscard]] std::vector<std::byte> encode(std::int32_t ranks) const;
  [[nodiscard]] std::uint64_t hash(std::int32_t ranks) const;
  // kInvalidUsage: no orders of so many ranks, or not those with that hash; from rank 0.
  [[nodiscard]] static Result<RankOrders> decode(std::span<const std::byte> bytes,
                                                 std::int32_t ranks, std::uint64_t hash);
  bool operator==(const RankOrders&) const = default;

 private:
  std::vector<RankOrder> rings_{RankOrder()};
  std::vector<RankOrder> tree_{RankOrder()};  // one
};

// What a rank knows of itself before the settings are exchanged.
struct OwnPlace {
  topology::Seat seat;
  topology::Interest interest = topology::Interest::kNone;
};
[[nodiscard]] OwnPlace look_at_own_place(const Config& config, Rank rank,
                                         const std::vector<PeerInfo>& peers);
[[nodiscard]] std::uint64_t seat_hash(const topology::Seat& seat);

// Is there anything to lay out? All ranks find the same.
[[nodiscard]] bool layout_matters(std::span<const Settings> all,
                                  const std::vector<PeerInfo>& peers);

struct AgreedLayout {
  RankOrders orders;
  std::string groups;  // RankLayout::groups, at most what Settings holds
  std::string source;
};
// Collective, where layout_matters() on all ranks. Rank 0 has the layout afterwards, the others
// have an empty one. Errors: those of the exchange.
[[nodiscard]] Result<AgreedLayout> gather_layout(ControlPlane& control, const Config& config,
                                                 const Log& log, const topology::Seat& seat,
                                                 Deadline deadline);

}  // namespace tutti
