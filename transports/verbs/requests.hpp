// SPDX-License-Identifier: Apache-2.0
// Work requests: remote writes as a chain that is posted at once, and what a completion that failed
// means. Pure; needs the verbs' types alone, no device.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tutti::verbs {

// Bytes of this rank's own memory, and the key that lets the adapter read them.
struct Piece {
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
  std::uint32_t local_key = 0;
};

// One write to a peer's memory, of up to two pieces. With an immediate the peer's completion queue
// tells of it.
struct Write {
  Piece first = {};
  Piece second = {};
  std::uint64_t to = 0;
  std::uint32_t remote_key = 0;
  std::optional<std::uint32_t> immediate = std::nullopt;

  [[nodiscard]] std::uint64_t bytes() const { return first.bytes + second.bytes; }
};
// The write of `bytes` of it from byte `offset` on, to where these belong; the immediate goes with
// the last.
[[nodiscard]] Write part_of(const Write& write, std::uint64_t offset, std::uint64_t bytes);

struct RequestLimits {
  std::uint64_t message_bytes = 1;  // the most of one request
  std::uint32_t inline_bytes = 0;   // up to this, the request holds the bytes itself
  std::uint32_t signal_every = 1;   // one request of so many asks for a completion
};

// How many requests it takes: at least one.
[[nodiscard]] constexpr std::uint64_t requests_for(std::uint64_t bytes,
                                                   std::uint64_t message_bytes) {
  return bytes == 0 ? 1 : (bytes + message_bytes - 1) / message_bytes;
}

// Requests are numbered from 1 on, by wr_id: as they complete in order, one completion speaks for
// all before it.
class Chain {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kPieces = 2;  // of one request

  void limit(const RequestLimits& limits) { limits_ = limits; }

  [[nodiscard]] bool full() const { return length_ == kMost; }
  [[nodiscard]] std::size_t length() const { return length_; }
  [[nodiscard]] std::uint64_t last() const { return last_; }
  [[nodiscard]] std::uint64_t last_signalled() const { return last_signalled_; }
  // The first of the requests, linked; null: none. Valid until clear().
  [[nodiscard]] ibv_send_wr* first() { return length_ == 0 ? nullptr : requests_.data(); }
  void clear() { length_ = 0; }
  // Not where full(). One request of at most limits.message_bytes; `signalled`: whether or not its
  // turn has come.
  void add(const Write& write, bool signalled = false);

 private:
  RequestLimits limits_;
  std::array<ibv_send_wr, kMost> requests_{};
  std::array<std::array<ibv_sge, kPieces>, kMost> pieces_{};
  std::size_t length_ = 0;
  std::uint64_t last_ = 0, last_signalled_ = 0;
};

// What a completion tells of.
enum class Told {
  kRequest,   // one of this rank's own, or a failure
  kMessage,   // of the peer, by an immediate
  kStranger,  // came from there, and is no such message
};
[[nodiscard]] constexpr Told told_by(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS || (completion.opcode & IBV_WC_RECV) == 0)
    return Told::kRequest;  // whatever else a failed one has is undefined
  return completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? Told::kMessage : Told::kStranger;
}

struct RetryPolicy {
  std::uint32_t timeout = 0;  // 4.096 us * 2^timeout
  std::uint32_t retries = 0;
};
// What a completion's status says of the peer or this rank, in words. (InfiniBand Architecture
// Specification, volume 1, chapter 11, lists them; texts say what to do where the user can do it.)
[[nodiscard]] std::string cause_of(ibv_wc_status status, std::uint32_t vendor_error,
                                   const RetryPolicy& policy);

}  // namespace tutti::verbs
