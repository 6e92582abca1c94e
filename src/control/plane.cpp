// SPDX-License-Identifier: Apache-2.0
#include "control/plane.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <new>

#include "base/clock.hpp"
#include "base/host.hpp"

namespace tutti::control {
namespace {

// For telling others of a failure, and for finding the rank that everybody waits for.
constexpr std::int64_t kSpreadNs = 200'000'000;
constexpr std::int64_t kSearchNs = 1'000'000'000;
constexpr std::int64_t kExplainNs = 100'000'000;
constexpr std::int64_t kRootExplainNs = 1'000'000'000;  // its thread serves everybody
constexpr std::int64_t kTellNs = 200'000'000;           // a round of the exchange at a meeting
constexpr int kMostSearchSteps = 64;
// When to ask first whether a rank that sends nothing is still there, and how long.
constexpr std::int64_t kFirstProbeNs = 500'000'000;
constexpr std::int64_t kProbeNs = 100'000'000;
// A peer that has not let a watched connection in by then, while it is in a call of its own
// already, may lack the descriptors for it.
constexpr std::int64_t kWatchNs = 10'000'000'000;

Status check_size(std::size_t blob_bytes, std::int32_t ranks) {
  if (blob_bytes <= kMaxExchangeBytes / static_cast<std::size_t>(ranks)) return {};
  return make_error(
      Code::kInvalidArgument,
      fmt::format("an exchange of {} x {} bytes is too large: the limit is {} bytes in all", ranks,
                  blob_bytes, kMaxExchangeBytes));
}

}  // namespace

PeerInfo own_info(Rank rank, std::string_view host_id_text) {
  return {.rank = rank,
          .pid = ::getpid(),
          .uid = ::geteuid(),
          .process_token = process_token(),
          .token_address = process_token_address(),
          .host_id = host_identity(host_id_text),
          .host = host_name().substr(0, kMaxHostBytes)};
}

Result<std::unique_ptr<Service>> Plane::start_service(const PlaneOptions& options) {
  return Service::start({.log = options.log,
                         .watch_mode = options.watch_mode,
                         .listen_kind = options.listen_kind,
                         .tcp_at = options.tcp_at});
}

Result<std::unique_ptr<Plane>> Plane::start(const PlaneOptions& options,
                                            std::unique_ptr<Service> service) {
  std::unique_ptr<Plane> plane(new Plane(options));
  TUTTI_TRY_ASSIGN(plane->stop_, StopSignal::create());
  plane->links_ =
      std::make_unique<Links>(options.key, options.rank, options.ranks, plane->stop_->fd());
  plane->service_ = std::move(service);
  plane->service_->let_in({.key = options.key, .self = options.rank, .ranks = options.ranks});
  return plane;
}

std::string Plane::ip() const {
  const std::optional<TcpAddress> at = parse_tcp(service_->tcp_address());
  return at ? at->ip_text() : std::string{};
}

void Plane::adopt(std::vector<Member> members) {
  members_ = std::move(members);
  self_ = members_[static_cast<std::size_t>(options_.rank)];
  for (const Member& member : members_) {
    links_->set_address(member.info.rank, address_between(self_, member));
    peers_.push_back(member.info);
  }
  met_ = true;
}

void Plane::serve(RequestKind kind, Handler handler) {
  service_->serve(kind, [handler = std::move(handler)](const Request& request) {
    return std::optional(handler(request));
  });
}

void Plane::serve_waiting(RequestKind kind, WaitingHandler handler) {
  service_->serve(kind, std::move(handler));
}

Result<Reply> Plane::call(Rank peer, RequestKind kind, std::span<const std::byte> payload,
                          Deadline deadline) {
  if (peer < 0 || peer >= options_.ranks) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("rank {} of {} does not exist", peer, options_.ranks));
  }
  return links_->call(peer, kind, payload, deadline).map_error([&](const Error& error) {
    Error own = introduce_culprit(error, peer);
    // Until this rank watches its peers, why one is gone may still be on its way. Later the deaths
    // and the status page tell.
    return watching_ || is_told_to_stop() ? own : explain(std::move(own), deadline);
  });
}

