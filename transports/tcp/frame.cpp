// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/frame.hpp"

#include <fmt/core.h>

namespace tutti::tcp {

bool is_legal(const Frame& frame, const InboxLayout& layout) {
  if (frame.index >= kMaxConnectionsPerPair || frame.zero != 0) return false;
  switch (frame.kind) {
    case FrameKind::kSlot:
      return frame.bytes >= kSlotHeaderBytes && frame.offset % kSlotHeaderBytes == 0 &&
             frame.offset <= layout.arena_bytes &&
             frame.bytes <= layout.arena_bytes - frame.offset && frame.number > 0;
    case FrameKind::kCells:
      return frame.bytes >= kCellHeaderBytes && frame.offset % kCellBytes == 0 &&
             frame.offset <= kMostCellBytes && frame.bytes <= kMostCellBytes - frame.offset;
    case FrameKind::kCredit:
    case FrameKind::kDone:
      return frame.bytes == 0 && frame.offset == 0;
    case FrameKind::kBye:
      return frame.bytes == 0 && frame.offset == 0 && (frame.number == 1 || frame.number == 2);
  }
  return false;
}

Greeting judge(const Hello& hello, std::size_t have_bytes, Rank self) {
  if (have_bytes < kVersionBytes) return Greeting::kUnfinished;
  if (hello.magic != kMagic) return Greeting::kForeign;
  if (hello.version != kVersion) return Greeting::kOtherVersion;
  if (have_bytes < sizeof hello) return Greeting::kUnfinished;
  return hello.to == self && hello.zero == 0 ? Greeting::kWhole : Greeting::kMisdirected;
}

std::string describe_version(std::uint32_t theirs) {
  return fmt::format(
      "it speaks version {} of the protocol, this library {}: use the same library in all "
      "processes",
      theirs, kVersion);
}

bool equal(const Token& a, const Token& b) {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace tutti::tcp
