// SPDX-License-Identifier: Apache-2.0
// What travels on a TCP connection between two ranks of one job.
//
//   who connects:  Hello, then frames      who accepts:  HelloReply, then frames
//
// Both tokens are random, made by the acceptor for this one connection, and have come to who
// connects over the control plane, which is authenticated and encrypted: so neither end takes a
// frame from anybody but the other, and neither token is of use to whoever reads the wire. Who
// connects sends before it has the reply (the peer may be long in answering): where a process that
// is no rank has taken a dead peer's port, what was sent until the reply shows it is known there.
// Frames are neither encrypted nor authenticated, as with the field's other libraries: see
// docs/design.md.
//
// A frame writes a part of the destination's inbox and then makes a word of it known. Words are
// absolute, so a connection that is made anew has nothing to negotiate. Numbers are little-endian,
// as on every machine that CUDA or this library runs on. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "transports/inbox.hpp"

namespace tutti::tcp {

inline constexpr std::uint64_t kMagic = 0x3150'4354'4954'5554;  // "TUTITCP1" in memory
inline constexpr std::uint32_t kVersion = 4;

using Token = std::array<std::byte, 16>;

struct Hello {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  Rank from = kNoRank;
  Rank to = kNoRank;
  std::uint32_t zero = 0;
  Token token{};
};
static_assert(sizeof(Hello) == 40);

// Every version's hello and reply begin with magic and version, so that each side can name both.
// To a hello of another version the reply holds no token, and the connection ends.
struct HelloReply {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t zero = 0;
  Token token{};
};
static_assert(sizeof(HelloReply) == 32);
inline constexpr std::size_t kVersionBytes = 12;  // magic and version

// What a hello is of which `have_bytes` have come. A whole one has to show its token yet.
enum class Greeting : std::uint8_t { kUnfinished, kForeign, kOtherVersion, kMisdirected, kWhole };
[[nodiscard]] Greeting judge(const Hello& hello, std::size_t have_bytes, Rank self);

// "speaks version 3 of the wire, this library 2: use the same library in all processes".
[[nodiscard]] std::string describe_version(std::uint32_t theirs);

enum class FrameKind : std::uint8_t {
  kSlot = 1,    // a slot of the arena; `number`: messages visible with it
  kCells = 2,   // flagged cells of the pair; the first one's epoch makes the message visible
  kCredit = 3,  // `number`: messages of the other direction whose slots are free again
  kDone = 4,    // `number`: the last operation of which everything has been consumed
  kBye = 5,     // the sender leaves in order; `number`: on how many connections it says so
};

struct Frame {
  FrameKind kind = FrameKind::kSlot;
  std::uint8_t index = 0;  // of the connection, among the pair's
  std::uint16_t zero = 0;
  std::uint32_t bytes = 0;   // that follow: of the slot or the cells, headers included
  std::uint64_t offset = 0;  // where they belong: in the arena, or in the pair's cells
  std::uint64_t number = 0;
};
static_assert(sizeof(Frame) == 24);

inline constexpr std::uint32_t kMostCellBytes = kCellsPerPair * kCellBytes;

// Does it stay within an inbox of that layout? It may come from anywhere.
[[nodiscard]] bool is_legal(const Frame& frame, const InboxLayout& layout);

// In constant time.
[[nodiscard]] bool equal(const Token& a, const Token& b);

}  // namespace tutti::tcp
