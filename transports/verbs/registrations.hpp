// SPDX-License-Identifier: Apache-2.0
// Which of the user's memory the adapter may read: a cache of registrations. One that covers what
// is asked for is used again, since registering pins pages and takes the adapter's word for each.
//
// Only what the user has named is held here, and as long as the user says: memory that is freed and
// mapped anew behind a registration's back would be sent as it was. The user's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "transports/verbs/port.hpp"

namespace tutti::verbs {

class Registrations {
 public:
  explicit Registrations(const Port& port) : port_(port) {}

  // All pages that `memory` touches; the key is for remove(). Error: that of
  // Port::register_memory.
  [[nodiscard]] Result<std::uint64_t> add(std::span<std::byte> memory);
  // The last who holds it gives the pages back.
  void remove(std::uint64_t key);
  // The key with which this rank's own requests read all of it; none: it is not registered.
  [[nodiscard]] std::optional<std::uint32_t> local_key(std::span<const std::byte> memory) const;
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint64_t begin = 0, end = 0;
    std::uint64_t holders = 0;
    Memory memory = no_memory();
  };
  [[nodiscard]] static bool covers(const Entry& entry, std::uint64_t begin, std::uint64_t end) {
    return entry.begin <= begin && end <= entry.end;
  }

  const Port& port_;
  std::vector<Entry> entries_;
  std::uint64_t last_key_ = 0;
};

}  // namespace tutti::verbs
