// SPDX-License-Identifier: Apache-2.0
#include "control/division.hpp"

#include <algorithm>

namespace tutti::control {

Rank Division::leader_of(std::int32_t part) const {
  return part * (ranks_ / roots_) + std::min(part, ranks_ % roots_);
}

std::int32_t Division::part_of(Rank rank) const {
  const std::int32_t size = ranks_ / roots_, larger = ranks_ % roots_;
  const Rank in_larger = larger * (size + 1);  // ranks of the parts that have one more
  return rank < in_larger ? rank / (size + 1) : larger + (rank - in_larger) / size;
}

Circle Division::part_circle(Rank rank) const {
  const std::int32_t part = part_of(rank);
  const Rank first = leader_of(part);
  return {.place = rank - first, .size = ranks_of(part), .rank_at = [first](Rank place) {
            return first + place;
          }};
}

Circle Division::leader_circle(Rank leader) const {
  return {.place = part_of(leader), .size = roots_, .rank_at = [self = *this](Rank place) {
            return self.leader_of(place);
          }};
}

Contacts contacts_at(const Division& division, std::int32_t root, Rank rank,
                     const std::function<const Member&(Rank)>& member_of) {
  Contacts contacts;
  if (division.part_of(rank) == root)
    contacts = find_contacts(division.part_circle(rank), member_of);
  if (root == 0 && division.leads(rank)) {
    const Contacts leaders = find_contacts(division.leader_circle(rank), member_of);
    contacts.insert(contacts.end(), leaders.begin(), leaders.end());
  }
  return contacts;
}

}  // namespace tutti::control
