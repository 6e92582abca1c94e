// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "stall.hpp"

namespace tutti::info {
namespace {

using control::BoardView;
using control::OperationView;
using control::RankView;
using Json = nlohmann::ordered_json;

std::string_view name_of(ProcessState state) {
  constexpr std::array<std::string_view, 4> kNames{"runs", "stopped", "gone", "unknown"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view name_of(RankState state) {
  constexpr std::array<std::string_view, 5> kNames{"joining", "alive", "finalized", "left",
                                                   "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string date_text(std::int64_t realtime_ns) {
  const std::time_t seconds = realtime_ns / 1'000'000'000;
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "an impossible date";
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", parts);
}

// The operation that the rank is in, or was in last.
std::string doing_text(const RankView& rank) {
  if (rank.gathering != Gathering::kNone)
    return fmt::format("in {}", tutti::name_of(rank.gathering));
  const std::uint64_t number = rank.current();
  if (number == 0) return "none so far";
  const OperationView* const operation = rank.operation(number);
  return fmt::format("{}{}", rank.inside() ? "in " : "after ",
                     operation == nullptr ? fmt::format("operation #{}", number)
                                          : operation->signature.to_string());
}

// Since when it has been doing that; 0: not known.
std::int64_t doing_since(const RankView& rank) {
  if (rank.gathering != Gathering::kNone) return rank.gathering_since_ns;
  if (!rank.inside()) return rank.left_ns;
  const OperationView* const operation = rank.operation(rank.current());
  return operation == nullptr ? 0 : operation->entered_ns;
}

std::string since_text(const BoardView& board, const Moment& now, std::int64_t at_ns) {
  return at_ns == 0 ? "-" : duration_text(age_ns(board, now, at_ns));
}

std::string row_text(const Job& job, std::size_t index, const Moment& now,
                     std::size_t doing_width) {
  const RankView& rank = job.board.here[index];
  std::string text = fmt::format(
      "  {:>5} {:>8}  {:<8} {:<9} {:<{}}  {:>8}", rank.rank < 0 ? "?" : std::to_string(rank.rank),
      rank.pid, name_of(job.processes[index]), name_of(rank.state), doing_text(rank), doing_width,
      since_text(job.board, now, doing_since(rank)));
  if (rank.wait) {
    const auto& [lane, step, slice, since_ns] = rank.wait->place;
    text += fmt::format("  rank {} for {}, lane {} step {} slice {}", rank.wait->peer,
                        since_text(job.board, now, since_ns), lane, step, slice);
  } else {
    text += "  -";
  }
  return text + "\n";
}

// Where the rank's kernel gave up, and why.
std::string fault_text(const control::RankView& rank) {
  if (!rank.fault) return {};
  const KernelFault& at = *rank.fault;
  return fmt::format(
      "        its kernel gave up: block {}, lane {}, slice {}, step {}, a {}{}: expected {:#x}, "
      "saw "
      "{:#x}\n",
      at.block, at.place.lane, at.place.slice, at.place.step, at.receives ? "message" : "credit",
      at.peer == kNoRank ? "" : fmt::format(" of rank {}", at.peer), at.expected, at.seen);
}

Json fault_json(const KernelFault& at) {
  return {{"block", at.block},
          {"lane", at.place.lane},
          {"slice", at.place.slice},
          {"step", at.place.step},
          {"of", at.receives ? "message" : "credit"},
          {"rank", at.peer},
          {"expected", at.expected},
          {"seen", at.seen}};
}

std::string history_text(const Job& job, const RankView& rank, const Moment& now,
                         std::size_t most) {
  std::string text;
  const std::size_t count = std::min(most, rank.history.size());
  for (std::size_t i = rank.history.size() - count; i < rank.history.size(); ++i) {
    const OperationView& operation = rank.history[i];
    text +=
        fmt::format("        {:>8} ago  {}{}\n", since_text(job.board, now, operation.entered_ns),
                    operation.signature.to_string(),
                    operation.signature.operation > rank.left ? "  (not done)" : "");
  }
  return text;
}

std::string job_text(const Job& job, const Moment& now, const RanksOptions& options) {
  const BoardView& board = job.board;
  std::string text = fmt::format("communicator {} on {}: {} ranks, {} of them here; made {}; {}\n",
                                 board.session, board.host, board.ranks, board.here.size(),
                                 date_text(board.made_realtime_ns), job.source);
  if (const std::string error = error_text(board); !error.empty())
    text += fmt::format("  error: {}\n", error);
  std::size_t widest = 9;
  for (const RankView& rank : board.here) widest = std::max(widest, doing_text(rank).size());
  text += fmt::format("  {:>5} {:>8}  {:<8} {:<9} {:<{}}  {:>8}  {}\n", "rank", "pid", "process",
                      "state", "operation", widest, "for", "waits for");
  for (std::size_t i = 0; i < board.here.size(); ++i) {
    text += row_text(job, i, now, widest);
    for (const std::string& nonsense : board.here[i].nonsense)
      text += fmt::format("        its record is inconsistent: it {}\n", nonsense);
    text += fault_text(board.here[i]);
    text += history_text(job, board.here[i], now, options.history);
  }
  for (const Culprit& culprit : find_culprits(job, now, options.after_ns))
    text += fmt::format("  culprit: {}\n", culprit.line);
  return text;
}

Json operation_json(const BoardView& board, const Moment& now, const OperationView& operation) {
  const OperationSignature& signature = operation.signature;
  return {{"operation", signature.operation},
          {"collective", tutti::name_of(signature.collective)},
          {"count", signature.count},
          {"type", tutti::name_of(signature.type)},
          {"op", tutti::name_of(signature.op)},
          {"root", signature.root},
          {"plan", fmt::format("{:016x}", signature.plan)},
          {"in_windows", signature.in_windows},
          {"on_device", signature.on_device},
          {"text", signature.to_string()},
          {"age_ns", age_ns(board, now, operation.entered_ns)}};
}

Json rank_json(const Job& job, std::size_t index, const Moment& now) {
  const RankView& rank = job.board.here[index];
  Json json{{"rank", rank.rank},
            {"pid", rank.pid},
            {"process", name_of(job.processes[index])},
            {"state", name_of(rank.state)},
            {"inside", rank.inside()},
            {"entered", rank.entered},
            {"left", rank.left}};
  if (rank.left_ns != 0) json["left_age_ns"] = age_ns(job.board, now, rank.left_ns);
  if (rank.gathering != Gathering::kNone)
    json["gathering"] = {{"name", tutti::name_of(rank.gathering)},
                         {"age_ns", age_ns(job.board, now, rank.gathering_since_ns)}};
  if (rank.wait) {
    const auto& [lane, step, slice, since_ns] = rank.wait->place;
    json["waits"] = {{"rank", rank.wait->peer},
                     {"lane", lane},
                     {"step", step},
                     {"slice", slice},
                     {"age_ns", age_ns(job.board, now, since_ns)}};
  }
  if (rank.fault) json["kernel_fault"] = fault_json(*rank.fault);
  json["history"] = Json::array();
  for (const OperationView& operation : rank.history)
    json["history"].push_back(operation_json(job.board, now, operation));
  json["nonsense"] = rank.nonsense;
  return json;
}

Json job_json(const Job& job, const Moment& now, const RanksOptions& options) {
  Json json{{"session", job.board.session},
            {"host", job.board.host},
            {"source", job.source},
            {"ranks", job.board.ranks},
            {"made_unix_ns", job.board.made_realtime_ns}};
  const std::string error = error_text(job.board);
  json["error"] = error.empty() ? Json(nullptr) : Json(error);
  json["here"] = Json::array();
  for (std::size_t i = 0; i < job.board.here.size(); ++i)
    json["here"].push_back(rank_json(job, i, now));
  json["culprits"] = Json::array();
  for (const Culprit& culprit : find_culprits(job, now, options.after_ns))
    json["culprits"].push_back({{"kind", culprit.kind},
                                {"rank", culprit.rank},
                                {"waiting", culprit.waiting},
                                {"line", culprit.line}});
  return json;
}

}  // namespace

std::string ranks_text(const Jobs& jobs, const Moment& now, const RanksOptions& options) {
  std::string text;
  for (const Job& job : jobs.jobs) {
    if (!text.empty()) text += '\n';
    text += job_text(job, now, options);
  }
  if (jobs.jobs.empty() && jobs.problems.empty())
    text = fmt::format("no process of this host has a Tutti communicator{}\n",
                       jobs.hidden == 0 ? std::string()
                                        : fmt::format("; {} processes of other users could not be "
                                                      "examined; run it as root to include them",
                                                      jobs.hidden));
  return text;
}

std::string ranks_json(const Jobs& jobs, const Moment& now, const RanksOptions& options) {
  Json json{{"jobs", Json::array()}, {"problems", jobs.problems}, {"hidden", jobs.hidden}};
  for (const Job& job : jobs.jobs) json["jobs"].push_back(job_json(job, now, options));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::info