Status Plane::await_writable(int socket, Deadline deadline) {
  return wait_for(socket, POLLOUT, {stop_->fd(), over_ ? &over_ : nullptr}, deadline);
}

Error Plane::introduce_culprit(Error error, Rank peer) const {
  if (error.culprit != peer || !met_) return error;
  const PeerInfo& info = peers_[static_cast<std::size_t>(peer)];
  // A pid of another host is somebody else here.
  const bool stopped = info.host_id == self_.info.host_id && is_stopped(info.pid);
  error.message +=
      fmt::format("; that is {}{}", describe(info), stopped ? ", which is stopped" : "");
  return error;
}

Result<std::vector<std::byte>> Plane::allgather(std::span<const std::byte> mine, Deadline deadline,
                                                std::span<std::byte> announced) {
  return exchange(mine, deadline, announced);
}

Result<std::vector<std::byte>> Plane::exchange(std::span<const std::byte> mine, Deadline deadline,
                                               std::span<std::byte> announced) {
  TUTTI_TRY(check_size(mine.size(), options_.ranks));
  const std::uint64_t number = service_->mailbox().enter();
  const Leg all{.circle = Circle::of_all(options_.rank, options_.ranks), .exchange = number};
  TUTTI_TRY_ASSIGN(std::vector<std::byte> blobs, run_leg(all, mine, deadline, announced));
  service_->mailbox().leave();
  if (met_) service_->finish_meeting();
  return blobs;
}

Result<std::vector<std::byte>> Plane::run_leg(const Leg& leg, std::span<const std::byte> mine,
                                              Deadline deadline, std::span<std::byte> announced) {
  Exchange exchange(leg.circle.place, leg.circle.size, mine, announced);
  while (!exchange.complete()) TUTTI_TRY(run_round(leg, exchange, deadline));
  return exchange.in_rank_order();
}

Status Plane::run_round(const Leg& leg, Exchange& exchange, Deadline deadline) {
  const Exchange::Round round = exchange.round();
  const std::uint32_t number = leg.first_round + round.number;
  if (round.to != kNoRank) {
    const Rank to = leg.circle.rank_at(round.to);
    service_->mailbox().note_waits_for(to);
    const Status sent = links_->post(to, leg.exchange, number, round.message, deadline);
    if (!sent) {
      Error error = explain(introduce_culprit(sent.error(), to));
      spread_failure(leg, round.number + 1, error);
      return tl::unexpected(std::move(error));
    }
  }
  if (round.from == kNoRank) {
    exchange.absorb({});
    return {};
  }
  const Rank from = leg.circle.rank_at(round.from);
  Result<std::vector<std::byte>> got = take(from, number, round.expected_bytes, deadline);
  if (!got) {
    Error error = explain(std::move(got).error());
    if (error.code == Code::kTimeout && met_) {
      error = find_absent(std::move(error), leg.exchange);
      // Somebody else may have found out more meanwhile.
      got = service_->mailbox().take(from, number, round.expected_bytes, Deadline{});
      if (!got && got.error().code != Code::kTimeout) error = std::move(got).error();
    }
    // The sender's deadline is about this one: it is about to find out, and to tell, for whom it
    // waited in an earlier round.
    if (error.code == Code::kTimeout && !met_)
      error = service_->mailbox()
                  .await_reason(Deadline::in_ns(round.number * kTellNs))
                  .value_or(std::move(error));
    spread_failure(leg, round.number + 1, error);
    return tl::unexpected(std::move(error));
  }
  exchange.absorb(*got);
  return {};
}

