// SPDX-License-Identifier: Apache-2.0
// What a transport may ask of the job: short authenticated calls to a peer's service thread.
// The control plane implements it (src/control); transports and their tests use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"

namespace tutti {

// Says where a rank runs. Exchanged at start, so equal on all ranks.
struct PeerInfo {
  Rank rank = kNoRank;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint64_t process_token = 0;  // equal for ranks that are threads of one process
  std::uint64_t token_address = 0;  // in that process, of a word that holds the token
  std::uint64_t host_id = 0;        // equal for ranks that can share memory
  std::string host;                 // for people
};

enum class RequestKind : std::uint16_t {
  kEcho = 0,
  kBoard = 1,
  kShmSegment = 2,
  kWindow = 3,
  kShrink = 4,
  kTopology = 5,
  kTcp = 6,
  kRow = 7,
  kExchangeState = 8,  // the control plane's own
  kVerbs = 9,
  kFirstUser = 64,
};

struct Reply {
  std::vector<std::byte> payload;
  UniqueFd fd;  // at most one, same host only
};

struct Request {
  Rank from = kNoRank;  // proved by the handshake, not claimed by the payload
  std::span<const std::byte> payload;
};

// The handler lends an fd (it stays the handler's; the service dups it into the reply by
// SCM_RIGHTS, and drops `keep` after that).
struct HandlerReply {
  std::vector<std::byte> payload;
  int lent_fd = -1;
  std::shared_ptr<const void> keep = nullptr;
};
using Handler = std::function<Result<HandlerReply>(const Request&)>;

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  [[nodiscard]] virtual Rank rank() const = 0;
  [[nodiscard]] virtual const std::vector<PeerInfo>& peers() const = 0;
  // Installs the handler for a kind. Handlers run on this rank's service thread, must not block,
  // and live until the channel is closed. Any thread.
  virtual void serve(RequestKind kind, Handler handler) = 0;
  // Asks `peer`'s service thread. Blocks at most until `deadline`; needs nothing of the peer's user
  // threads. Errors: kTimeout (peer alive but silent), kRemoteError (peer gone or refused), with
  // culprit. Any thread; calls from one rank are served one at a time.
  [[nodiscard]] virtual Result<Reply> call(Rank peer, RequestKind kind,
                                           std::span<const std::byte> payload,
                                           Deadline deadline) = 0;
  // Waits until a socket of the caller's can be written or has failed, as call() waits: what ends
  // calls, an abort above all, ends it. Errors: kTimeout, kInvalidUsage (ended). User thread.
  [[nodiscard]] virtual Status await_writable(int socket, Deadline deadline) = 0;
};

}  // namespace tutti
