// SPDX-License-Identifier: Apache-2.0
#include "stall.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "board/faults.hpp"

namespace tutti::info {
namespace {

using control::BoardView;
using control::OperationView;
using control::RankView;

// The end of the chain of waits from one rank.
struct End {
  std::string kind;
  Rank rank = kNoRank;
  std::string what;  // after the rank's name
};

std::string list_text(const std::vector<Rank>& ranks) {
  constexpr std::size_t kMost = 16;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    text += fmt::format("{}{}", i == 0 ? " " : ", ", ranks[i]);
  if (ranks.size() > kMost) text += fmt::format(", ... ({} in all)", ranks.size());
  return text;
}

std::string operation_text(const RankView& rank, std::uint64_t number) {
  const OperationView* const operation = rank.operation(number);
  return operation == nullptr ? fmt::format("operation #{}", number)
                              : operation->signature.to_string();
}

class Chains {
 public:
  Chains(const Job& job, const Moment& now)
      : job_(job),
        board_(job.board),
        now_(now),
        over_(!job.processes.empty() && std::ranges::all_of(job.processes, [](ProcessState state) {
          return state == ProcessState::kGone;
        })) {}

  // Nobody lives: who is dead says nothing any more.
  [[nodiscard]] bool over() const { return over_; }
  // Its own wait, if any, holds nobody up any more.
  [[nodiscard]] bool is_out(const RankView& rank) const {
    const ProcessState process = process_of(rank);
    return !over_ && (process == ProcessState::kGone || process == ProcessState::kStopped);
  }
  // Follows every link once, over all ranks' chains together.
  [[nodiscard]] const End& follow(const RankView& from);
  // Why `rank` keeps those waiting who are in `gathering`; nothing: it has come, or has left.
  [[nodiscard]] std::optional<End> absence(const RankView& rank, Gathering gathering) const;

 private:
  [[nodiscard]] ProcessState process_of(const RankView& rank) const {
    return job_.processes[static_cast<std::size_t>(&rank - board_.here.data())];
  }
  [[nodiscard]] std::optional<End> end_behind(const RankView& waiter) const;
  [[nodiscard]] std::optional<End> end_at(const RankView& waiter, const RankView& peer) const;
  [[nodiscard]] std::string whereabouts(const RankView& rank) const;
  [[nodiscard]] std::string last_text(const RankView& rank) const;
  [[nodiscard]] End cause_of(End gave_up) const;
  [[nodiscard]] End cycle_from(const RankView& rank) const;

