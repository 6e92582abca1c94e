// The signature of an operation: its hash, which travels with every message, and its words.

#include <fmt/format.h>

#include <array>

#include "runtime/control/board.hpp"

namespace tutti {
namespace {

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

// One word folded in: the finalizer of MurmurHash3 (fmix64), a bijection of the running value.
std::uint64_t fold(std::uint64_t hash, std::uint64_t word) {
  hash ^= word;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 33);
}

}  // namespace

std::string_view name_of(Gathering gathering) {
  constexpr std::array<std::string_view, 4> kNames{"nothing", "split", "shrink",
                                                   "the registration of a window"};
  return kNames[static_cast<std::size_t>(gathering)];
}

// Made for every call, so: no buffer, four words.
std::uint64_t OperationSignature::hash() const {
  const std::uint64_t kinds =
      static_cast<std::uint64_t>(collective) | static_cast<std::uint64_t>(type) << 8 |
      static_cast<std::uint64_t>(op) << 16 | static_cast<std::uint64_t>(in_windows) << 24 |
      static_cast<std::uint64_t>(on_device) << 25 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32;
  const std::uint64_t mixed = fold(fold(fold(fold(1, operation), kinds), count), plan);
  return mixed == 0 ? 1 : mixed;
}

std::string OperationSignature::to_string() const {
  std::string text =
      fmt::format("{} #{} count {} {}", name_of(collective), operation, count, name_of(type));
  if (reduces(collective)) text += fmt::format(" {}", name_of(op));
  if (has_root(collective)) text += fmt::format(" root {}", root);
  if (in_windows) text += " in windows";
  if (on_device) text += " on a device";
  return text + fmt::format(" plan {:016x}", plan);
}

}  // namespace tutti
