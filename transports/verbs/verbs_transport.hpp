// SPDX-License-Identifier: Apache-2.0
// RDMA between the ranks of a job: InfiniBand, and RoCE over Ethernet, by libibverbs, which is
// loaded at run time.
//
// Connections are pumped as TCP's are: the sender writes into a mirror of the peer's inbox, and
// progress() has the adapter write what was committed to the same place at the peer, which learns
// of it from its completion queue. Two ranks share one reliable connection, made by who sends
// first. Nothing runs but in progress(), connect() and the service thread's answers, which make a
// queue pair and are bounded by what the kernel takes to resolve an address (about a second where
// nobody answers).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "transports/transport.hpp"

namespace tutti {

struct VerbsOptions {
  std::string hca = {};                  // which devices and ports: verbs/selection.hpp; empty: any
  std::uint32_t gid_index = kChosenGid;  // in the port's table
  std::uint32_t timeout = 16;            // an answer may take 4.096 us * 2^timeout; 1..31
  std::uint32_t retries = 7;             // before the peer is given up; 0..7
  std::uint64_t arena_bytes = std::uint64_t{2} << 20;  // of every rank; rounded up to pages
  Log log{};
};

// A port as people know it.
struct VerbsPort {
  std::string device;
  std::uint32_t port = 0;
  bool active = false;
  bool ethernet = false;  // RoCE; else InfiniBand
  std::uint32_t lid = 0;  // InfiniBand
  std::string gid = {};   // the one that is used; "" where there is none
  std::int32_t gid_index = -1;
  std::string gid_type = {};  // as sysfs says it, "RoCE v2"

  // Can messages leave by it?
  [[nodiscard]] bool usable() const { return active && (!ethernet || gid_index >= 0); }
};
// "rxe0:1, RoCE v2, GID 1 (::ffff:10.9.0.1)", "mlx5_0:1, InfiniBand, LID 4"; "... is down".
[[nodiscard]] std::string text_of(const VerbsPort& port);

// Was this built with RDMA?
[[nodiscard]] bool has_verbs_transport();

// Every port that the options admit, in the order in which they are looked at: the first active one
// is used. Errors: kNotSupported (this build or machine has no libibverbs), kInvalidArgument (hca),
// kSystemError.
[[nodiscard]] Result<std::vector<VerbsPort>> verbs_ports(const VerbsOptions& options);

// The transport of a rank, and what else the ranks must agree on before they use it.
struct VerbsWay {
  std::unique_ptr<Transport> transport;
  VerbsPort port;
};
// For the rank that `control` speaks for; `control` must outlive it. Opens the device; registers
// memory in listen(). close() waits for goodbyes to be acknowledged, four timeouts of the port or
// 2 s at most. Errors: those of verbs_ports, kSystemError where no port is active, kInvalidArgument
// for an arena beyond kMaxArenaBytes.
[[nodiscard]] Result<VerbsWay> make_verbs_transport(ControlChannel& control,
                                                    const VerbsOptions& options);

}  // namespace tutti
