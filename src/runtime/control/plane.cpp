#include "runtime/control/plane.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/clock.hpp"
#include "base/host.hpp"

namespace tutti::control {
namespace {

// The root answers at our deadline with the names of those who did not come; this is for its way.
constexpr std::int64_t kRootGraceNs = 2'000'000'000;
// For telling others of a failure, and for finding the rank that everybody waits for.
constexpr std::int64_t kSpreadNs = 200'000'000;
constexpr std::int64_t kSearchNs = 1'000'000'000;
constexpr std::int64_t kExplainNs = 100'000'000;
constexpr std::int64_t kRootExplainNs = 1'000'000'000;  // its thread serves everybody
constexpr int kMostSearchSteps = 64;

Rank shifted(Rank rank, std::int64_t by, std::int32_t ranks) {
  return static_cast<Rank>(((rank + by) % ranks + ranks) % ranks);
}

}  // namespace

Result<std::unique_ptr<Plane>> Plane::start(const PlaneOptions& options) {
  std::unique_ptr<Plane> plane(new Plane(options));
  TUTTI_TRY_ASSIGN(plane->stop_, StopSignal::create());
  plane->links_ =
      std::make_unique<Links>(options.key, options.rank, options.ranks, plane->stop_->fd());
  TUTTI_TRY_ASSIGN(plane->service_, Service::start({.key = options.key,
                                                    .self = options.rank,
                                                    .ranks = options.ranks,
                                                    .log = options.log,
                                                    .watch_mode = options.watch_mode,
                                                    .listen_kind = options.listen_kind}));
  return plane;
}

Status Plane::meet(const std::string& root_address, const JoinOptions& options) {
  self_.info = PeerInfo{.rank = options_.rank,
                        .pid = ::getpid(),
                        .uid = ::geteuid(),
                        .process_token = process_token(),
                        .token_address = process_token_address(),
                        .host_id = host_identity(options.host_id_text),
                        .host = host_name().substr(0, kMaxHostBytes)};
  self_.address = service_->address();
  self_.start_ticks = process_start_ticks(self_.info.pid);
  self_.pid_namespace = pid_namespace();
  TUTTI_TRY_ASSIGN(ControlFd root, introduce(root_address, options.deadline));
  TUTTI_TRY(await_contacts(root.get(), options.deadline));
  service_->attend_meeting(std::move(root));
  Result<std::vector<std::byte>> records = exchange(encode_member(self_), options.deadline);
  Status met = records ? adopt(*records) : tl::unexpected(std::move(records).error());
  service_->finish_meeting(met ? std::nullopt : std::optional<Error>(met.error()));
  return met;
}

Result<ControlFd> Plane::introduce(const std::string& root_address, Deadline deadline) {
  Result<ControlFd> root = open_connection(
      root_address, options_.key,
      {.rank = options_.rank, .peer = kRootRank, .ranks = options_.ranks}, stop_->fd(), deadline);
  if (!root) {
    Error error = std::move(root).error();
    error.message = fmt::format(
        "rank {} cannot reach the root of its job: {}{}", options_.rank, error.message,
        error.code == Code::kRemoteError
            ? "; the job has met or failed already, or the process that made the unique id ended"
            : "");
    return tl::unexpected(std::move(error));
  }
  const CheckIn check_in{.member = self_, .left_ns = std::max<std::int64_t>(deadline.left_ns(), 0)};
  TUTTI_TRY(send_within(root->get(), encode_check_in(check_in), stop_->fd(), deadline));
  return root;
}

Status Plane::await_contacts(int root, Deadline deadline) {
  std::vector<std::byte> buffer(kMaxPacketBytes);
  const Deadline with_grace{deadline.at_ns + kRootGraceNs};
  Result<Received> received = receive_within(root, buffer, false, stop_->fd(), with_grace);
  if (!received) {
    Error error = std::move(received).error();
    error.message =
        fmt::format("rank {} waiting for its job to meet: {}", options_.rank,
                    error.code == Code::kRemoteError ? "the process that made the unique id ended"
                                                     : error.message);
    return tl::unexpected(std::move(error));
  }
  Reader reader{std::span(buffer).first(received->packet_bytes)};
  const FrameHeader header = read_header(reader);
  if (header.type == FrameType::kRefused) {
    return tl::unexpected(decode_error(reader, options_.ranks));
  }
  const std::optional<Contacts> contacts =
      header.type == FrameType::kMet ? decode_met(reader, options_.ranks) : std::nullopt;
  if (!contacts) return make_error(Code::kRemoteError, "the root sent a malformed answer");
  for (const auto& [rank, address] : *contacts) links_->set_address(rank, address);
  return {};
}

Status Plane::adopt(std::span<const std::byte> records) {
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    std::optional<Member> member = decode_member(
        records.subspan(static_cast<std::size_t>(rank) * kMemberBytes, kMemberBytes), rank);
    if (!member) {
      return make_error(Code::kRemoteError, fmt::format("malformed record of rank {}", rank), rank);
    }
    links_->set_address(rank, member->address);
    peers_.push_back(member->info);
    members_.push_back(std::move(*member));
  }
  met_ = true;
  return {};
}

void Plane::serve(RequestKind kind, Handler handler) { service_->serve(kind, std::move(handler)); }

Result<Reply> Plane::call(Rank peer, RequestKind kind, std::span<const std::byte> payload,
                          Deadline deadline) {
  if (peer < 0 || peer >= options_.ranks) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("rank {} of {} does not exist", peer, options_.ranks));
  }
  return links_->call(peer, kind, payload, deadline);
}

