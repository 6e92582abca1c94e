// SPDX-License-Identifier: Apache-2.0
#include "control/channel.hpp"

#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace tutti::control {
namespace {

constexpr std::size_t kTagBytes = crypto_aead_chacha20poly1305_ietf_ABYTES;
static_assert(sizeof(StreamKey) == crypto_aead_chacha20poly1305_ietf_KEYBYTES);
static_assert(Channel::kFrameOverheadBytes == 4 + kTagBytes);
// Memory of a frame longer than this is given back at once: there may be thousands of connections.
constexpr std::size_t kKeptBytes = 1024;

using FrameNonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

// A key serves one direction of one connection, so the number of the frame never repeats under it.
FrameNonce nonce_of(std::uint64_t frame) {
  FrameNonce nonce{};
  for (std::size_t i = 0; i < sizeof(frame); ++i) {
    nonce[nonce.size() - 1 - i] = static_cast<unsigned char>((frame >> (8 * i)) & 0xff);
  }
  return nonce;
}

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

std::uint32_t read_length(std::span<const std::byte> field) {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < field.size(); ++i) {
    length |= static_cast<std::uint32_t>(field[i]) << (8 * i);
  }
  return length;
}

void write_length(std::span<std::byte> field, std::size_t length) {
  for (std::size_t i = 0; i < field.size(); ++i) {
    field[i] = static_cast<std::byte>((length >> (8 * i)) & 0xff);
  }
}

Received without_packet(IoState state) {
  Received received;
  received.state = state;
  return received;
}

// Takes the descriptors out of `message`: keeps one if wanted, closes the others.
IoState take_fds(msghdr& message, bool want_fd, UniqueFd& kept) {
  const bool cut = (message.msg_flags & MSG_CTRUNC) != 0;
  bool legal = true;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t fds = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < fds; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      UniqueFd owner(fd);
      if (!want_fd || kept) {
        legal = false;
      } else {
        kept = std::move(owner);
      }
    }
  }
  if (cut && want_fd && legal && !kept) return IoState::kStarved;
  return legal && !cut ? IoState::kDone : IoState::kViolation;
}

Received receive_packet(int socket, std::span<std::byte> buffer, bool want_fd) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  iovec piece{.iov_base = buffer.data(), .iov_len = buffer.size()};
  // A socket that was closed with unread bytes reports ECONNRESET once, before what is queued.
  for (int resets = 0; resets < 2;) {
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = want_fd ? control.data() : nullptr;
    message.msg_controllen = want_fd ? control.size() : 0;
    const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == ECONNRESET) {
      ++resets;
      continue;
    }
    Received result;
    if (got < 0) {
      result.state = errno == EAGAIN ? IoState::kAgain : IoState::kClosed;
      return result;
    }
    const IoState fds = take_fds(message, want_fd, result.fd);
    result.packet_bytes = static_cast<std::size_t>(got);
    result.state = got == 0                               ? IoState::kClosed
                   : (message.msg_flags & MSG_TRUNC) != 0 ? IoState::kViolation
                                                          : fds;
    return result;
  }
  Received closed;
  closed.state = IoState::kClosed;
  return closed;
}

IoState send_packet(int socket, std::span<const std::byte> packet, int lent_fd) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  iovec piece{.iov_base = const_cast<std::byte*>(packet.data()), .iov_len = packet.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (lent_fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &lent_fd, sizeof(int));
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return IoState::kDone;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) return IoState::kAgain;
    return IoState::kClosed;
  }
}

}  // namespace

void Channel::protect(const StreamKey& sending, const StreamKey& receiving) {
  if (medium_ == Medium::kUnix) return;
  sending_ = Direction{.key = sending};
  receiving_ = Direction{.key = receiving};
}

Received Channel::receive(std::span<std::byte> buffer, bool want_fd) {
  Received received = medium_ == Medium::kUnix ? receive_packet(socket_.get(), buffer, want_fd)
                                               : receive_frame(buffer);
  violated_ = violated_ || received.state == IoState::kViolation;
  return received;
}