// Waits for a message, and asks now and then whether the job is over, and whether the sender is
// still there: one that could not send us anything could not tell us that it gave up either.
Result<std::vector<std::byte>> Plane::take(Rank from, std::uint32_t round, std::size_t bytes,
                                           Deadline deadline) {
  std::int64_t pause_ns = kFirstProbeNs;
  for (Deadline probe = Deadline::in_ns(pause_ns);;) {
    Deadline next{std::min(deadline.at_ns, probe.at_ns)};
    if (over_) next.at_ns = std::min(next.at_ns, Deadline::in_ns(Stop::kAskNs).at_ns);
    Result<std::vector<std::byte>> got = service_->mailbox().take(from, round, bytes, next);
    // A timeout that another rank has told us of comes before `next`.
    if (got || got.error().code != Code::kTimeout || !next.passed() || deadline.passed())
      return got;
    if (over_ && over_())
      return make_error(Code::kInvalidUsage, "the communicator ended during an exchange");
    if (!probe.passed()) continue;
    if (const std::optional<Error> gone = find_gone(from)) {
      // Its last message may have been on its way.
      got = service_->mailbox().take(from, round, bytes, Deadline::in_ns(kSpreadNs));
      return got || got.error().code != Code::kTimeout ? std::move(got) : tl::unexpected(*gone);
    }
    probe = Deadline::in_ns(pause_ns *= 2);
  }
}

// An error if nobody listens any more where `peer` did.
std::optional<Error> Plane::find_gone(Rank peer) {
  if (!met_ || !links_->has_address(peer)) return std::nullopt;
  const Result<Reply> reply =
      links_->call(peer, RequestKind::kExchangeState, {}, Deadline::in_ns(kProbeNs));
  if (reply || reply.error().code != Code::kRemoteError) return std::nullopt;
  return Error{
      Code::kRemoteError,
      fmt::format("{} left during an exchange", describe(peers_[static_cast<std::size_t>(peer)])),
      peer};
}

// Those we would still send to must not wait for us; they tell those after them.
void Plane::spread_failure(const Leg& leg, std::uint32_t first_round, const Error& own) {
  Error error = as_remote(own, options_.rank);
  // A rank that is told to stop is no mistake of the others, who may go on without it.
  if (own.code == Code::kInvalidUsage && is_told_to_stop())
    error = {Code::kRemoteError, own.message, options_.rank};
  if (met_ && error.code != own.code)
    error.message = fmt::format("{} failed: {}", describe(self_.info), own.message);
  const Deadline deadline = Deadline::in_ns(kSpreadNs);
  const std::vector<Rank> targets = exchange_targets(leg.circle);
  for (std::uint32_t round = first_round; round < targets.size(); ++round) {
    if (targets[round] == kNoRank) continue;
    static_cast<void>(links_->post_failure(targets[round], leg.exchange, leg.first_round + round,
                                           error, deadline));
  }
}

// The others' next exchange is the one that this rank does not come to.
void Plane::call_off() {
  const Error error{
      Code::kRemoteError,
      fmt::format("{} cannot take part in the new communicator; its own error message says why",
                  describe(self_.info)),
      options_.rank};
  if (!met_) return;
  service_->give_up_meeting(error);
  const std::uint64_t next = service_->mailbox().enter();
  spread_failure({.circle = Circle::of_all(options_.rank, options_.ranks), .exchange = next}, 0,
                 error);
}

// A peer that hangs up may only have given up because of another's death, which we are about to
// hear of too, from the root or by our own watch: the dead one is to blame. Or because of another's
// failure, and then it has told those whom it would still have sent to.
Error Plane::explain(Error error, Deadline by) {
  if (error.code != Code::kRemoteError) return error;
  const std::int64_t most_ns = service_->attends_meeting() ? kRootExplainNs : kExplainNs;
  const Deadline deadline{std::min(Deadline::in_ns(most_ns).at_ns, by.at_ns)};
  if (met_ && !watching_)
    return service_->mailbox().await_reason(deadline).value_or(std::move(error));
  return service_->mailbox().await_failure(deadline).value_or(std::move(error));
}

// Follows who waits for whom from the rank that we waited for to one that did not come, or whose
// service does not even answer.
Error Plane::find_absent(Error error, std::uint64_t number) {
  const Deadline deadline = Deadline::in_ns(kSearchNs);
  Rank suspect = error.culprit;
  for (int step = 0; step < kMostSearchSteps; ++step) {
    if (suspect < 0 || suspect >= options_.ranks || suspect == options_.rank) return error;
    const Result<Reply> reply = links_->call(suspect, RequestKind::kExchangeState, {}, deadline);
    const std::string who = describe(peers_[static_cast<std::size_t>(suspect)]);
    if (!reply) {
      return {Code::kTimeout,
              fmt::format("{} did not come to an exchange in time and does not answer", who),
              suspect};
    }
    Reader reader(reply->payload);
    const auto entered = reader.number<std::uint64_t>();
    const auto waits_for = reader.number<Rank>();
    if (!reader.finished()) return error;
    if (entered < number) {
      return {Code::kTimeout, fmt::format("{} did not come to an exchange in time", who), suspect};
    }
    suspect = waits_for;
  }
  return error;
}

