// SPDX-License-Identifier: Apache-2.0
#include "board/faults.hpp"

#include <fmt/core.h>

namespace tutti {
namespace {

// "during all_reduce #12 count 1024 float sum", or nothing where no operation was under way.
std::string during(const OperationSignature& signature) {
  return signature.collective == Collective::kNone ? std::string{}
                                                   : " during " + signature.to_string();
}

// Says what a dead rank was doing, as far as it is known.
std::string last_words(const Poison& death) {
  if (death.mine.operation != 0) return "; it was in " + death.mine.to_string();
  if (death.theirs.operation != 0) return "; it had left " + death.theirs.to_string();
  return {};
}

}  // namespace

std::string describe_rank(const std::vector<PeerInfo>& peers, Rank rank) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers.size())
    return fmt::format("rank {} (unknown)", rank);
  const PeerInfo& peer = peers[static_cast<std::size_t>(rank)];
  if (peer.pid == 0) return fmt::format("rank {} (on {})", rank, peer.host);
  return fmt::format("rank {} (pid {} on {})", rank, peer.pid, peer.host);
}

Error poison_error(const Poison& poison, const std::vector<PeerInfo>& peers,
                   std::string_view cause) {
  return poison_error(
      poison, [&](Rank rank) { return describe_rank(peers, rank); }, cause);
}

Error poison_error(const Poison& poison, const std::function<std::string(Rank)>& describe,
                   std::string_view cause) {
  const std::string culprit = describe(poison.culprit);
  const std::string reporter = describe(poison.reporter);
  switch (poison.kind) {
    case Poison::Kind::kDeath:
      return {poison.code,
              fmt::format("{} died; abort the communicator{}", culprit, last_words(poison)),
              poison.culprit};
    case Poison::Kind::kMismatch:
      return {poison.code,
              fmt::format("calls do not match: {} called {}, {} called {}", reporter,
                          poison.mine.to_string(), culprit, poison.theirs.to_string()),
              poison.culprit};
    case Poison::Kind::kTimeout:
      if (!cause.empty())
        return {
            poison.code,
            fmt::format(
                "{} did not come within the operation timeout (TUTTI_OP_TIMEOUT_S){}; {} waited "
                "and cannot reach it ({}); check whether it is stopped or the network is down",
                culprit, during(poison.mine), reporter, cause),
            poison.culprit};
      return {
          poison.code,
          fmt::format(
              "{} is alive but did not come within the operation timeout (TUTTI_OP_TIMEOUT_S){}; "
              "{} waited",
              culprit, during(poison.mine), reporter),
          poison.culprit};
    case Poison::Kind::kStopped:
      return {poison.code,
              fmt::format("{} is stopped (SIGSTOP or a debugger) and did not come within the "
                          "operation timeout (TUTTI_OP_TIMEOUT_S){}; {} waited",
                          culprit, during(poison.mine), reporter),
              poison.culprit};
    case Poison::Kind::kAbort:
      return {poison.code,
              fmt::format("{} aborted the communicator{}; abort it on this rank, too", culprit,
                          during(poison.mine)),
              poison.culprit};
    case Poison::Kind::kFailure:
      return {poison.code,
              fmt::format("{} failed or left{}; seen by {}; abort the communicator", culprit,
                          during(poison.mine), reporter),
              poison.culprit};
    case Poison::Kind::kLeft:
      return {poison.code,
              fmt::format("{} left the communicator without calling {}; seen by {}", culprit,
                          poison.mine.to_string(), reporter),
              poison.culprit};
    case Poison::Kind::kCut:
      if (!cause.empty())
        return {poison.code,
                fmt::format("{} lost its connection to {}{}: {}", reporter, culprit,
                            during(poison.mine), cause),
                poison.culprit};
      return {poison.code,
              fmt::format(
                  "{} lost its connection to {}{}; see its log, and check the network between them",
                  reporter, culprit, during(poison.mine)),
              poison.culprit};
    case Poison::Kind::kNoWay:
      if (!cause.empty())
        return {poison.code,
                fmt::format("{} could not connect to {}{}: {}", reporter, culprit,
                            during(poison.mine), cause),
                poison.reporter};
      return {poison.code,
              fmt::format("{} could not connect to {}{}; its own error message says why", reporter,
                          culprit, during(poison.mine)),
              poison.reporter};
  }
  return {Code::kInternalError,
          fmt::format("{} made the communicator unusable for an unknown reason; this is a bug in "
                      "Tutti, please report it",
                      culprit),
          poison.culprit};
}

}  // namespace tutti
