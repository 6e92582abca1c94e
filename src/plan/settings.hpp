// SPDX-License-Identifier: Apache-2.0
// Settings: what rank 0 decides for all, so that everything that shapes communication is equal on
// all ranks by construction.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "model/device_costs.hpp"
#include "model/host_costs.hpp"
#include "model/machine_profile.hpp"
#include "plan/access.hpp"
#include "plan/forced.hpp"
#include "topology/host_source.hpp"

namespace tutti {

// Plain bytes: exchanged as they are between equal builds.
struct Settings {
  std::uint64_t layout = sizeof(Settings);  // of this struct, and a guard against other builds
  std::uint64_t arena_bytes = 0;
  std::uint64_t slot_bytes = 0;               // forced; 0: by price
  std::uint32_t slots = 0;                    // forced; 0: by price
  std::uint32_t replicas = 0;                 // forced; 0: by price
  std::uint32_t min_slices = 0;               // forced; 0: as few as fit
  std::int32_t cores = 1;                     // rank 0's own, then those of all ranks
  std::array<char, kMaxForcedText> forced{};  // as parse_forced_set takes it; "": by price
  ProtocolChoice protocol = ProtocolChoice::kAuto;
  TransportChoice transport = TransportChoice::kAuto;
  bool fp32_partials = false;
  CostSet costs;                          // among ranks of a host
  DeviceCosts device_costs;               // of a block, where the memory is a device's
  LinkCost flagged_wire{}, slots_wire{};  // between hosts
  // Where the costs come from, for people.
  std::array<char, 96> cost_source{}, device_cost_source{};
  AccessView direct;             // the least of all ranks'
  std::uint64_t table_hash = 0;  // of rank 0's ChoiceTable
  // The hash of rank 0's RankOrders (layout_exchange.hpp); 0: by number.
  std::uint64_t order_hash = 0;
  std::array<char, 96> groups{};  // that hierarchical takes, "2x4"; "": its own

  [[nodiscard]] std::string_view forced_text() const;
  [[nodiscard]] std::string_view group_text() const;
};

// What each rank tells all others of itself. Plain bytes, and few: each rank gets all of them.
struct RankFacts {
  std::uint64_t uniform_hash = 0;  // of its settings: uniform_hash()
  std::uint64_t machine = 0;       // boot_identity(), 0: unknown
  std::uint64_t cores_hash = 0;    // which cores it may use
  std::int32_t cores = 1;          // how many these are
  std::int32_t machine_cores = 1;
  AccessView direct;
  // Is its host worth a look, and where does it sit there?
  topology::Interest interest = topology::Interest::kNone;
  std::uint64_t seat_hash = 0;
};

// Returns the plans that the configuration forces. The errors of parse_forced_set, as
// of_algorithm_setting.
[[nodiscard]] Result<ForcedSet> configured_plans(const Config& config);
// An error of what the configuration forces, with the setting's name; as it is where that is auto.
[[nodiscard]] Error of_algorithm_setting(const Config& config, Error error);
// A rank's own, of which rank 0's hold; what all must set alike is compared. `cores`: those that
// it may use. The errors of configured_plans.
[[nodiscard]] Result<Settings> make_settings(const Config& config, std::int32_t cores);
// Rank 0's: takes the costs of the machine's profile, and gives back what whole operations took, if
// there is a profile. A faulty profile causes one line in the log and is not used.
[[nodiscard]] std::vector<MeasuredPlan> apply_profile(const Config& config, const Log& log,
                                                      Settings& settings);
// Returns what the settings force if `named` forces nothing.
[[nodiscard]] Forced forced_by(const Settings& settings, const Forced& named);
// The environment variables that first_difference() compares, by name.
[[nodiscard]] std::vector<std::string_view> uniform_variables();
// Of what first_difference() compares.
[[nodiscard]] std::uint64_t uniform_hash(const Settings& settings);
// In what two ranks' forced settings differ first, and what each says (of the version: nothing).
struct Difference {
  std::string_view what;
  std::string a, b;
};
[[nodiscard]] std::optional<Difference> first_difference(const Settings& a, const Settings& b);
// Checks what came from a peer: a bad value is refused, never used.
[[nodiscard]] Status check_settings(const Settings& settings);

}  // namespace tutti