void Plane::watch_peers(std::function<bool(Rank)> on_death) {
  watching_ = true;
  service_->watch(plan_watch(members_, self_), [this, on_death = std::move(on_death)](Rank rank) {
    service_->mailbox().member_died(
        rank, {Code::kRemoteError,
               fmt::format("{} died", describe(peers_[static_cast<std::size_t>(rank)])), rank});
    return on_death(rank);
  });
  service_->finish_meeting();
}

void Plane::connect_watches(Deadline deadline) {
  const auto differ = [&](auto field) {
    return std::ranges::any_of(peers_, [&](const PeerInfo& peer) {
      return std::invoke(field, peer) != std::invoke(field, self_.info);
    });
  };
  if (!differ(&PeerInfo::process_token)) return;  // threads of one process end together
  std::vector<Rank> targets;
  for (std::int64_t distance = 1; distance < options_.ranks; distance *= 2)
    targets.push_back(static_cast<Rank>((options_.rank + distance) % options_.ranks));
  if (!differ(&PeerInfo::host_id)) targets.resize(1);
  const Deadline by{std::min(deadline.at_ns, now_ns() + kWatchNs)};
  for (const Rank peer : targets) {
    if (const Status watched = connect_watch(peer, by); !watched)
      TUTTI_LOG(options_.log, LogLevel::kInfo, "this rank cannot watch {}: {}",
                describe(peers_[static_cast<std::size_t>(peer)]), watched.error().message);
  }
}

// By a connection of its own: the links stay as they are, and who is out of descriptors later can
// still be asked over them.
Status Plane::connect_watch(Rank peer, Deadline by) {
  const std::string& address = address_between(self_, members_[static_cast<std::size_t>(peer)]);
  if (address.empty()) return {};
  const Stop stop(stop_->fd(), over_ ? &over_ : nullptr);
  TUTTI_TRY_ASSIGN(
      Channel channel,
      open_connection(address, options_.key,
                      {.rank = options_.rank, .peer = peer, .ranks = options_.ranks}, stop, by));
  TUTTI_TRY(send_within(channel, start_frame({.type = FrameType::kWatch}).bytes(), stop, by));
  service_->add_watch(peer, std::move(channel));
  return {};
}

bool Plane::nobody_listens(Rank peer) {
  const std::string& address = address_between(self_, members_.at(static_cast<std::size_t>(peer)));
  if (address.empty()) return false;
  const Result<Channel> channel =
      connect_to(address, Stop(stop_->fd()), Deadline::in_ns(kSpreadNs));
  return !channel && channel.error().code == Code::kRemoteError;
}

std::string Plane::note() const {
  const std::size_t unseen = plan_watch(members_, self_).unseen.size();
  std::string text = has_pidfd() ? "dead ranks are detected by pidfd"
                                 : "dead ranks are detected by polling /proc every 100 ms, because "
                                   "this kernel or container has no pidfd";
  if (unseen > 0) {
    text +=
        fmt::format("; {} ranks on other hosts or in other pid namespaces are not watched", unseen);
  }
  return text;
}

void Plane::close() {
  if (closed_.exchange(true, std::memory_order_relaxed)) return;
  interrupt();
  if (links_) links_->close();
  if (service_) service_->stop();
}

bool Plane::is_told_to_stop() const {
  return interrupted_.load(std::memory_order_relaxed) || (over_ && over_());
}

void Plane::interrupt() {
  interrupted_.store(true, std::memory_order_relaxed);
  if (stop_) stop_->raise();
  if (!service_) return;
  Error error{Code::kInvalidUsage, {}, kNoRank};
  try {
    error.message = "the communicator was closed during an exchange";
  } catch (const std::bad_alloc&) {
    // Without a text, then.
  }
  service_->mailbox().fail(std::move(error));
}

}  // namespace tutti::control
