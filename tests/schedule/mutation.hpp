// SPDX-License-Identifier: Apache-2.0
// Mutations: one small change of a schedule each, of the kinds that hands and generators get wrong.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::mutation {

enum class Kind : std::uint8_t {
  kDeleteStep,
  kDuplicateStep,
  kSwapSteps,
  kMoveStep,
  kDeleteWait,
  kChangeWait,
  kRedirectSend,
  kRedirectRecv,
  kChangeTag,
  kChangeChunk,
  kChangeBuffer,
  kSwapSources,
  kDropSource,
  kDuplicateSource,
  kDropDestination,
  kToggleFinish,
  kFewerVersions,
  kRelabelMessage,
  kScratchToOutput,
  kAddOutput,
  kReadInputFirst,
  kRedirectRemote,
  kAddRemoteOutput,
  kDropMessage,
};
inline constexpr int kKinds = 24;

struct Traits {
  std::string_view name;
  bool fatal;  // see is_fatal; of steps that exchange a message
};

inline constexpr std::array<Traits, kKinds> kTraits = {{
    {"delete step", true},
    {"duplicate step", true},
    {"swap adjacent steps", false},
    {"move step to another lane", false},
    {"delete wait", false},
    {"change wait", false},
    {"redirect send", true},
    {"redirect receive", true},
    {"change tag", true},
    {"change chunk", false},
    {"change buffer", false},
    {"swap sources", false},
    {"drop source", true},
    {"duplicate source", true},
    {"drop destination", true},
    {"toggle finish", false},
    {"one scratch version less", false},
    {"relabel message at both ends", false},
    {"keep scratch in output", false},
    {"write output as well", false},
    {"copy input to output first", false},
    {"redirect load or store", false},
    {"store to a peer as well", false},
    {"drop message at both ends", false},
}};

// Where and how; unused fields are 0.
struct Mutation {
  Kind kind = Kind::kDeleteStep;
  std::size_t rank = 0;
  std::uint32_t lane = 0;
  std::uint32_t step = 0;
  std::uint32_t operand = 0;  // sources after destinations; or the wait
  std::uint32_t variant = 0;
};

// Every mutation of the kind that the schedule has a place for.
[[nodiscard]] std::vector<Mutation> mutations_of(const Schedule& schedule, Kind kind);
// No such mutant leaves the schedule right: an accepted one is a hole in the verifier, and a killed
// one must fail in the reference executor too. (Doing a step twice that only copies is harmless.)
[[nodiscard]] bool is_fatal(const Schedule& schedule, const Mutation& mutation);
[[nodiscard]] Schedule apply(Schedule schedule, const Mutation& mutation);
[[nodiscard]] std::string describe(const Mutation& mutation);

}  // namespace tutti::mutation
