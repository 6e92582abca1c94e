// SPDX-License-Identifier: Apache-2.0
// Host classes: which ranks of an orbit stand alike among the hosts, for counts of what crosses
// between these.
//
// An orbit's ranks are told apart by how far the symmetry's moves took them from the
// representative. Two of them are of one class where a move takes one to the other and hosts to
// hosts; the classes of an orbit are numbered alike for all orbits. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/symmetry.hpp"

namespace tutti {

class HostClasses {
 public:
  // One class where all ranks are on one host. `hosts` is numbered from 0, and outlives this;
  // representatives send `messages` to each other's orbits, for which kMostCarried is the bound.
  HostClasses(const Symmetry& symmetry, std::span<const std::int32_t> hosts,
              std::int32_t host_count, std::uint64_t messages);

  [[nodiscard]] std::uint32_t count() const { return groups_ * members_; }  // of each orbit
  [[nodiscard]] std::uint32_t of(Rank rank) const;
  // Are ranks taken to stand along a line of equal hosts, as these are too many to tell apart?
  [[nodiscard]] bool approximate() const { return line_; }

  // Says where the image of a representative's message goes, and whether that is another host.
  struct Way {
    std::uint32_t to;  // class
    bool far;
  };
  // The image that the orbit's rank of class `from` sends.
  [[nodiscard]] Way way(Rank representative, Rank peer, std::uint32_t from) const;

 private:
  [[nodiscard]] Rank first_kept(Move move, Rank unit, Rank count, std::int32_t host_count) const;
  [[nodiscard]] bool keeps_hosts(Rank to, std::int32_t host_count) const;

  Symmetry symmetry_;
  std::span<const std::int32_t> hosts_;
  Rank ranks_;
  // By how many groups and members ranks of one class lie apart; 1 also where none are moved.
  std::uint32_t groups_ = 1, members_ = 1;
  bool line_ = false;
};

}  // namespace tutti
