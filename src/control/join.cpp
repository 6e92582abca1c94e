// SPDX-License-Identifier: Apache-2.0
// Joining: from the 128 bytes of an id to a control plane.

#include <fmt/core.h>
#include <sodium.h>

#include <algorithm>

#include "base/config.hpp"
#include "base/host.hpp"
#include "control/interfaces.hpp"
#include "control/plane.hpp"
#include "control/root.hpp"
#include "control/solo_plane.hpp"
#include "control/tcp_socket.hpp"

namespace tutti {
namespace control {
namespace {

Error cannot_join(Rank rank, Error error) {
  error.message = fmt::format("rank {} cannot join: {}", rank, error.message);
  return error;
}

// The names of an agreed root's host may become known only when rank 0's process has started.
Result<std::vector<TcpAddress>> find_root(const IdContent& content, const JoinOptions& options) {
  const std::function<bool()> cancelled = [&] { return options.cancel.stop_requested(); };
  for (Backoff backoff;;) {
    Result<std::vector<TcpAddress>> addresses = find_agreed(content.tcp, options.interfaces);
    if (addresses || addresses.error().code != Code::kRemoteError) return addresses;
    const Status again = backoff.pause(Stop(-1, &cancelled), options.deadline);
    if (!again && again.error().code != Code::kTimeout) return tl::unexpected(again.error());
    if (!again) return make_error(Code::kTimeout, addresses.error().message);
  }
}

// Returns the address at which this rank listens for ranks of other hosts: where it was told to,
// else on the network over which it reaches the root. A rank that needs a network waits for one
// that has a route there.
Result<std::optional<TcpAddress>> listen_where(const std::vector<TcpAddress>& root, bool needed,
                                               const JoinOptions& options) {
  if (!options.interfaces.empty()) return choose_interface(options.interfaces);
  const std::function<bool()> cancelled = [&] { return options.cancel.stop_requested(); };
  for (Backoff backoff;;) {
    for (const TcpAddress& address : root)
      if (const std::optional<TcpAddress> source = source_towards(address)) return source;
    if (!needed) return std::nullopt;
    const Status again = backoff.pause(Stop(-1, &cancelled), options.deadline);
    if (again) continue;
    if (again.error().code != Code::kTimeout) return tl::unexpected(again.error());
    return make_error(Code::kTimeout,
                      fmt::format("{} cannot be reached from this host: there is no route to it",
                                  root.front().text()));
  }
}

// The roots to which a rank comes, its part's first, and where it listens.
struct Roots {
  std::vector<RootWay> ways;
  std::optional<TcpAddress> tcp_at{};
};

// Appends the root of an id. Not inlined: GCC 12 would warn, groundlessly, of how its error is
// moved in builds for the thread sanitizer.
[[gnu::noinline]] Status add_root(const IdContent& content, std::int32_t number,
                                  std::uint64_t locality, const JoinOptions& options,
                                  Roots& roots) {
  const bool near = !content.local.empty() && content.locality == locality;
  if (content.tcp.empty() && !near) {
    return make_error(
        Code::kInvalidUsage,
        "the unique id was made on another host and names no network interface of it: "
        "set TUTTI_IFNAME there");
  }
  std::vector<TcpAddress> root;
  if (!content.tcp.empty()) {
    TUTTI_TRY_ASSIGN(root, find_root(content, options));
  }
  RootWay& added = roots.ways.emplace_back(
      RootWay{.way = Way(content.local), .key = content.key, .number = number});
  if (!near) {
    std::vector<std::string> addresses;
    for (const TcpAddress& address : root) addresses.push_back(address.text());
    added.way = Way(std::move(addresses), content.agreed());
  }
  if (!root.empty() && !roots.tcp_at) {
    TUTTI_TRY_ASSIGN(roots.tcp_at, listen_where(root, !near, options));
  }
  return {};
}

constexpr std::int64_t kTellNs = 2'000'000'000;

// This rank cannot come, and the others would wait for it. Best effort: a rank that has no thread,
// as it may be, can still open a connection.
void tell_root(const RootWay& way, const PlaneOptions& own, const Error& error,
               const JoinOptions& options) {
  const std::function<bool()> cancelled = [&] { return options.cancel.stop_requested(); };
  const Stop stop(-1, &cancelled);
  const Deadline deadline{std::min(options.deadline.at_ns, Deadline::in_ns(kTellNs).at_ns)};
  Result<Channel> root = open_connection(
      way.way, way.key, {.rank = own.rank, .peer = kRootRank, .ranks = own.ranks}, stop, deadline);
  if (!root) return;
  static_cast<void>(
      send_within(*root, encode_error({.type = FrameType::kGiveUp}, as_remote(error, own.rank)),
                  stop, deadline));
}

Result<Roots> find_roots(std::span<const IdContent> ids, const PlaneOptions& own,
                         const JoinOptions& options) {
  const Division division(own.ranks, own.roots);
  std::vector<std::int32_t> numbers{division.part_of(own.rank)};
  if (numbers[0] != 0 && division.leads(own.rank)) numbers.push_back(0);
  Roots roots;
  for (const std::int32_t number : numbers) {
    const IdContent& id = ids[static_cast<std::size_t>(number)];
    TUTTI_TRY(add_root(id, number, own.locality, options, roots));
  }
  return roots;
}

}  // namespace

Result<std::unique_ptr<Plane>> start_and_meet(std::span<const IdContent> ids, PlaneOptions own,
                                              const JoinOptions& options) {
  own.roots = static_cast<std::int32_t>(ids.size());
  if (own.locality == 0) own.locality = host_identity("");
  Result<Roots> roots = find_roots(ids, own, options);
  if (!roots) return tl::unexpected(cannot_join(own.rank, std::move(roots).error()));
  if (!own.tcp_at) own.tcp_at = roots->tcp_at;
  Result<std::unique_ptr<Service>> service = Plane::start_service(own);
  if (!service) {
    Error error = cannot_join(own.rank, std::move(service).error());
    for (const RootWay& way : roots->ways) tell_root(way, own, error, options);
    return tl::unexpected(std::move(error));
  }
  Result<std::unique_ptr<Plane>> plane = Plane::start(own, *std::move(service));
  if (!plane) return tl::unexpected(cannot_join(own.rank, std::move(plane).error()));
  const std::stop_callback cancelled(options.cancel, [&] { (*plane)->interrupt(); });
  TUTTI_TRY((*plane)->meet(roots->ways, options));
  return plane;
}

}  // namespace control

namespace {

Result<std::string> settle_interfaces(const RootOptions& options) {
  if (options.interfaces) return *options.interfaces;
  TUTTI_TRY_ASSIGN(const Config config, process_config());
  return config.interfaces;
}

}  // namespace

Result<UniqueId> create_unique_id(const RootOptions& options) {
  TUTTI_TRY_ASSIGN(const std::string interfaces, settle_interfaces(options));
  TUTTI_TRY_ASSIGN(const Config config, process_config());
  return control::start_root(
      {.log = options.log, .interfaces = interfaces, .idle_ns = config.init_timeout_ns});
}

Status serve_root(const UniqueId& id, const RootOptions& options) {
  TUTTI_TRY_ASSIGN(const control::IdContent content, control::decode_id(id));
  if (!content.agreed()) {
    return make_error(
        Code::kInvalidUsage,
        "this unique id has its root: only ids of an agreed address need to be served");
  }
  TUTTI_TRY_ASSIGN(const std::string interfaces, settle_interfaces(options));
  TUTTI_TRY_ASSIGN(const Config config, process_config());
  return control::start_agreed_root(
      content, {.log = options.log, .interfaces = interfaces, .idle_ns = config.init_timeout_ns});
}

Result<std::unique_ptr<ControlPlane>> ControlPlane::join(std::span<const UniqueId> ids, Rank rank,
                                                         std::int32_t ranks,
                                                         const JoinOptions& options) {
  if (::sodium_init() < 0)
    return make_error(Code::kSystemError, "the system provides no random bytes");
  if (ranks < 1 || ranks > control::kMaxRanks || rank < 0 || rank >= ranks) {
    return make_error(Code::kInvalidUsage,
                      fmt::format("rank {} of {} ranks: ranks are 1 to {}, and 0 <= rank < ranks",
                                  rank, ranks, control::kMaxRanks));
  }
  TUTTI_TRY_ASSIGN(const std::vector<control::IdContent> contents, control::decode_ids(ids, ranks));
  const control::SessionKey key = control::job_key(contents);
  if (ranks == 1) {
    control::retire_root(key.session);
    return control::make_solo_plane(key.session, control::own_info(0, options.host_id_text));
  }
  auto plane = control::start_and_meet(
      contents,
      {.key = key,
       .rank = rank,
       .ranks = ranks,
       .log = options.log,
       .watch_mode = tutti::has_pidfd() ? control::WatchMode::kPidfd : control::WatchMode::kPoll},
      options);
  if (plane) return *std::move(plane);
  // Nobody needs to wait for a rank that this machine does not let come, or that has given up.
  const Error aborted{Code::kRemoteError, fmt::format("rank {} aborted its join", rank), rank};
  for (const control::IdContent& content : contents) {
    const SessionId& session = content.key.session;
    if (!options.cancel.stop_requested()) {
      if (plane.error().code == Code::kSystemError)
        control::call_off(session, rank, ranks, plane.error());
    } else if (content.agreed()) {
      // Ranks that come later ask an agreed address again and again, and are to be told.
      control::call_off(session, rank, ranks, aborted);
    } else {
      control::abandon_root(session, rank, ranks, aborted);
    }
  }
  return tl::unexpected(std::move(plane).error());
}

}  // namespace tutti
