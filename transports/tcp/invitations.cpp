// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/invitations.hpp"

#include <sys/random.h>

#include <cerrno>
#include <string>

#include "base/wire.hpp"

namespace tutti::tcp {
namespace {

constexpr std::size_t kMostAddressBytes = 64;  // "tcp:[", 45 of IPv6, "]:65535"

}  // namespace

std::vector<std::byte> encode(const Invitation& invitation) {
  Writer writer;
  writer.raw(invitation.hello);
  writer.raw(invitation.reply);
  writer.text(invitation.at.text(), kMostAddressBytes);
  return writer.take();
}

Result<Invitation> decode_invitation(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Invitation invitation;
  invitation.hello = reader.block<sizeof(Token)>();
  invitation.reply = reader.block<sizeof(Token)>();
  const std::string address = reader.text(kMostAddressBytes);
  TUTTI_TRY(reader.finish());
  const std::optional<TcpAddress> at = parse_tcp(address);
  if (!at) return make_error(Code::kRemoteError, "malformed message: it has no TCP address");
  invitation.at = *at;
  return invitation;
}

void Invitations::open(const TcpAddress& at) {
  const std::lock_guard lock(mutex_);
  at_ = at;
}

void Invitations::close() {
  const std::lock_guard lock(mutex_);
  at_.reset();
  expected_.clear();
}

Result<HandlerReply> Invitations::invite(Rank guest) {
  const std::lock_guard lock(mutex_);
  if (!at_) return make_error(Code::kInvalidUsage, "this rank has closed its connections");
  Invitation invitation{.at = *at_, .hello = {}, .reply = {}};
  if (::getrandom(invitation.hello.data(), sizeof(Token), 0) != sizeof(Token) ||
      ::getrandom(invitation.reply.data(), sizeof(Token), 0) != sizeof(Token))
    return errno_error("tcp: the system provides no random numbers", errno);
  expected_[guest] = {invitation.hello, invitation.reply};
  return HandlerReply{.payload = encode(invitation), .lent_fd = -1, .keep = nullptr};
}

std::optional<Token> Invitations::admit(const Hello& hello) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(hello.from);
  if (found == expected_.end() || !equal(found->second.hello, hello.token)) return std::nullopt;
  const Token reply = found->second.reply;
  expected_.erase(found);
  return reply;
}

bool Invitations::outstanding() const {
  const std::lock_guard lock(mutex_);
  return !expected_.empty();
}

}  // namespace tutti::tcp
