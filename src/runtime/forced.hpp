// What a user forces of a plan by a name, and the name of a whole candidate.
//
//   ALGORITHM[@PROTOCOL[:replicas=N][:slots=N][:slot=BYTES]]
//
// ring, circulant:radix=4, ring@flagged, two_shot@slots:replicas=2:slot=64K, auto@slots. What a
// name leaves out is chosen by price. The same texts go into TUTTI_ALGO, --algo and
// tuttiCommSetAlgorithm, and stand in every explanation. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "algorithms/algorithm.hpp"
#include "runtime/plan.hpp"

namespace tutti {

struct Forced {
  std::string name;                      // as given; "": nothing is forced
  const Algorithm* algorithm = nullptr;  // null: by price
  std::optional<Protocol> protocol;      // these: nothing or 0 for by price
  std::uint32_t replicas = 0;
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;  // of a slot, its header included
  std::uint32_t min_slices = 0;
};

// "" and "auto" force nothing. kInvalidArgument says what there is.
[[nodiscard]] Result<Forced> parse_forced(std::string_view name);

// The name that forces this candidate, as options were wanted.
[[nodiscard]] std::string plan_name(const Algorithm& algorithm, const PlanOptions& options);

}  // namespace tutti
