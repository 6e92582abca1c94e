// SPDX-License-Identifier: Apache-2.0
#include "launch/address.hpp"

#include <fmt/core.h>
#include <sodium.h>

#include <charconv>

#include "base/text.hpp"
#include "launch/secret_file.hpp"

namespace tutti::launch {
namespace {

std::string who_started(const Place& place) {
  return place.launcher == kByHand ? "a job started with TUTTI_RANK" : place.launcher;
}

tl::unexpected<Error> nowhere_to_meet(const Place& place) {
  return make_error(
      Code::kInvalidArgument,
      fmt::format("{} has no key-value store, so its {} ranks do not know where to meet: {}set "
                  "TUTTI_ROOT=host:port of rank 0's host, and TUTTI_SECRET_FILE",
                  who_started(place), place.ranks,
                  place.launcher == "srun" ? "use srun --mpi=pmi2 or --mpi=pmix, or " : ""));
}

// This key is public: it only keeps jobs of different names apart.
std::vector<std::byte> public_secret() {
  constexpr std::string_view kText = "TUTTI_INSECURE: no secret at all";
  static_assert(kText.size() == kLeastSecretBytes);
  const auto bytes = std::as_bytes(std::span(kText));
  return {bytes.begin(), bytes.end()};
}

Result<std::vector<std::byte>> secret_of(const Place& place, const Config& config, const Log& log) {
  if (!config.secret_file.empty() && config.insecure)
    return make_error(Code::kInvalidArgument,
                      "TUTTI_SECRET_FILE and TUTTI_INSECURE=1 are both set: unset one of them, on "
                      "all ranks");
  if (!config.secret_file.empty()) return read_secret_file(config.secret_file);
  if (!config.insecure)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} does not give the ranks a secret: set TUTTI_SECRET_FILE to a file with the "
                    "same bytes on every host (head -c 32 /dev/urandom > FILE; chmod 600 FILE), or "
                    "set TUTTI_INSECURE=1 if anyone who can reach {} may join",
                    who_started(place), place.root));
  if (place.rank == 0) {
    const Log warning = log.enabled(LogLevel::kWarn) ? log : Log(LogLevel::kWarn, place.rank);
    TUTTI_LOG(
        warning, LogLevel::kWarn,
        "TUTTI_INSECURE=1: this job has no secret. Anyone who can reach {} can join it in place of "
        "a rank, and read and change the data that the ranks send; set TUTTI_SECRET_FILE instead",
        place.root);
  }
  return public_secret();
}

}  // namespace

Result<HostPort> parse_root(const std::string& root) {
  const std::size_t colon = root.rfind(':');
  HostPort parsed;
  if (colon != std::string::npos) {
    parsed.host = root.substr(0, colon);
    const char* const end = root.data() + root.size();
    const auto [rest, error] = std::from_chars(root.data() + colon + 1, end, parsed.port);
    if (error != std::errc{} || rest != end) parsed.port = 0;
  }
  const bool bracketed = parsed.host.starts_with('[') && parsed.host.ends_with(']');
  if (bracketed) parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  // Without brackets the end of an IPv6 address could be taken for the port.
  const bool many_colons = !bracketed && parsed.host.find(':') != std::string::npos;
  if (parsed.host.empty() || parsed.port == 0 || many_colons)
    return make_error(Code::kInvalidArgument,
                      fmt::format("TUTTI_ROOT '{}' is not host:port with a port of 1 to 65535; "
                                  "examples: node0:7000, 10.0.0.1:7000, [fd00::1]:7000",
                                  printable(root)));
  return parsed;
}

Result<UniqueId> meet_at_address(const Place& place, const Config& config, const Log& log) {
  if (place.root.empty()) return nowhere_to_meet(place);
  TUTTI_TRY_ASSIGN(const HostPort root, parse_root(place.root));
  TUTTI_TRY_ASSIGN(std::vector<std::byte> secret, secret_of(place, config, log));
  // The launcher's name of the run, and the user's.
  const std::string job = fmt::format("{}\n{}", place.job, config.job);
  Result<UniqueId> id = unique_id_at(root.host, root.port, secret, job);
  ::sodium_memzero(secret.data(), secret.size());
  if (id && place.rank == 0) TUTTI_TRY(serve_root(*id, {.log = log}));
  return id;
}

}  // namespace tutti::launch
