// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/stream.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/tcp_socket.hpp"

namespace tutti::tcp {
namespace {

constexpr std::size_t kMostPieces = 128;  // of one system call; UIO_MAXIOV is 1024
constexpr int kMostReads = 32;            // before others have their turn

std::string text_of(int error_number) { return std::generic_category().message(error_number); }

}  // namespace

void Stream::fail(std::string cause) {
  if (down()) return;
  cause_ = std::move(cause);
  socket_.reset();
  stop_sending();
}

// Whose process has ended resets or closes the connection, as long as anything reaches its host.
void Stream::fail_by(int error_number) {
  silenced_ = error_number == ETIMEDOUT || error_number == EHOSTUNREACH ||
              error_number == ENETUNREACH || error_number == EHOSTDOWN;
  fail(text_of(error_number));
}

void Stream::give_up_if_silent() {
  if (!down() && is_unanswered(fd())) fail_by(ETIMEDOUT);
}

void Stream::stop_sending() {
  sending_over_ = true;
  opening_.clear();
  queue_.clear();
  head_ = head_sent_bytes_ = 0;
}

void Stream::queue(const Frame& frame, std::span<std::byte> head, const std::byte* lent) {
  if (!sending_over_) queue_.push_back({frame, head, lent});
}

void Stream::take_back() {
  for (std::size_t i = head_; i < queue_.size(); ++i) {
    Entry& entry = queue_[i];
    if (entry.lent == nullptr) continue;
    std::memcpy(entry.head.data() + entry.head.size(), entry.lent,
                entry.frame.bytes - entry.head.size());
    entry.head = {entry.head.data(), entry.frame.bytes};
    entry.lent = nullptr;
  }
}

// Of all that the entry sends, what follows the first `skip` bytes.
void Stream::add_pieces(Entry& entry, std::size_t skip) {
  const auto add = [&](const std::byte* from, std::size_t bytes) {
    const std::size_t over = std::min(skip, bytes);
    skip -= over;
    if (over < bytes) pieces_.push_back({const_cast<std::byte*>(from) + over, bytes - over});
  };
  add(reinterpret_cast<const std::byte*>(&entry.frame), sizeof entry.frame);
  add(entry.head.data(), entry.head.size());
  if (entry.lent != nullptr) add(entry.lent, entry.frame.bytes - entry.head.size());
}

void Stream::flush() {
  while (pending()) {
    pieces_.clear();
    if (!opening_.empty()) pieces_.push_back({opening_.data(), opening_.size()});
    std::size_t skip = head_sent_bytes_;
    for (std::size_t i = head_; i < queue_.size() && pieces_.size() + 3 <= kMostPieces; ++i)
      add_pieces(queue_[i], std::exchange(skip, 0));
    msghdr message{};
    message.msg_iov = pieces_.data();
    message.msg_iovlen = pieces_.size();
    const ssize_t taken = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) {
      // What the peer said before is read all the same. The kernel tells of a reset once only.
      reset_ = reset_ || errno == ECONNRESET;
      if (errno == EPIPE || errno == ECONNRESET)
        stop_sending();
      else if (errno != EAGAIN)
        fail_by(errno);
      return;
    }
    sent(static_cast<std::size_t>(taken));
  }
}

void Stream::sent(std::size_t bytes) {
  const std::size_t of_opening = std::min(bytes, opening_.size());
  opening_.erase(opening_.begin(), opening_.begin() + static_cast<std::ptrdiff_t>(of_opening));
  head_sent_bytes_ += bytes - of_opening;
  while (head_ < queue_.size()) {
    const Frame& frame = queue_[head_].frame;
    const std::size_t whole = sizeof frame + frame.bytes;
    if (head_sent_bytes_ < whole) return;
    head_sent_bytes_ -= whole;
    if (frame.kind == FrameKind::kSlot) left_[frame.index] = frame.number;
    ++head_;
  }
  queue_.clear();
  head_ = 0;
}

std::uint64_t Stream::unacknowledged_bytes() const {
  if (down()) return 0;
  std::uint64_t bytes = opening_.size();
  for (std::size_t i = head_; i < queue_.size(); ++i)
    bytes += sizeof(Frame) + queue_[i].frame.bytes;
  bytes -= head_sent_bytes_;
  int in_kernel = 0;
  if (::ioctl(fd(), SIOCOUTQ, &in_kernel) == 0) bytes += static_cast<std::uint64_t>(in_kernel);
  return bytes;
}

