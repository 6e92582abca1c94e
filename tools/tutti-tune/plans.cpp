// SPDX-License-Identifier: Apache-2.0
#include "tutti-tune/plans.hpp"

#include <algorithm>

namespace tutti::tune {
namespace {

constexpr std::uint64_t kKi = 1024, kMi = kKi * kKi;
constexpr int kMostRanks = 16;

}  // namespace

bool attaches(const Session& session) {
  return !session.windows && std::ranges::any_of(session.plans, [](const std::string& plan) {
    return plan.find("@direct") != std::string::npos;
  });
}

std::vector<Session> sessions(int cores) {
  const std::vector<std::string> flagged{"butterfly@flagged", "two_shot@flagged", "ring@flagged"};
  const std::vector<std::string> slots{"butterfly@slots:replicas=1:slot=256K",
                                       "two_shot@slots:replicas=1:slot=256K",
                                       "ring@slots:replicas=2:slot=64K"};
  const std::vector<std::string> direct{"two_shot:access=remote@direct"};
  const std::vector<std::uint64_t> large{32 * kKi, 256 * kKi, 2 * kMi};
  std::vector<Session> all{
      {2, false, flagged, {8, 480, 4 * kKi}},
      {2, false, slots, {512, 4 * kKi, 32 * kKi, 256 * kKi, 2 * kMi}},
      {2, false, direct, {512, 32 * kKi, 256 * kKi, 2 * kMi}},
      {2, true, direct, {512, 32 * kKi, 256 * kKi, 2 * kMi}},
  };
  const int crowd = std::max(2 * cores, 3);
  if (crowd > kMostRanks) return all;
  all.push_back({crowd, false, {"one_shot@flagged", "ring@flagged", "tree@flagged"}, {8, 4 * kKi}});
  all.push_back({crowd, false, slots, large});
  all.push_back({crowd, false, direct, large});
  all.push_back({crowd, true, direct, large});
  return all;
}

}  // namespace tutti::tune
