// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/registrations.hpp"

#include <unistd.h>

#include <algorithm>

namespace tutti::verbs {

Result<std::uint64_t> Registrations::add(std::span<std::byte> memory) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uint64_t begin = address / page * page;
  const std::uint64_t end = (address + memory.size() + page - 1) / page * page;
  auto entry =
      std::ranges::find_if(entries_, [&](const Entry& it) { return covers(it, begin, end); });
  if (entry == entries_.end()) {
    TUTTI_TRY_ASSIGN(Memory registered,
                     port_.register_memory({memory.data() - (address - begin), end - begin}, 0));
    entry = entries_.insert(entry, {.key = ++last_key_,
                                    .begin = begin,
                                    .end = end,
                                    .holders = 0,
                                    .memory = std::move(registered)});
  }
  ++entry->holders;
  return entry->key;
}

void Registrations::remove(std::uint64_t key) {
  const auto entry = std::ranges::find(entries_, key, &Entry::key);
  if (entry != entries_.end() && --entry->holders == 0) entries_.erase(entry);
}

std::optional<std::uint32_t> Registrations::local_key(std::span<const std::byte> memory) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto entry = std::ranges::find_if(
      entries_, [&](const Entry& it) { return covers(it, begin, begin + memory.size()); });
  if (entry == entries_.end()) return std::nullopt;
  return entry->memory->lkey;
}

}  // namespace tutti::verbs
