// SPDX-License-Identifier: Apache-2.0
#include "common/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::perf {
namespace {

// Expected elements are made in pieces that stay in the first-level cache.
constexpr std::size_t kPieceBytes = 8192;

// Compares [first, first+count) at `got` with what make(first, count, out) writes; texts count from
// `index`.
template <typename Make>
void compare(const DataSpec& spec, std::uint64_t first, std::uint64_t count, const void* got,
             std::uint64_t index, Findings& findings, Make&& make) {
  alignas(64) std::array<std::byte, kPieceBytes> want;
  const std::size_t element = element_bytes(spec.type);
  const auto* have = static_cast<const std::byte*>(got);
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t piece = std::min<std::uint64_t>(count - done, kPieceBytes / element);
    make(first + done, piece, want.data());
    if (std::memcmp(have + done * element, want.data(), piece * element) != 0) {
      for (std::uint64_t i = 0; i < piece; ++i) {
        const std::byte* a = have + (done + i) * element;
        const std::byte* b = want.data() + i * element;
        if (std::memcmp(a, b, element) == 0) continue;
        findings.add(1, findings.wrong != 0
                            ? std::string()
                            : fmt::format("index {}: got {}, want {}", index + done + i,
                                          element_text(spec.type, a), element_text(spec.type, b)));
      }
    }
    done += piece;
  }
}

}  // namespace

void check_result(const DataSpec& spec, std::uint64_t first, std::uint64_t count, const void* got,
                  Findings& findings) {
  compare(spec, first, count, got, 0, findings,
          [&](std::uint64_t at, std::uint64_t n, void* out) { fill_expected(spec, at, n, out); });
}

void check_result(const DataSpec& spec, std::uint64_t first, const MemoryView& got,
                  Findings& findings) {
  const std::size_t element = element_bytes(spec.type);
  got.read([&](std::span<const std::byte> piece, std::size_t offset) {
    compare(spec, first + offset / element, piece.size() / element, piece.data(), offset / element,
            findings,
            [&](std::uint64_t at, std::uint64_t n, void* out) { fill_expected(spec, at, n, out); });
  });
}

void check_guards(std::string_view name, GuardedBuffer& buffer, Findings& findings) {
  if (const auto damage = buffer.check_guards())
    findings.add(
        1, fmt::format("guard of the {} buffer overwritten at byte {} of {}: got "
                       "0x{:02x}, want 0x{:02x}",
                       name, damage->offset_bytes, buffer.bytes(), damage->got, damage->want));
}

void check_send_unchanged(const DataSpec& spec, int rank, const Fingerprint& fingerprint,
                          std::size_t begin_bytes, std::size_t end_bytes, Findings& findings) {
  const auto block = fingerprint.changed(begin_bytes, end_bytes);
  if (!block) return;
  Findings in_block;
  // A block boundary may cut nothing: element sizes divide the block size. A block is one piece.
  const std::size_t element = element_bytes(spec.type);
  const std::uint64_t first = block->begin_bytes / element;
  fingerprint.memory()
      .part(block->begin_bytes, block->end_bytes)
      .read([&](std::span<const std::byte> sent, std::size_t) {
        compare(spec, first, sent.size() / element, sent.data(), 0, in_block,
                [&](std::uint64_t at, std::uint64_t n, void* out) {
                  fill_input(spec, rank, at, n, out);
                });
      });
  findings.add(1, fmt::format("send buffer changed, in the block from element {}: {}", first,
                              in_block.first));
}

RegionGuard::RegionGuard(const MemoryView& buffer, std::size_t begin_bytes, std::size_t end_bytes)
    : before_(buffer.part(begin_bytes - std::min(begin_bytes, kBytes), begin_bytes)),
      after_(buffer.part(end_bytes, end_bytes + std::min(buffer.bytes() - end_bytes, kBytes))),
      region_bytes_(end_bytes - begin_bytes) {
  poison(before_);
  poison(after_);
}

void RegionGuard::check(Findings& findings) const {
  const auto report = [&](const Damage& damage, std::int64_t offset) {
    findings.add(1,
                 fmt::format("written outside the result, at byte {} of {}: got 0x{:02x}, "
                             "want 0x{:02x}",
                             damage.offset_bytes + offset, region_bytes_, damage.got, damage.want));
  };
  if (const auto damage = find_unpoisoned(before_))
    report(*damage, -static_cast<std::int64_t>(before_.bytes()));
  if (const auto damage = find_unpoisoned(after_))
    report(*damage, static_cast<std::int64_t>(region_bytes_));
}

}  // namespace tutti::perf
