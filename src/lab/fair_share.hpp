// SPDX-License-Identifier: Apache-2.0
// Fair share: max-min fair rates of flows over links, kept up as flows come and go.
//
// A rate is max-min fair if no flow can have more without taking from one that has no more itself:
// every flow either goes as fast as it may alone or crosses a full link on which nobody is faster.
// (Bertsekas, Gallager: Data Networks, 1992, section 6.5.2.) There is one such set of rates, and
// progressive filling finds it: all flows grow alike until a link is full or a flow at its limit;
// those stay, the others go on.
//
// Rates are whole multiples of kUnit, so that no rate hangs on the order of flows and links: like
// flows have like rates to the last bit, end together, and are filled anew once, not one by one.
//
// Only flows that are connected with a change, by links that they share, are filled anew. A flow
// that names a link twice takes its rate there twice. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "model/network.hpp"

namespace tutti {

class FairShare {
 public:
  using FlowId = std::uint32_t;  // of a removed flow, given again to a later one
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  static constexpr double kUnit = 0x1p-44;  // bytes/ns: 6e-5 bytes a second
  static constexpr double kMost = 0x1p18;   // bytes/ns: 262 TB/s, and more is no limit

  // Bytes/ns. A capacity of kNoLimit is none.
  explicit FairShare(std::vector<double> capacities);

  // `most`: what a member reaches alone. One member, without a rate before the next update().
  FlowId add(std::span<const LinkId> links, double most);
  void resize(FlowId flow, std::uint32_t members);  // at least 1
  void remove(FlowId flow);
  // Rates of members after all changes since the last call. The flows whose rate is another one
  // than before, until the next call.
  std::span<const FlowId> update();
  using Units = std::int64_t;
  static constexpr Units kNoUnits = std::numeric_limits<Units>::max();
  // Returns the units of a member, at least 1.
  [[nodiscard]] Units units(FlowId flow) const { return flows_[flow].rate; }
  [[nodiscard]] double rate(FlowId flow) const {
    return units(flow) == kNoUnits ? kNoLimit : static_cast<double>(units(flow)) * kUnit;
  }

 private:
  [[nodiscard]] static Units units_of(double rate);

  struct Flow {
    std::array<LinkId, Route::kMostLinks> links;
    std::array<std::uint32_t, Route::kMostLinks> places;  // in the links' lists
    std::uint32_t link_count = 0;
    std::uint32_t members = 1;
    std::uint32_t seen = 0;
    Units most = 0;
    Units rate = 0, before = 0;
    bool fixed = false;
  };
  struct Place {
    FlowId flow;
    std::uint32_t which;  // of its links
  };
  struct Link {
    Units capacity = 0;
    std::vector<Place> flows;
    Units left = 0;          // while filling
    std::uint32_t open = 0;  // members that still grow
    std::uint32_t seen = 0;
    [[nodiscard]] Units share() const { return left / open; }
  };
  struct Share {
    Units share;
    LinkId link;
    [[nodiscard]] bool operator>(const Share& other) const {
      return share != other.share ? share > other.share : link > other.link;
    }
  };

  void touch(LinkId link);
  void find_connected();
  void fill();
  void fix(FlowId flow, Units rate);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<FlowId> free_, fresh_;  // fresh: added since the last update
  std::vector<LinkId> touched_;
  std::uint32_t round_ = 0;
  std::vector<FlowId> reached_, changed_;
  std::vector<LinkId> reached_links_, full_links_;
  std::size_t growing_ = 0;
};

}  // namespace tutti
