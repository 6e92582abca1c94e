// SPDX-License-Identifier: Apache-2.0
// The table of transports. To add one: a row here, its word in TransportChoice (base/config.hpp)
// and its name in CMakeLists.txt.
//
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "transports/transport.hpp"

namespace tutti {

enum class Reach : std::uint8_t {
  kHost,     // ranks of one host
  kNetwork,  // any rank
};

struct TransportOptions {
  const Config& config;
  std::string ip;  // of the interface that was chosen for the job; "" where there is none
  Log log;
};

struct OpenedTransport {
  std::unique_ptr<Transport> transport;
  // Only ranks of one kind can reach each other: by InfiniBand or by RoCE. Never 0.
  std::uint8_t kind = 1;
};

struct TransportInfo {
  std::string_view name;  // as TUTTI_TRANSPORT has it, and in reports
  TransportChoice choice;
  Reach reach;
  bool built;  // this build has it
  // The equipment that a host needs for it, such as "RDMA port"; empty: every host has it.
  std::string_view needs;
  // Ready for listen(), and with what that could be refused taken already. Errors: kNotSupported or
  // kSystemError (not here), kInvalidArgument (a setting is wrong).
  Result<OpenedTransport> (*open)(ControlChannel& control, const TransportOptions& options);
  // Returns whether the host has what the transport `needs`, so that a user would expect it to
  // work.
  bool (*expected)(const Config& config);
};

// Those that are preferred first.
[[nodiscard]] std::span<const TransportInfo> all_transports();

}  // namespace tutti
