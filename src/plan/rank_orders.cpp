// SPDX-License-Identifier: Apache-2.0
#include "plan/rank_orders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/host.hpp"
#include "base/wire.hpp"

namespace tutti {
namespace {

// The peers of a place's program.
std::size_t count_peers(const Algorithm& algorithm, std::int32_t ranks, Rank place) {
  std::set<Rank> peers;
  for (const Lane& lane :
       algorithm.program({.collective = Collective::kAllReduce, .ranks = ranks}, place).lanes)
    for (const Step& step : lane.steps)
      for (const auto* operands : {&step.destinations, &step.sources})
        for (const Operand& operand : *operands)
          if (operand.kind != OperandKind::kLocal) peers.insert(operand.peer);
  return peers.size();
}

void write_order(Writer& writer, const RankOrder& order, std::int32_t ranks) {
  for (Rank place = 0; place < ranks; ++place) writer.number(order.rank_at(place));
}

Result<RankOrder> read_order(Reader& reader, std::int32_t ranks) {
  std::vector<Rank> rank_at;
  for (Rank place = 0; place < ranks; ++place) rank_at.push_back(reader.number<Rank>());
  return RankOrder::make(std::move(rank_at));
}

std::string order_text(const RankOrder& order) {
  constexpr std::size_t kShown = 32;
  if (order.is_by_number()) return "by number";
  const std::size_t shown = std::min(order.ranks().size(), kShown);
  const auto first = order.ranks().begin();
  return fmt::format("{}{}", fmt::join(first, first + static_cast<std::ptrdiff_t>(shown), " "),
                     shown < order.ranks().size() ? " ..." : "");
}

}  // namespace

RankOrders::RankOrders(std::vector<RankOrder> rings, RankOrder tree)
    : rings_(std::move(rings)), tree_{std::move(tree)} {
  rings_.resize(std::clamp<std::size_t>(rings_.size(), 1, kMostRings));
}

bool RankOrders::are_by_number() const {
  return std::ranges::all_of(rings_, &RankOrder::is_by_number) && tree_.front().is_by_number();
}

const std::vector<RankOrder>& RankOrders::of(const Algorithm& algorithm, std::int32_t ranks) const {
  static const std::vector<RankOrder> by_number;
  const std::vector<RankOrder>& orders = algorithm.order == OrderKind::kTree ? tree_ : rings_;
  if (std::ranges::all_of(orders, &RankOrder::is_by_number) || ranks < 3) return by_number;
  if (is_direct(algorithm)) return by_number;  // nothing of theirs travels
  const auto others = static_cast<std::size_t>(ranks) - 1;
  const bool all_to_all = count_peers(algorithm, ranks, 0) == others &&
                          count_peers(algorithm, ranks, ranks - 1) == others;
  return all_to_all ? by_number : orders;
}

std::string RankOrders::text() const {
  const std::string more =
      rings_.size() == 1 ? ""
                         : fmt::format(" (the first of {} rings, one per rail)", rings_.size());
  return fmt::format("{} in rings{}, {} in trees", order_text(rings_.front()), more,
                     order_text(tree_.front()));
}

std::size_t RankOrders::encoded_bytes(std::int32_t ranks) {
  return sizeof(std::uint32_t) + (kMostRings + 1) * sizeof(Rank) * static_cast<std::size_t>(ranks);
}

// All rings that there can be, so that the length says nothing.
std::vector<std::byte> RankOrders::encode(std::int32_t ranks) const {
  Writer writer;
  writer.number(static_cast<std::uint32_t>(rings_.size()));
  write_order(writer, tree_.front(), ranks);
  for (std::size_t i = 0; i < kMostRings; ++i)
    write_order(writer, i < rings_.size() ? rings_[i] : RankOrder(), ranks);
  return writer.take();
}

std::uint64_t RankOrders::hash(std::int32_t ranks) const {
  if (are_by_number()) return 0;
  const std::vector<std::byte> bytes = encode(ranks);
  return hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<RankOrders> RankOrders::decode(std::span<const std::byte> bytes, std::int32_t ranks,
                                      std::uint64_t hash) {
  const auto read = [&]() -> Result<RankOrders> {
    Reader reader(bytes);
    const auto count = reader.number<std::uint32_t>();
    TUTTI_TRY_ASSIGN(RankOrder tree, read_order(reader, ranks));
    std::vector<RankOrder> rings;
    for (std::size_t i = 0; i < kMostRings; ++i) {
      TUTTI_TRY_ASSIGN(RankOrder ring, read_order(reader, ranks));
      if (i < count) rings.push_back(std::move(ring));
    }
    TUTTI_TRY(reader.finish());
    return RankOrders(std::move(rings), std::move(tree));
  };
  Result<RankOrders> orders = read();
  if (!orders || orders->hash(ranks) != hash)
    return make_error(Code::kInvalidUsage,
                      "rank 0 sent a rank order that this build cannot read; start all ranks with "
                      "the same version of Tutti",
                      0);
  return orders;
}

}  // namespace tutti
