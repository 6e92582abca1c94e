// SPDX-License-Identifier: Apache-2.0
// How a plane meets the others: at a root, and, where a job has several ids, at that of its part.
//
// With several roots (division.hpp): the ranks of a part learn of each other in one exchange, the
// parts' leaders tell each other their parts in a second, and each leader tells its part the whole
// in a third. For the mailbox these are rounds of one exchange, so nobody is further ahead than the
// next. A leader checks in at two roots at once, so each of them hears at once that it has died,
// and it carries the failure of one to the other. The thread that joins.

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "base/clock.hpp"
#include "base/host.hpp"
#include "control/plane.hpp"
#include "control/root.hpp"

namespace tutti::control {
namespace {

// The root answers at our deadline with the names of those who did not come; this is for its way.
constexpr std::int64_t kRootGraceNs = 2'000'000'000;
static_assert(Root::kOtherRootsNs < kRootGraceNs);
constexpr std::int64_t kGiveUpNs = 200'000'000;
// Of all leaders' parts, each as large as the largest.
static_assert(2 * std::size_t{kMaxRanks} * kMemberBytes <= kMaxExchangeBytes);

bool on_loopback(const Way& way) {
  return std::ranges::all_of(way.addresses, [](const std::string& address) {
    const std::optional<TcpAddress> tcp = parse_tcp(address);
    return tcp && tcp->loopback();
  });
}

}  // namespace

Status Plane::meet(std::span<const RootWay> roots, const JoinOptions& options) {
  self_.info = own_info(options_.rank, options.host_id_text);
  self_.address = service_->address();
  self_.tcp = service_->tcp_address();
  self_.locality = options_.locality;
  self_.start_ticks = process_start_ticks(self_.info.pid);
  self_.pid_namespace = pid_namespace();
  Status met = check_in(roots, options.deadline);
  if (met) met = await_contacts(0, options.deadline);
  if (met) {
    const Result<std::vector<std::byte>> records = meet_others(options.deadline);
    met = records ? read_records(*records) : tl::unexpected(records.error());
  }
  std::optional<Error> failure;
  if (!met) failure = as_remote(met.error(), options_.rank);
  if (!met && options_.roots > 1 && is_told_to_stop())
    failure = {Code::kRemoteError, fmt::format("rank {} aborted its join", options_.rank),
               options_.rank};
  for (Visit& visit : visits_)
    if (failure && visit.channel && options_.roots > 1)
      static_cast<void>(send_within(visit.channel,
                                    encode_error({.type = FrameType::kGiveUp}, *failure),
                                    stop_->fd(), Deadline::in_ns(kGiveUpNs)));
  visits_.clear();
  if (met)
    service_->note_met();
  else
    service_->give_up_meeting(*failure);
  return met;
}

// At all of them, also where one cannot be reached: the others are to be told.
Status Plane::check_in(std::span<const RootWay> roots, Deadline deadline) {
  Status status;
  for (const RootWay& root : roots) {
    Result<Channel> channel = introduce(root, deadline);
    if (channel)
      visits_.push_back({.root = &root, .channel = *std::move(channel)});
    else if (status)
      status = tl::unexpected(std::move(channel).error());
  }
  return status;
}

Result<Channel> Plane::introduce(const RootWay& root_way, Deadline deadline) {
  const Way& way = root_way.way;
  Result<Channel> root = open_connection(
      way, root_way.key, {.rank = options_.rank, .peer = kRootRank, .ranks = options_.ranks},
      stop_->fd(), deadline);
  if (!root) {
    Error error = std::move(root).error();
    const char* hint = "";
    if (way.awaited && error.code == Code::kTimeout) {
      hint = "; check that the process of rank 0 runs and that this is its address";
    } else if (!way.awaited && error.code == Code::kRemoteError) {
      hint =
          "; the job has already met or failed, or the process that made the unique id has ended";
    }
    if (!way.awaited && on_loopback(way)) {
      hint =
          "; the address is this host's loopback: if the unique id was made on another host, set "
          "TUTTI_IFNAME there";
    }
    const std::string of = options_.roots == 1 ? std::string("its job")
                                               : fmt::format("unique id {} of {}",
                                                             root_way.number + 1, options_.roots);
    error.message = fmt::format("rank {} cannot reach the root of {}: {}{}", options_.rank, of,
                                error.message, hint);
    return tl::unexpected(std::move(error));
  }
  const CheckIn check_in{
      .member = self_,
      .left_ns = std::max<std::int64_t>(deadline.left_ns(), 0),
      .root = {.number = root_way.number, .roots = options_.roots, .job = options_.key.session}};
  // Who listens to the root hears why it hung up, or comes again.
  const Status sent = send_within(*root, encode_check_in(check_in), stop_->fd(), deadline);
  if (!sent && sent.error().code != Code::kRemoteError) return tl::unexpected(sent.error());
  return root;
}

// Listens to the other root meanwhile, and to what the service hears of one that it attends.
Status Plane::await_contacts(std::size_t visit, Deadline deadline) {
  std::optional<Error> elsewhere;
  PacketBuffer buffer;
  const std::function<bool()> ends = [&] {
    for (Visit& other : visits_) {
      if (elsewhere || &other == &visits_[visit] || !other.channel) continue;
      const Received received = other.channel.receive(buffer.all(), false);
      if (received.state == IoState::kAgain) continue;
      const Status heard = received.state == IoState::kDone
                               ? hear_root(other, buffer.first(received.packet_bytes))
                               : tl::unexpected(root_gone());
      if (!heard) elsewhere = heard.error();
    }
    if (!elsewhere) elsewhere = service_->mailbox().await_failure(Deadline{});
    return elsewhere.has_value();
  };
  const Stop stop(stop_->fd(), options_.roots == 1 ? nullptr : &ends);
  const Deadline with_grace{deadline.at_ns + kRootGraceNs};
  while (!visits_[visit].met) {
    PacketBuffer own;
    const Result<Received> received =
        receive_within(visits_[visit].channel, own.all(), false, stop, with_grace);
    if (elsewhere) return tl::unexpected(*elsewhere);
    if (!received && received.error().code == Code::kRemoteError) {
      TUTTI_TRY(come_again(visits_[visit], deadline));
      continue;
    }
    if (!received)
      return make_error(received.error().code,
                        fmt::format("rank {} waited for its job to meet: {}", options_.rank,
                                    received.error().message));
    TUTTI_TRY(hear_root(visits_[visit], own.first(received->packet_bytes)));
  }
  service_->attend_meeting(std::move(visits_[visit].channel));
  return {};
}

// A root sheds connections whose proof is late. If its process has ended nobody listens there, and
// if the job has failed it refuses with the reason.
Status Plane::come_again(Visit& visit, Deadline deadline) {
  if (++visit.returns > Links::kMostAttempts) return tl::unexpected(root_gone());
  RootWay again = *visit.root;
  again.way.awaited = false;  // it was there
  Result<Channel> channel = introduce(again, deadline);
  if (!channel)
    return tl::unexpected(channel.error().code == Code::kRemoteError ? root_gone()
                                                                     : channel.error());
  visit.channel = *std::move(channel);
  return {};
}

Error Plane::root_gone() const {
  return {Code::kRemoteError,
          fmt::format("rank {} waited for its job to meet: the process that made the unique id has "
                      "ended",
                      options_.rank),
          kNoRank};
}

Status Plane::hear_root(Visit& visit, std::span<const std::byte> packet) {
  Reader reader{packet};
  const FrameHeader header = read_header(reader);
  if (header.type == FrameType::kRefused) {
    return tl::unexpected(decode_error(reader, options_.ranks));
  }
  const std::optional<Contacts> contacts =
      header.type == FrameType::kMet ? decode_met(reader, options_.ranks) : std::nullopt;
  if (!contacts || visit.met)
    return make_error(Code::kRemoteError, "the root sent a malformed answer");
  for (const auto& [rank, address] : *contacts) links_->set_address(rank, address);
  visit.met = true;
  return {};
}

Result<std::vector<std::byte>> Plane::meet_others(Deadline deadline) {
  if (options_.roots == 1) return exchange(encode_member(self_), deadline);
  // The roots know more of a rank that did not come than this rank's deadline says.
  return meet_parts(Deadline{deadline.at_ns + kRootGraceNs});
}

// All records, in the order of ranks.
Result<std::vector<std::byte>> Plane::meet_parts(Deadline deadline) {
  const Division division(options_.ranks, options_.roots);
  Leg leg{.circle = division.part_circle(options_.rank), .exchange = service_->mailbox().enter()};
  TUTTI_TRY_ASSIGN(std::vector<std::byte> part, run_leg(leg, encode_member(self_), deadline));
  leg.first_round += exchange_rounds(division.largest_part());
  std::vector<std::byte> all(static_cast<std::size_t>(options_.ranks) * kMemberBytes);
  if (division.leads(options_.rank)) {
    if (visits_.size() > 1) TUTTI_TRY(await_contacts(1, deadline));
    const std::size_t part_bytes = static_cast<std::size_t>(division.largest_part()) * kMemberBytes;
    part.resize(part_bytes);
    TUTTI_TRY_ASSIGN(const std::vector<std::byte> parts,
                     run_leg({.circle = division.leader_circle(options_.rank),
                              .exchange = leg.exchange,
                              .first_round = leg.first_round},
                             part, deadline));
    auto next = all.begin();
    for (std::int32_t i = 0; i < options_.roots; ++i)
      next = std::ranges::copy(
                 std::span(parts)
                     .subspan(static_cast<std::size_t>(i) * part_bytes)
                     .first(static_cast<std::size_t>(division.ranks_of(i)) * kMemberBytes),
                 next)
                 .out;
  }
  leg.first_round += exchange_rounds(options_.roots);
  TUTTI_TRY(run_leg(leg, {}, deadline, all));
  service_->mailbox().leave();
  return all;
}

Status Plane::read_records(std::span<const std::byte> records) {
  std::vector<Member> members;
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    std::optional<Member> member = decode_member(
        records.subspan(static_cast<std::size_t>(rank) * kMemberBytes, kMemberBytes), rank);
    if (!member) {
      return make_error(Code::kRemoteError, fmt::format("malformed record of rank {}", rank), rank);
    }
    members.push_back(*std::move(member));
  }
  // No root has seen them all. Each rank finds the same.
  std::vector<const Member*> all;
  for (const Member& member : members) all.push_back(&member);
  if (std::optional<Error> error = find_unreachable(all)) return tl::unexpected(*std::move(error));
  adopt(std::move(members));
  return {};
}

}  // namespace tutti::control
