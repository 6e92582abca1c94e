// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/rules.hpp"

#include <fmt/core.h>

#include <array>

namespace tutti::proof {
namespace {

constexpr std::array<std::string_view, 28> kRuleNames = {
    "shape",
    "blocks",
    "lane",
    "operands",
    "peer",
    "tag",
    "span bounds",
    "input extent",
    "output extent",
    "span count",
    "chunk agreement",
    "step overlap",
    "connection owner",
    "connection balance",
    "wait",
    "declared counts",
    "deadlock",
    "slots",
    "uninitialised read",
    "in place",
    "double contribution",
    "mixed chunks",
    "finish",
    "post-condition",
    "same tree",
    "race",
    "remote begin",
    "remote end",
};
static_assert(kRuleNames.size() == static_cast<std::size_t>(Rule::kRemoteEnd) + 1);

}  // namespace

std::string_view name_of(Rule rule) { return kRuleNames[static_cast<std::size_t>(rule)]; }

std::string_view name_of(BufferKind buffer) {
  constexpr std::array<std::string_view, 3> kNames = {"input", "output", "scratch"};
  return kNames[static_cast<std::size_t>(buffer)];
}

std::string describe(const Schedule& schedule, const Site& site) {
  const Lane& lane = schedule.ranks[static_cast<std::size_t>(site.rank)].lanes[site.lane];
  return fmt::format("rank {}, lane {} '{}', step {}", site.rank, site.lane, lane.name, site.step);
}

tl::unexpected<Error> fall(Rule rule, std::string_view text) {
  return make_error(Code::kInvalidUsage, fmt::format("{}: {}", name_of(rule), text));
}

tl::unexpected<Error> fall(Rule rule, const Schedule& schedule, const Site& site,
                           std::string_view text) {
  return make_error(Code::kInvalidUsage,
                    fmt::format("{}: {}: {}", name_of(rule), describe(schedule, site), text));
}

}  // namespace tutti::proof
