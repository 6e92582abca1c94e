// SPDX-License-Identifier: Apache-2.0
#include "lab/fair_share.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

namespace tutti {

FairShare::Units FairShare::units_of(double rate) {
  return rate >= kMost ? kNoUnits : static_cast<Units>(std::llround(rate / kUnit));
}

FairShare::FairShare(std::vector<double> capacities) : links_(capacities.size()) {
  for (std::size_t i = 0; i < capacities.size(); ++i) links_[i].capacity = units_of(capacities[i]);
}

void FairShare::touch(LinkId link) { touched_.push_back(link); }

FairShare::FlowId FairShare::add(std::span<const LinkId> links, double most) {
  FlowId id = 0;
  if (free_.empty()) {
    id = static_cast<FlowId>(flows_.size());
    flows_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Flow& flow = flows_[id];
  flow.link_count = 0;
  flow.members = 1;
  flow.most = units_of(most);
  flow.rate = flow.before = 0;
  for (const LinkId link : links) {
    if (links_[link].capacity == kNoUnits) continue;
    flow.links[flow.link_count] = link;
    flow.places[flow.link_count] = static_cast<std::uint32_t>(links_[link].flows.size());
    links_[link].flows.push_back({id, flow.link_count});
    ++flow.link_count;
    touch(link);
  }
  fresh_.push_back(id);
  return id;
}

void FairShare::resize(FlowId id, std::uint32_t members) {
  Flow& flow = flows_[id];
  flow.members = members;
  for (std::uint32_t i = 0; i < flow.link_count; ++i) touch(flow.links[i]);
}

void FairShare::remove(FlowId id) {
  Flow& flow = flows_[id];
  for (std::uint32_t i = 0; i < flow.link_count; ++i) {
    std::vector<Place>& list = links_[flow.links[i]].flows;
    const Place last = list.back();
    list[flow.places[i]] = last;
    flows_[last.flow].places[last.which] = flow.places[i];
    list.pop_back();
    touch(flow.links[i]);
  }
  flow.link_count = 0;
  std::erase(fresh_, id);
  free_.push_back(id);
}

// All flows and links that a touched link reaches.
void FairShare::find_connected() {
  ++round_;
  reached_.clear();
  reached_links_.clear();
  const auto reach_link = [&](LinkId id) {
    if (links_[id].seen == round_) return;
    links_[id].seen = round_;
    reached_links_.push_back(id);
  };
  const auto reach = [&](FlowId id) {
    Flow& flow = flows_[id];
    if (flow.seen == round_) return;
    flow.seen = round_;
    reached_.push_back(id);
    for (std::uint32_t i = 0; i < flow.link_count; ++i) reach_link(flow.links[i]);
  };
  for (const LinkId link : touched_) reach_link(link);
  for (const FlowId flow : fresh_) reach(flow);
  for (std::size_t i = 0; i < reached_links_.size(); ++i)
    for (const Place& place : links_[reached_links_[i]].flows) reach(place.flow);
  touched_.clear();
  fresh_.clear();
}

std::span<const FairShare::FlowId> FairShare::update() {
  find_connected();
  for (const LinkId id : reached_links_) {
    Link& link = links_[id];
    link.left = link.capacity;
    link.open = 0;
  }
  for (const FlowId id : reached_) {
    Flow& flow = flows_[id];
    flow.before = flow.rate;
    flow.fixed = false;
    for (std::uint32_t i = 0; i < flow.link_count; ++i) links_[flow.links[i]].open += flow.members;
  }
  fill();
  changed_.clear();
  for (const FlowId id : reached_)
    if (flows_[id].rate != flows_[id].before) changed_.push_back(id);
  return changed_;
}

void FairShare::fill() {
  // Those with the least limits first; links by the share that they leave, which only grows.
  const auto most_of = [&](FlowId id) { return flows_[id].most; };
  if (!std::ranges::is_sorted(reached_, {}, most_of)) std::ranges::sort(reached_, {}, most_of);
  std::vector<Share> shares, grown;
  for (const LinkId id : reached_links_)
    if (links_[id].open > 0) shares.push_back({links_[id].share(), id});
  std::priority_queue<Share, std::vector<Share>, std::greater<>> least(std::greater<>{},
                                                                       std::move(shares));
  growing_ = reached_.size();
  for (std::size_t next = 0; growing_ > 0;) {
    while (flows_[reached_[next]].fixed) ++next;
    const Units most = flows_[reached_[next]].most;
    if (least.empty() || most <= least.top().share) {
      fix(reached_[next], most);
      continue;
    }
    // All links that are full at this share, before any of their flows is fixed.
    const Units share = least.top().share;
    full_links_.clear();
    for (; !least.empty() && least.top().share == share; least.pop()) {
      const LinkId id = least.top().link;
      if (links_[id].open == 0) continue;
      if (const Units now = links_[id].share(); now > share) {
        grown.push_back({now, id});
      } else {
        full_links_.push_back(id);
      }
    }
    for (const Share& link : grown) least.push(link);
    grown.clear();
    for (const LinkId id : full_links_)
      for (const Place& place : links_[id].flows)
        if (!flows_[place.flow].fixed) fix(place.flow, share);
  }
}

void FairShare::fix(FlowId id, Units rate) {
  Flow& flow = flows_[id];
  flow.rate = std::max(Units{1}, rate);
  flow.fixed = true;
  --growing_;
  for (std::uint32_t i = 0; i < flow.link_count; ++i) {
    Link& link = links_[flow.links[i]];
    link.left = std::max(Units{0}, link.left - rate * flow.members);
    link.open -= flow.members;
  }
}

}  // namespace tutti