  const Job& job_;
  const BoardView& board_;
  const Moment& now_;
  const bool over_;
  std::map<Rank, std::optional<End>> ends_;  // by where a chain begins; none: being followed
};

// "in all_reduce #12 ...", "after all_reduce #11 ...", "before its first operation".
std::string Chains::whereabouts(const RankView& rank) const {
  if (rank.inside()) return "in " + operation_text(rank, rank.current());
  if (rank.left == 0) return "before its first operation";
  return "after " + operation_text(rank, rank.left);
}

std::string Chains::last_text(const RankView& rank) const {
  if (rank.gathering != Gathering::kNone)
    return fmt::format("it is in {}", name_of(rank.gathering));
  if (rank.inside()) return "it is in " + operation_text(rank, rank.current());
  if (rank.left == 0) return "it has entered none so far";
  std::string text = fmt::format("it left {}", operation_text(rank, rank.left));
  if (rank.left_ns != 0)
    text += fmt::format(" {} ago", duration_text(age_ns(board_, now_, rank.left_ns)));
  return text;
}

// Is `peer`, for whom `waiter` waits, the end of the chain?
std::optional<End> Chains::end_at(const RankView& waiter, const RankView& peer) const {
  const ProcessState process = over_ ? ProcessState::kUnknown : process_of(peer);
  const bool said_goodbye = peer.state == RankState::kLeft || peer.state == RankState::kLeaving;
  if (process == ProcessState::kGone && !said_goodbye)
    return End{"died", peer.rank, fmt::format("died {}", whereabouts(peer))};
  if (process == ProcessState::kStopped)
    return End{"stopped", peer.rank,
               fmt::format("is stopped (SIGSTOP or a debugger) {}", whereabouts(peer))};
  const std::string wanted = operation_text(waiter, waiter.current());
  const bool never_came = peer.entered < waiter.current();
  if (never_came && said_goodbye)
    return End{"left", peer.rank, fmt::format("left the communicator without entering {}", wanted)};
  const OperationView* const mine = waiter.operation(waiter.current());
  const OperationView* const theirs = peer.operation(waiter.current());
  if (mine != nullptr && theirs != nullptr && mine->signature != theirs->signature)
    return End{"mismatch", peer.rank,
               fmt::format("called {} where rank {} called {}", theirs->signature.to_string(),
                           waiter.rank, wanted)};
  if (peer.wait) return std::nullopt;
  if (peer.state == RankState::kFailed)
    return End{"gave up", peer.rank,
               fmt::format("gave up {}", operation_text(peer, peer.current()))};
  if (never_came)
    return End{"not entered", peer.rank,
               fmt::format("has not entered {}; {}", wanted, last_text(peer))};
  return End{
      "busy", peer.rank,
      fmt::format("is {} and waits for no rank: it computes, or gets no core", whereabouts(peer))};
}

// If the communicator's error names another rank, a rank that gave up did so because of it.
End Chains::cause_of(End gave_up) const {
  if (!board_.poison || board_.poison->culprit == kNoRank || board_.poison->culprit == gave_up.rank)
    return gave_up;
  const RankView* const culprit = board_.find(board_.poison->culprit);
  if (culprit != nullptr && is_out(*culprit)) {
    if (auto end = end_at(*culprit, *culprit)) return *std::move(end);
  }
  return {"error", board_.poison->culprit, {}};
}

End Chains::cycle_from(const RankView& rank) const {
  std::vector<Rank> members;
  for (const RankView* at = &rank; members.empty() || at->rank != rank.rank;
       at = board_.find(at->wait->peer))
    members.push_back(at->rank);
  std::ranges::sort(members);
  return {"cycle", members.front(),
          fmt::format("waits in a circle ({}): this is a bug in Tutti; please report it with the "
                      "output of 'tutti-info ranks --json'",
                      list_text(members))};
}

// The end, if it is the rank that `waiter` waits for; else that rank waits too.
std::optional<End> Chains::end_behind(const RankView& waiter) const {
  const Rank next = waiter.wait->peer;
  const RankView* const peer = board_.find(next);
  if (peer == nullptr)
    return End{"elsewhere", next, "is not on this host; run 'tutti-info ranks' on its host"};
  std::optional<End> end = end_at(waiter, *peer);
  return end && end->kind == "gave up" ? cause_of(*std::move(end)) : end;
}

// A file that lies can have all of its ranks in one chain, so none is followed twice.
const End& Chains::follow(const RankView& from) {
  std::vector<Rank> path;
  std::optional<End> end;
  for (const RankView* at = &from; !end; at = board_.find(at->wait->peer)) {
    const auto [known, is_new] = ends_.try_emplace(at->rank);
    if (!is_new) {
      end = known->second ? *known->second : cycle_from(*at);
      break;
    }
    path.push_back(at->rank);
    end = end_behind(*at);
    if (end) break;
  }
  for (const Rank rank : path) ends_[rank] = end;
  return *ends_[from.rank];
}

std::optional<End> Chains::absence(const RankView& rank, Gathering gathering) const {
  const bool said_goodbye = rank.state == RankState::kLeft || rank.state == RankState::kLeaving;
  if (rank.gathering == gathering || said_goodbye) return std::nullopt;
  const ProcessState process = process_of(rank);
  const bool shrinks = gathering == Gathering::kShrink;
  if (process == ProcessState::kGone && shrinks) return std::nullopt;  // nobody waits for the dead
  if (process == ProcessState::kGone)
    return End{"died", rank.rank, fmt::format("died {}", whereabouts(rank))};
  if (process == ProcessState::kStopped)
    return End{"stopped", rank.rank,
               fmt::format("is stopped (SIGSTOP or a debugger) {}", whereabouts(rank))};
  return End{"not come", rank.rank,
             fmt::format("has not come to {}{}; {}", name_of(gathering),
                         shrinks ? ", unless it is excluded" : "", last_text(rank))};
}

bool is_urgent(const std::string& kind) {
  return kind == "died" || kind == "stopped" || kind == "gave up" || kind == "left";
}

}  // namespace

std::string duration_text(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 172'800) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86'400);
}

