// The signature of an operation: its hash, which travels with every message, and its words.

#include <fmt/format.h>

#include "base/host.hpp"
#include "runtime/control/board.hpp"
#include "runtime/control/codec.hpp"

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

}  // namespace

std::uint64_t OperationSignature::hash() const {
  control::Writer fields;
  fields.number(operation).number(static_cast<std::uint8_t>(collective));
  fields.number(static_cast<std::uint8_t>(type)).number(static_cast<std::uint8_t>(op));
  fields.number(root).number(count).number(plan);
  const std::span<const std::byte> bytes = fields.bytes();
  const std::uint64_t mixed =
      hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return mixed == 0 ? 1 : mixed;
}

std::string OperationSignature::to_string() const {
  std::string text =
      fmt::format("{} #{} count {} {}", name_of(collective), operation, count, name_of(type));
  if (reduces(collective)) text += fmt::format(" {}", name_of(op));
  if (has_root(collective)) text += fmt::format(" root {}", root);
  return text + fmt::format(" plan {:016x}", plan);
}

}  // namespace tutti
