// SPDX-License-Identifier: Apache-2.0
#include "comm/shrink_decision.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/host.hpp"
#include "board/faults.hpp"
#include "control/messages.hpp"

namespace tutti {
namespace {

constexpr std::size_t kMostMessageBytes = 1024;
constexpr std::size_t kMostGone = 4096;  // of those that a report names
constexpr std::size_t kMostPageMembers = 1024;
constexpr std::size_t kMostPageBytes =
    control::kMaxPayloadBytes - control::kMaxAddressBytes - control::kMaxTcpBytes - 64;

void write_address(Writer& writer, const ServiceAddress& address) {
  writer.text(address.local, control::kMaxAddressBytes).text(address.tcp, control::kMaxTcpBytes);
}

ServiceAddress read_address(Reader& reader) {
  ServiceAddress address;
  address.local = reader.text(control::kMaxAddressBytes);
  address.tcp = reader.text(control::kMaxTcpBytes);
  return address;
}

Error unready(const std::vector<PeerInfo>& peers, Rank rank) {
  return {Code::kRemoteError,
          fmt::format("{} cannot take part in the new communicator; its own error message says why",
                      describe_rank(peers, rank)),
          rank};
}

bool has_joined(const ShrinkReport& report) { return report.phase != ShrinkPhase::kNew; }

}  // namespace

std::uint64_t hash_ranks(std::span<const Rank> ranks) {
  return hash_bytes({reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(Rank)});
}

std::vector<std::byte> encode(const ShrinkReport& report) {
  Writer writer;
  writer.number(report.attempt).number(static_cast<std::uint8_t>(report.phase));
  writer.number(static_cast<std::uint8_t>(report.ready));
  writer.number(static_cast<std::uint8_t>(report.late)).number(report.excluded);
  writer.number(report.first);
  write_address(writer, report.address);
  for (std::size_t i = 0; i < std::min(report.gone.size(), kMostGone); ++i)
    writer.number(report.gone[i]);
  return writer.take();
}

std::optional<ShrinkReport> decode_report(std::span<const std::byte> bytes, std::int32_t ranks) {
  Reader reader(bytes);
  ShrinkReport report;
  report.attempt = reader.number<std::uint64_t>();
  const auto phase = reader.number<std::uint8_t>();
  report.ready = reader.number<std::uint8_t>() != 0;
  report.late = reader.number<std::uint8_t>() != 0;
  report.excluded = reader.number<std::uint64_t>();
  report.first = reader.number<std::uint32_t>();
  report.address = read_address(reader);
  while (reader.ok() && !reader.finished()) {
    const auto rank = reader.number<Rank>();
    if (rank < 0 || rank >= ranks || report.gone.size() == kMostGone) return std::nullopt;
    report.gone.push_back(rank);
  }
  // The number after the last one is an attempt's, too.
  const bool legal = reader.finished() && report.attempt < UINT64_MAX &&
                     phase <= static_cast<std::uint8_t>(ShrinkPhase::kPrepared);
  if (!legal) return std::nullopt;
  report.phase = static_cast<ShrinkPhase>(phase);
  return report;
}

std::vector<std::byte> encode(const ShrinkAnswer& answer) {
  Writer writer;
  writer.number(static_cast<std::uint8_t>(answer.verdict)).number(answer.attempt);
  if (answer.verdict == ShrinkVerdict::kFailed)
    writer.number(static_cast<std::uint8_t>(answer.error.code))
        .number(answer.error.culprit)
        .text(answer.error.message, kMostMessageBytes);
  if (answer.verdict != ShrinkVerdict::kJoin) return writer.take();
  writer.number(answer.ranks).raw(answer.members.key.session).raw(answer.members.key.secret);
  for (const ChildMember& member : answer.members.list) {
    if (writer.bytes().size() > kMostPageBytes) break;
    writer.number(member.parent);
    write_address(writer, member.address);
  }
  return writer.take();
}

std::optional<ShrinkAnswer> decode_answer(std::span<const std::byte> bytes, std::int32_t ranks) {
  Reader reader(bytes);
  ShrinkAnswer answer;
  const auto verdict = reader.number<std::uint8_t>();
  if (verdict > static_cast<std::uint8_t>(ShrinkVerdict::kFailed)) return std::nullopt;
  answer.verdict = static_cast<ShrinkVerdict>(verdict);
  answer.attempt = reader.number<std::uint64_t>();
  if (answer.verdict == ShrinkVerdict::kFailed) {
    const auto code = reader.number<std::uint8_t>();
    const auto culprit = reader.number<Rank>();
    const bool known = code == static_cast<std::uint8_t>(Code::kTimeout) ||
                       code == static_cast<std::uint8_t>(Code::kInvalidUsage);
    answer.error = {known ? static_cast<Code>(code) : Code::kRemoteError,
                    reader.text(kMostMessageBytes),
                    culprit >= 0 && culprit < ranks ? culprit : kNoRank};
  }
  if (answer.verdict == ShrinkVerdict::kJoin) {
    answer.ranks = reader.number<std::uint32_t>();
    answer.members.key.session = reader.block<kSessionIdBytes>();
    answer.members.key.secret = reader.block<control::kSecretBytes>();
    while (reader.ok() && !reader.finished()) {
      const auto parent = reader.number<Rank>();
      answer.members.list.push_back({parent, read_address(reader)});
    }
    const bool legal = !answer.members.list.empty() && answer.members.list.size() <= answer.ranks &&
                       answer.ranks <= static_cast<std::uint32_t>(ranks);
    if (!legal) return std::nullopt;
  }
  if (!reader.finished()) return std::nullopt;
  return answer;
}

void ShrinkDecision::open(std::span<const Rank> excluded) {
  open_ = true;
  excluded_.assign(excluded.begin(), excluded.end());
  reports_.clear();
  left_out_.clear();
  stage_ = Stage::kCollecting;
  failure_.reset();
  told_.clear();
}

void ShrinkDecision::close(const std::optional<Error>& failure) {
  open_ = false;
  if (!failure_) failure_ = failure;
}

void ShrinkDecision::enter(std::uint64_t attempt, const Members& members) {
  members_ = members;
  members_attempt_ = attempt;
}

bool ShrinkDecision::is_to_hear_of_failure(Rank from, const ShrinkReport& report) {
  const auto [told, first] = told_.try_emplace(from, report.address);
  return first || open_ || (report.late && told->second == report.address);
}

std::optional<ShrinkAnswer> ShrinkDecision::hear(Rank from, const ShrinkReport& report) {
  for (const Rank rank : report.gone)
    if (rank != self_) gone_.insert(rank);
  // This rank may have left since, with its own success.
  if (committed_ != 0 && report.attempt == committed_ && has_joined(report))
    return ShrinkAnswer{.verdict = ShrinkVerdict::kCommit, .attempt = committed_};
  if (std::ranges::binary_search(excluded_, from))
    return ShrinkAnswer{.verdict = ShrinkVerdict::kExcluded};
  if (failure_ && is_to_hear_of_failure(from, report))
    return ShrinkAnswer{.verdict = ShrinkVerdict::kFailed, .error = *failure_};
  const auto wait = [&](ShrinkVerdict late) {
    return report.late ? std::optional(ShrinkAnswer{.verdict = late}) : std::nullopt;
  };
  if (!open_) return wait(ShrinkVerdict::kAbsent);
  if (auto answer = answer_to(from, report)) return answer;
  reports_.insert_or_assign(from, report);
  return wait(ShrinkVerdict::kWait);
}

std::optional<ShrinkAnswer> ShrinkDecision::answer_to(Rank from, const ShrinkReport& report) const {
  const ShrinkAnswer again{.verdict = ShrinkVerdict::kAgain, .attempt = report.attempt};
  const bool member = std::ranges::binary_search(members_.list, from, {}, &ChildMember::parent);
  if (left_out_.contains(from))
    return ShrinkAnswer{.verdict = ShrinkVerdict::kFailed,
                        .error = {Code::kRemoteError,
                                  "the other ranks finished this shrink after this rank had given "
                                  "up; call tuttiCommShrink again on all ranks",
                                  from}};
  switch (stage_) {
    case Stage::kCollecting:
      return std::nullopt;
    case Stage::kJoining:
      if (report.attempt >= attempt_ || (!has_joined(report) && !member)) return std::nullopt;
      return has_joined(report) ? again : page(report.first);
    case Stage::kPreparing:
      if (report.attempt != attempt_ || report.phase != ShrinkPhase::kJoined) return std::nullopt;
      return ShrinkAnswer{.verdict = ShrinkVerdict::kPrepare, .attempt = attempt_};
    case Stage::kAgain:
      if (report.attempt > attempt_ || !has_joined(report)) return std::nullopt;
      return again;
  }
  return std::nullopt;
}

ShrinkAnswer ShrinkDecision::page(std::size_t first) const {
  ShrinkAnswer answer{.verdict = ShrinkVerdict::kJoin,
                      .attempt = attempt_,
                      .ranks = static_cast<std::uint32_t>(members_.list.size()),
                      .members = {.key = members_.key, .list = {}}};
  const auto rest = std::span(members_.list).subspan(std::min(first, members_.list.size()));
  const auto some = rest.first(std::min(rest.size(), kMostPageMembers));
  answer.members.list.assign(some.begin(), some.end());
  return answer;
}

std::optional<Error> ShrinkDecision::disagreement() const {
  for (const auto& [rank, report] : reports_) {
    if (report.excluded != hash_ranks(excluded_))
      return Error{
          Code::kInvalidUsage,
          fmt::format(
              "{} and {} exclude different ranks; pass the same list on all ranks that remain",
              describe_rank(peers_, rank), describe_rank(peers_, self_)),
          rank};
    if (!has_joined(report) && !report.ready) return unready(peers_, rank);
  }
  return std::nullopt;
}

Rank ShrinkDecision::missing(std::span<const Rank> living) const {
  const auto found = std::ranges::find_if(
      living, [&](Rank rank) { return !reports_.contains(rank) && !left_out_.contains(rank); });
  return found == living.end() ? kNoRank : *found;
}

bool ShrinkDecision::all_members_in(std::span<const Rank> living) const {
  return std::ranges::all_of(members_.list, [&](const ChildMember& member) {
    return std::ranges::find(living, member.parent) != living.end();
  });
}

void ShrinkDecision::decide(std::span<const Rank> living) {
  std::vector<const ShrinkReport*> all;
  for (const Rank rank : living)
    if (!left_out_.contains(rank)) all.push_back(&reports_.at(rank));
  const std::uint64_t last = std::ranges::max(all, {}, &ShrinkReport::attempt)->attempt;
  const auto is = [&](ShrinkPhase phase) {
    return [last, phase](const ShrinkReport* report) {
      return report->attempt == last && report->phase == phase;
    };
  };
  attempt_ = last;
  if (std::ranges::any_of(all, is(ShrinkPhase::kPrepared))) {
    const bool complete = std::ranges::none_of(all, is(ShrinkPhase::kJoined));
    for (const Rank rank : living)
      if (!left_out_.contains(rank) && !has_joined(reports_.at(rank))) left_out_.insert(rank);
    stage_ = Stage::kPreparing;
    if (complete) committed_ = last;
  } else if (std::ranges::all_of(all, is(ShrinkPhase::kJoined)) && members_attempt_ == last &&
             all_members_in(living)) {
    stage_ = Stage::kPreparing;
  } else if (std::ranges::any_of(all, [](const auto* report) { return has_joined(*report); })) {
    stage_ = Stage::kAgain;
  } else {
    stage_ = Stage::kJoining;
    members_ = {.key = control::make_session_key(), .list = {}};
    for (const Rank rank : living)
      if (!left_out_.contains(rank)) members_.list.push_back({rank, reports_.at(rank).address});
    attempt_ = members_attempt_ = last + 1;
  }
  // A rank that has an answer now will report again. All that are new are told to join.
  if (stage_ == Stage::kJoining) return reports_.clear();
  std::erase_if(reports_, [&](const auto& entry) {
    const auto& [rank, report] = entry;
    return (committed_ == report.attempt && has_joined(report)) ||
           answer_to(rank, report).has_value();
  });
}

}  // namespace tutti