std::string rank_text(const BoardView& board, Rank rank) {
  const RankView* const view = board.find(rank);
  return view == nullptr ? fmt::format("rank {}", rank)
                         : fmt::format("rank {} (pid {} on {})", rank, view->pid, board.host);
}

std::string error_text(const BoardView& board) {
  if (!board.poison) return {};
  const auto name = [&](Rank rank) {
    if (rank == kNoRank) return describe_rank({}, rank);
    return board.find(rank) != nullptr ? rank_text(board, rank)
                                       : fmt::format("rank {} (on another host)", rank);
  };
  return poison_error(*board.poison, name).message;
}

namespace {

// Culprits in the making: each with those whom it keeps waiting.
class Culprits {
 public:
  void add(const End& end, Rank waiting) {
    const auto [at, is_new] = known_.try_emplace({end.kind, end.rank}, list_.size());
    if (is_new) {
      list_.push_back({end.kind, end.rank, {}, {}});
      whats_.push_back(end.what);
    }
    list_[at->second].waiting.push_back(waiting);
  }

  // `past`: nobody waits any more.
  [[nodiscard]] std::vector<Culprit> take(const BoardView& board, bool past) {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      Culprit& culprit = list_[i];
      culprit.line = culprit.kind == "error"
                         ? error_text(board)
                         : fmt::format("{} {}", rank_text(board, culprit.rank), whats_[i]);
      if (culprit.kind == "cycle") continue;
      culprit.line += fmt::format("; {} {}", list_text(culprit.waiting),
                                  past                          ? "waited for it"
                                  : culprit.waiting.size() == 1 ? "waits for it"
                                                                : "wait for it");
    }
    return std::move(list_);
  }

 private:
  std::vector<Culprit> list_;
  std::vector<std::string> whats_;
  std::map<std::pair<std::string, Rank>, std::size_t> known_;  // where in both
};

// Lists the first few ranks that have not come to what others gather for.
void add_absent(const Job& job, const Moment& now, std::int64_t after_ns, const Chains& chains,
                Culprits& culprits) {
  constexpr std::size_t kMost = 16;
  std::map<Gathering, std::vector<Rank>> gatherings;
  for (const RankView& rank : job.board.here)
    if (rank.gathering != Gathering::kNone && rank.rank != kNoRank && !chains.is_out(rank) &&
        age_ns(job.board, now, rank.gathering_since_ns) >= after_ns)
      gatherings[rank.gathering].push_back(rank.rank);
  for (const auto& [gathering, waiting] : gatherings) {
    std::size_t absent = 0;
    for (const RankView& rank : job.board.here) {
      const std::optional<End> end = chains.absence(rank, gathering);
      if (!end || ++absent > kMost) continue;
      for (const Rank waiter : waiting) culprits.add(*end, waiter);
    }
  }
}

}  // namespace

std::vector<Culprit> find_culprits(const Job& job, const Moment& now, std::int64_t after_ns) {
  Chains chains(job, now);
  const bool past = chains.over() || job.board.poison.has_value();
  Culprits found;
  for (const RankView& rank : job.board.here) {
    if (!rank.wait || rank.rank == kNoRank || chains.is_out(rank)) continue;
    const End& end = chains.follow(rank);
    const bool brief = age_ns(job.board, now, rank.wait->place.since_ns) < after_ns;
    if (!brief || past || is_urgent(end.kind)) found.add(end, rank.rank);
  }
  if (!chains.over()) add_absent(job, now, after_ns, chains, found);
  std::vector<Culprit> culprits = found.take(job.board, past);
  if (culprits.empty() && job.board.poison)
    culprits.push_back({"error", job.board.poison->culprit, {}, error_text(job.board)});
  return culprits;
}

}  // namespace tutti::info