std::size_t Stream::read() {
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
  iovec pieces[2];
  std::size_t count = 0;
  if (landing_left_bytes_ > 0) pieces[count++] = {landing_, landing_left_bytes_};
  pieces[count++] = {buffer_.get() + have_bytes_, kBufferBytes - have_bytes_};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  ssize_t got = 0;
  do {
    got = ::recvmsg(fd(), &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    if (errno != EAGAIN) fail_by(errno);
    return 0;
  }
  if (got == 0) fail(reset_ ? text_of(ECONNRESET) : "it has closed the connection");
  const std::size_t bytes = static_cast<std::size_t>(got);
  const std::size_t landed = std::min(bytes, landing_left_bytes_);
  landing_ += landed;
  landing_left_bytes_ -= landed;
  have_bytes_ += bytes - landed;
  return bytes;
}

bool Stream::receive(Sink& sink) {
  if (waits()) parse(sink);
  bool came = false;
  for (int reads = 0; reads < kMostReads && !down() && !waits_; ++reads) {
    const bool landing = landing_left_bytes_ > 0;
    const std::size_t room = landing_left_bytes_ + kBufferBytes - have_bytes_;
    const std::size_t got = read();
    if (got == 0) break;
    came = true;
    if (landing && landing_left_bytes_ == 0 && !sink.landed(landing_frame_)) fail_dishonest();
    if (landing_left_bytes_ == 0) parse(sink);
    if (got < room) break;
  }
  return came;
}

void Stream::land_at(std::byte* begin) {
  const std::size_t come = landing_frame_.bytes - kSlotHeaderBytes - landing_left_bytes_;
  std::memcpy(begin, landing_ - come, come);
  landing_ = begin + come;
}

void Stream::parse(Sink& sink) {
  std::size_t at = 0;
  while (!down() && landing_left_bytes_ == 0 && parse_one(sink, at)) {
  }
  if (down()) return;
  have_bytes_ -= at;
  std::memmove(buffer_.get(), buffer_.get() + at, have_bytes_);
}

// The next thing in the buffer at `at`; false: not all of it is there.
bool Stream::parse_one(Sink& sink, std::size_t& at) {
  const std::byte* const here = buffer_.get() + at;
  const std::size_t have = have_bytes_ - at;
  if (opening_bytes_ > 0) {
    if (have < opening_bytes_) return false;
    if (std::string cause = sink.opening({here, opening_bytes_}); !cause.empty())
      fail(std::move(cause));
    at += std::exchange(opening_bytes_, 0);
    return true;
  }
  Frame frame;
  if (have < sizeof frame) return false;
  std::memcpy(&frame, here, sizeof frame);
  const std::byte* const bytes = here + sizeof frame;
  if (frame.kind == FrameKind::kSlot) return parse_slot(sink, frame, at);
  if (frame.bytes > kMostCellBytes) {
    fail_dishonest();
    return false;
  }
  if (have - sizeof frame < frame.bytes) return false;
  said_bye_ = said_bye_ || frame.kind == FrameKind::kBye;
  if (!sink.take(frame, bytes)) fail_dishonest();
  at += sizeof frame + frame.bytes;
  return true;
}

// The same of a kSlot frame, up to the bytes that have not come yet.
bool Stream::parse_slot(Sink& sink, const Frame& frame, std::size_t& at) {
  constexpr std::size_t kHeaders = sizeof frame + kSlotHeaderBytes;
  const std::byte* const here = buffer_.get() + at;
  const std::size_t have = have_bytes_ - at;
  if (frame.bytes >= kSlotHeaderBytes && have < kHeaders) return false;
  const auto to = sink.landing(frame, here + sizeof frame, !std::exchange(waits_, false));
  if (!to) {
    waits_ = true;
    return false;
  }
  if (*to == nullptr) {
    fail_dishonest();
    return false;
  }
  const std::size_t payload = frame.bytes - kSlotHeaderBytes;
  const std::size_t now = std::min(payload, have - kHeaders);
  std::memcpy(*to, here + kHeaders, now);
  at += kHeaders + now;
  landing_ = *to + now;
  landing_left_bytes_ = payload - now;
  landing_frame_ = frame;
  if (landing_left_bytes_ == 0 && !sink.landed(frame)) fail_dishonest();
  return true;
}

void Stream::fail_dishonest() { fail("it sent data that no rank of this job sends"); }

}  // namespace tutti::tcp
