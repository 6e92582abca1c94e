#include "runtime/faults.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

// "during all_reduce #12 count 1024 float sum", or nothing where no operation was under way.
std::string during(const OperationSignature& signature) {
  return signature.operation == 0 ? std::string{} : " during " + signature.to_string();
}

}  // namespace

std::string describe_rank(const std::vector<PeerInfo>& peers, Rank rank) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers.size())
    return fmt::format("rank {} (unknown)", rank);
  const PeerInfo& peer = peers[static_cast<std::size_t>(rank)];
  return fmt::format("rank {} (pid {} on {})", rank, peer.pid, peer.host);
}

Error poison_error(const Poison& poison, const std::vector<PeerInfo>& peers) {
  const std::string culprit = describe_rank(peers, poison.culprit);
  const std::string reporter = describe_rank(peers, poison.reporter);
  switch (poison.kind) {
    case Poison::Kind::kDeath:
      return {poison.code, fmt::format("{} died; abort the communicator", culprit), poison.culprit};
    case Poison::Kind::kMismatch:
      return {poison.code,
              fmt::format("calls do not match: {} called {}, {} called {}", reporter,
                          poison.mine.to_string(), culprit, poison.theirs.to_string()),
              poison.culprit};
    case Poison::Kind::kTimeout:
      return {
          poison.code,
          fmt::format(
              "{} is alive but did not come within the operation timeout (TUTTI_OP_TIMEOUT_S){}; "
              "{} waited",
              culprit, during(poison.mine), reporter),
          poison.culprit};
    case Poison::Kind::kAbort:
      return {poison.code,
              fmt::format("{} aborted the communicator{}", culprit, during(poison.mine)),
              poison.culprit};
    case Poison::Kind::kFailure:
      return {
          poison.code,
          fmt::format("{} failed or left{}; seen by {}", culprit, during(poison.mine), reporter),
          poison.culprit};
    case Poison::Kind::kNoWay:
      return {poison.code,
              fmt::format("{} could not connect to {}{}; its own error says why", reporter, culprit,
                          during(poison.mine)),
              poison.reporter};
  }
  return {Code::kInternalError, fmt::format("{} poisoned the communicator", culprit),
          poison.culprit};
}

}  // namespace tutti
