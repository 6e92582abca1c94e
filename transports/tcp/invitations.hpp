// SPDX-License-Identifier: Apache-2.0
// Whom this rank has told where it listens, and with which tokens they prove themselves. Any
// thread: the service thread invites, the user's thread admits.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/tcp_address.hpp"
#include "transports/control.hpp"
#include "transports/tcp/frame.hpp"

namespace tutti::tcp {

// The answer to RequestKind::kTcp: where to connect, and what to show each other there.
struct Invitation {
  TcpAddress at;
  Token hello{}, reply{};
};
[[nodiscard]] std::vector<std::byte> encode(const Invitation& invitation);
// Error: kRemoteError, it is none; it may come from anywhere.
[[nodiscard]] Result<Invitation> decode_invitation(std::span<const std::byte> bytes);

class Invitations {
 public:
  void open(const TcpAddress& at);
  void close();  // nobody is expected any more
  // The answer to a request. Errors: kInvalidUsage (closed), kSystemError.
  [[nodiscard]] Result<HandlerReply> invite(Rank guest);
  // The token to answer an honest hello with; good once.
  [[nodiscard]] std::optional<Token> admit(const Hello& hello);
  // Was somebody invited who has not come yet?
  [[nodiscard]] bool outstanding() const;

 private:
  struct Expected {
    Token hello, reply;
  };
  mutable std::mutex mutex_;
  std::optional<TcpAddress> at_;       // nullopt: closed; guarded by mutex_
  std::map<Rank, Expected> expected_;  // guarded by mutex_; each good for one connection
};

}  // namespace tutti::tcp
