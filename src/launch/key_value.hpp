// SPDX-License-Identifier: Apache-2.0
// One value goes from rank 0 to all ranks through the launcher's key-value store.
//
// A store is opened, used once and closed: afterwards the launcher sees a process that has left it
// in good order. Collective; every wait ends at the deadline. Values are secrets: nothing here puts
// one into a message.
#pragma once

#include <functional>
#include <string>

#include "base/clock.hpp"
#include "launch/place.hpp"

namespace tutti::launch {

// Letters and digits, at most this many: what every store can hold.
inline constexpr std::size_t kMaxValueBytes = 800;
inline constexpr const char* kValueKey = "tutti-unique-id";

struct StoreCall {
  const Place& place;
  std::string value;  // rank 0's; ignored elsewhere
  Deadline deadline;
};

// PMI-1 spoken on place.pmi_fd, no library needed. Errors: kSystemError (the launcher hung up or
// answered nonsense), kTimeout, kInvalidUsage (MPI in this process uses the descriptor).
[[nodiscard]] Result<std::string> exchange_by_pmi(const StoreCall& call);

// A PMIx server, through libpmix, which is loaded at the first call. Errors: kNotSupported (no
// libpmix), kSystemError, kTimeout.
[[nodiscard]] Result<std::string> exchange_by_pmix(const StoreCall& call);
// Fills in the numbers of `place` that are kUnknown and that only the server knows. Waits for no
// rank.
[[nodiscard]] Status complete_by_pmix(Place& place, Deadline deadline);

}  // namespace tutti::launch