IoState Channel::read_into(std::span<std::byte> field, std::size_t& have_bytes) {
  while (have_bytes < field.size()) {
    const std::span<std::byte> rest = field.subspan(have_bytes);
    const ssize_t got = ::recv(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (got > 0) {
      have_bytes += static_cast<std::size_t>(got);
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      return IoState::kClosed;
    } else if (errno == EAGAIN) {
      return IoState::kAgain;
    }
  }
  return IoState::kDone;
}

Received Channel::receive_frame(std::span<std::byte> buffer) {
  const std::size_t tag_bytes = receiving_ ? kTagBytes : 0;
  const std::size_t most_bytes = receiving_ ? kMaxPacketBytes : kMaxHandshakeBytes;
  if (length_have_bytes_ < kLengthBytes) {
    const IoState state = read_into(length_, length_have_bytes_);
    if (state != IoState::kDone) return without_packet(state);
    const std::size_t frame_bytes = read_length(length_);
    const bool legal = frame_bytes > tag_bytes && frame_bytes - tag_bytes <= most_bytes &&
                       frame_bytes - tag_bytes <= buffer.size();
    if (!legal) return without_packet(IoState::kViolation);
    body_.resize(frame_bytes);
    body_have_bytes_ = 0;
  }
  const IoState state = read_into(body_, body_have_bytes_);
  if (state != IoState::kDone) return without_packet(state);
  Received received;
  if (!open_frame(buffer, received.packet_bytes)) return without_packet(IoState::kViolation);
  received.state = IoState::kDone;
  length_have_bytes_ = 0;
  if (body_.size() > kKeptBytes) body_ = {};
  return received;
}

bool Channel::open_frame(std::span<std::byte> buffer, std::size_t& packet_bytes) {
  packet_bytes = body_.size() - (receiving_ ? kTagBytes : 0);
  if (packet_bytes > buffer.size()) return false;
  if (!receiving_) {
    std::ranges::copy(body_, buffer.begin());
    return true;
  }
  const FrameNonce nonce = nonce_of(receiving_->next_frame++);
  return ::crypto_aead_chacha20poly1305_ietf_decrypt(
             raw(buffer.data()), nullptr, nullptr, raw(body_.data()), body_.size(), nullptr, 0,
             nonce.data(), raw(receiving_->key.data())) == 0;
}

IoState Channel::send(std::span<const std::byte> packet, int lent_fd) {
  if (medium_ == Medium::kUnix) return send_packet(socket_.get(), packet, lent_fd);
  if (lent_fd >= 0 || packet.empty() || packet.size() > kMaxPacketBytes) {
    return IoState::kViolation;
  }
  if (const IoState state = flush(); state != IoState::kDone) return state;
  if (unsent()) return IoState::kAgain;
  const std::size_t tag_bytes = sending_ ? kTagBytes : 0;
  outgoing_.resize(kLengthBytes + packet.size() + tag_bytes);
  write_length(std::span(outgoing_).first(kLengthBytes), packet.size() + tag_bytes);
  std::byte* const body = outgoing_.data() + kLengthBytes;
  if (sending_) {
    const FrameNonce nonce = nonce_of(sending_->next_frame++);
    ::crypto_aead_chacha20poly1305_ietf_encrypt(raw(body), nullptr, raw(packet.data()),
                                                packet.size(), nullptr, 0, nullptr, nonce.data(),
                                                raw(sending_->key.data()));
  } else {
    std::ranges::copy(packet, body);
  }
  sent_bytes_ = 0;
  return flush();
}

void Channel::send_last(std::span<const std::byte> packet) noexcept try {
  static_cast<void>(send(packet));
} catch (const std::bad_alloc&) {
  // The other end finds the connection closed.
}

IoState Channel::flush() {
  while (unsent()) {
    const std::span<const std::byte> rest = std::span(outgoing_).subspan(sent_bytes_);
    const ssize_t sent =
        ::send(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      sent_bytes_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
      return IoState::kDone;
    } else if (errno != EINTR) {
      return IoState::kClosed;
    }
  }
  sent_bytes_ = 0;
  if (outgoing_.size() > kKeptBytes) {
    outgoing_ = {};
  } else {
    outgoing_.clear();
  }
  return IoState::kDone;
}

}  // namespace tutti::control
