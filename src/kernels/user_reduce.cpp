// SPDX-License-Identifier: Apache-2.0
// The kernel of reductions that the program made.
//
// The accumulator is memory of its own: a destination may be a source, and a message's slot is no
// place for a function that reads what it has written.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/reduce_copy.hpp"

namespace tutti {
namespace {

constexpr std::size_t kPieceBytes = 4096;

const std::byte* byte_at(const void* memory, std::size_t offset) {
  return static_cast<const std::byte*>(memory) + offset;
}

}  // namespace

void user_kernel(const ReduceCopyArgs& args) {
  const UserOp& op = *args.user;
  const std::size_t bytes_each = element_bytes(args.user_type);
  const std::size_t bytes = args.elements * bytes_each;
  alignas(kCacheLineBytes) std::array<std::byte, kPieceBytes> sum;
  for (std::size_t offset = 0; offset < bytes; offset += kPieceBytes) {
    const std::size_t piece = std::min(kPieceBytes, bytes - offset);
    std::memcpy(sum.data(), byte_at(args.sources[args.source_count - 1], offset), piece);
    for (std::uint32_t s = args.source_count - 1; s-- > 0;)
      op.reduce(op, byte_at(args.sources[s], offset), sum.data(), piece / bytes_each,
                args.user_type);
    for (std::uint32_t d = 0; d < args.destination_count; ++d)
      std::memcpy(static_cast<std::byte*>(args.destinations[d]) + offset, sum.data(), piece);
  }
}

}  // namespace tutti