Result<std::vector<std::byte>> Plane::allgather(std::span<const std::byte> mine,
                                                Deadline deadline) {
  return exchange(mine, deadline);
}

// Round k, distance d = 2^k: send what we have of the last min(d, p - d) ranks to rank + d, receive
// as much from rank - d (Bruck et al. 1997). blocks[i] is the blob of rank - i.
Result<std::vector<std::byte>> Plane::exchange(std::span<const std::byte> mine, Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(options_.ranks);
  if (mine.size() > kMaxExchangeBytes / ranks) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("an exchange of {} x {} bytes: the limit is {} in all", ranks,
                                  mine.size(), kMaxExchangeBytes));
  }
  const std::uint64_t number = service_->mailbox().enter();
  std::vector<std::byte> blocks(mine.begin(), mine.end());
  blocks.reserve(mine.size() * ranks);
  TUTTI_TRY(run_rounds(number, mine.size(), blocks, deadline));
  service_->mailbox().leave();
  std::vector<std::byte> all(blocks.size());
  for (std::size_t i = 0; i < ranks && !mine.empty(); ++i) {
    const auto owner = static_cast<std::size_t>(
        shifted(options_.rank, -static_cast<std::int64_t>(i), options_.ranks));
    std::copy_n(blocks.begin() + static_cast<std::ptrdiff_t>(i * mine.size()), mine.size(),
                all.begin() + static_cast<std::ptrdiff_t>(owner * mine.size()));
  }
  return all;
}

Status Plane::run_rounds(std::uint64_t number, std::size_t blob_bytes,
                         std::vector<std::byte>& blocks, Deadline deadline) {
  std::uint32_t round = 0;
  for (std::int64_t distance = 1; distance < options_.ranks; distance *= 2, ++round) {
    const auto count =
        static_cast<std::size_t>(std::min<std::int64_t>(distance, options_.ranks - distance));
    const Rank to = shifted(options_.rank, distance, options_.ranks);
    const Rank from = shifted(options_.rank, -distance, options_.ranks);
    const Status sent =
        links_->post(to, number, round, std::span(blocks).first(count * blob_bytes), deadline);
    if (!sent) {
      Error error = explain(sent.error());
      spread_failure(number, round + 1, error);
      return tl::unexpected(std::move(error));
    }
    Result<std::vector<std::byte>> got =
        service_->mailbox().take(from, round, count * blob_bytes, deadline);
    if (!got) {
      Error error = explain(std::move(got).error());
      if (error.code == Code::kTimeout && met_) {
        error = find_absent(std::move(error), number);
        // Somebody else may have found out more meanwhile.
        got = service_->mailbox().take(from, round, count * blob_bytes, Deadline{});
        if (!got && got.error().code != Code::kTimeout) error = std::move(got).error();
      }
      spread_failure(number, round + 1, error);
      return tl::unexpected(std::move(error));
    }
    blocks.insert(blocks.end(), got->begin(), got->end());
  }
  return {};
}

// Those we would still send to must not wait for us; they tell those after them.
void Plane::spread_failure(std::uint64_t number, std::uint32_t first_round, const Error& error) {
  const Deadline deadline = Deadline::in_ns(kSpreadNs);
  for (std::uint32_t round = first_round; (std::int64_t{1} << round) < options_.ranks; ++round) {
    const Rank to = shifted(options_.rank, std::int64_t{1} << round, options_.ranks);
    static_cast<void>(links_->post_failure(to, number, round, error, deadline));
  }
}

// A peer that hangs up may only have given up because of another's death, which we are about to
// hear of too, from the root or by our own watch: the dead one is to blame.
Error Plane::explain(Error error) {
  if (error.code != Code::kRemoteError || (met_ && !watching_)) return error;
  const Deadline deadline = Deadline::in_ns(met_ ? kExplainNs : kRootExplainNs);
  return service_->mailbox().await_failure(deadline).value_or(std::move(error));
}

// Follows who waits for whom from the rank that we waited for to one that did not come, or whose
// service does not even answer.
Error Plane::find_absent(Error error, std::uint64_t number) {
  const Deadline deadline = Deadline::in_ns(kSearchNs);
  Rank suspect = error.culprit;
  for (int step = 0; step < kMostSearchSteps; ++step) {
    if (suspect < 0 || suspect >= options_.ranks || suspect == options_.rank) return error;
    const Result<Reply> reply = links_->call(suspect, kExchangeStateRequest, {}, deadline);
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

void Plane::watch_peers(std::function<void(Rank)> on_death) {
  watching_ = true;
  service_->watch(
      plan_watch(members_, self_).targets, [this, on_death = std::move(on_death)](Rank rank) {
        service_->mailbox().member_died(
            rank, {Code::kRemoteError,
                   fmt::format("{} died", describe(peers_[static_cast<std::size_t>(rank)])), rank});
        on_death(rank);
      });
}

std::string Plane::note() const {
  const std::size_t unseen = plan_watch(members_, self_).unseen.size();
  std::string text = has_pidfd() ? "deaths noticed by pidfd"
                                 : "deaths noticed by polling /proc every 100 ms (no pidfd here)";
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

void Plane::interrupt() {
  if (stop_) stop_->raise();
  if (service_) {
    service_->mailbox().fail(
        {Code::kInvalidUsage, "the control plane was closed during an exchange", kNoRank});
  }
}

}  // namespace tutti::control
