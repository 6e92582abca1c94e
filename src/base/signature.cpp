// SPDX-License-Identifier: Apache-2.0
#include "base/signature.hpp"

#include <fmt/core.h>

#include "base/part_of.hpp"

namespace tutti {
// Made for every call, so: no buffer, four words.
std::uint64_t OperationSignature::hash_of_kind() const {
  const std::uint64_t kinds =
      static_cast<std::uint64_t>(collective) | static_cast<std::uint64_t>(type) << 8 |
      static_cast<std::uint64_t>(op) << 16 | static_cast<std::uint64_t>(in_windows) << 24 |
      static_cast<std::uint64_t>(on_device) << 25 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(root) | sizes) << 32;  // never both
  return fold(fold(fold(1, kinds), count), plan);
}

OperationSignature counterpart(const OperationSignature& signature, Rank self) {
  OperationSignature other = signature;
  other.collective =
      signature.collective == Collective::kSend ? Collective::kRecv : Collective::kSend;
  other.root = self;
  return other;
}

std::string OperationSignature::to_string() const {
  if (is_point_to_point(collective)) {
    const PartOf part = PartOf::of(plan);
    const std::string whole =
        part.whole == Whole::kItself
            ? ""
            : fmt::format(" in {} {}", kWholeNames[static_cast<std::size_t>(part.whole)],
                          part.number);
    return fmt::format("{} of {} {} {} rank {}{}", name_of(collective), count, name_of(type),
                       collective == Collective::kSend ? "to" : "from", root, whole);
  }
  std::string text =
      fmt::format("{} #{} count {} {}", name_of(collective), operation, count, name_of(type));
  if (info_of(collective).reduces()) text += fmt::format(" {}", name_of(op));
  if (info_of(collective).rooted) text += fmt::format(" root {}", root);
  if (sizes != 0) text += fmt::format(" in blocks of sizes {:08x}", sizes);
  if (in_windows) text += " in windows";
  if (on_device) text += " on a device";
  return text + fmt::format(" plan {:016x}", plan);
}

}  // namespace tutti
