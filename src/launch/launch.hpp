// SPDX-License-Identifier: Apache-2.0
// What a program asks of its launcher: its place, and one unique id for all ranks.
#pragma once

#include "base/log.hpp"
#include "control/control_plane.hpp"
#include "launch/place.hpp"

namespace tutti::launch {

// This process's place; found at the first call and kept. May ask the PMIx server of this host
// (until `deadline`), never waits for another rank. Any thread.
[[nodiscard]] Result<Place> place_of_process(const Config& config, Deadline deadline);

// One id for all ranks: rank 0 makes it and the launcher's store carries it, or every rank makes
// the same from address and secret. Collective where there is a store; every wait ends at
// `deadline`. If rank 0 cannot make the id, all ranks get its error.
[[nodiscard]] Result<UniqueId> meet(const Place& place, const Config& config, Deadline deadline,
                                    const Log& log);

// An id or an error as letters and digits, for a store. `decode_value` gives the error back as
// that of rank 0.
[[nodiscard]] std::string encode_value(const Result<UniqueId>& id);
[[nodiscard]] Result<UniqueId> decode_value(const std::string& value);

}  // namespace tutti::launch
