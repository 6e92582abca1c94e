// SPDX-License-Identifier: Apache-2.0
#include "comm/regroup.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "board/faults.hpp"
#include "comm/shrink_decision.hpp"
#include "control/messages.hpp"

namespace tutti {
namespace {

// Holds what a rank tells the others about a split. The key of a new job's first member counts.
struct Wish {
  std::int32_t color = kNoColor, key = 0;
  bool ready = false;  // its part of the new job could be made
  control::SessionKey session;
  ServiceAddress address;
};

std::vector<std::byte> encode(const Wish& wish) {
  Writer writer;
  writer.number(wish.color).number(wish.key).number(static_cast<std::uint8_t>(wish.ready));
  writer.raw(wish.session.session).raw(wish.session.secret);
  writer.padded_text(wish.address.local, control::kMaxAddressBytes);
  writer.padded_text(wish.address.tcp, control::kMaxTcpBytes);
  return writer.take();
}

control::SessionKey read_key(Reader& reader) {
  control::SessionKey key;
  key.session = reader.block<kSessionIdBytes>();
  key.secret = reader.block<control::kSecretBytes>();
  return key;
}

std::optional<Wish> decode_wish(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Wish wish;
  wish.color = reader.number<std::int32_t>();
  wish.key = reader.number<std::int32_t>();
  wish.ready = reader.number<std::uint8_t>() != 0;
  wish.session = read_key(reader);
  wish.address.local = reader.padded_text(control::kMaxAddressBytes);
  wish.address.tcp = reader.padded_text(control::kMaxTcpBytes);
  if (!reader.finished()) return std::nullopt;
  return wish;
}

Error unready(const std::vector<PeerInfo>& peers, Rank rank) {
  return {Code::kRemoteError,
          fmt::format("{} cannot take part in the new communicator; its own error message says why",
                      describe_rank(peers, rank)),
          rank};
}

Result<std::vector<Wish>> decode_wishes(std::span<const std::byte> bytes, std::size_t each,
                                        const std::vector<PeerInfo>& peers) {
  std::vector<Wish> wishes;
  for (const PeerInfo& peer : peers) {
    std::optional<Wish> wish = decode_wish(bytes.subspan(wishes.size() * each, each));
    if (!wish)
      return make_error(
          Code::kRemoteError,
          fmt::format(
              "{} sent a malformed split request; start all ranks with the same version of Tutti",
              describe_rank(peers, peer.rank)),
          peer.rank);
    wishes.push_back(*std::move(wish));
  }
  return wishes;
}

// Those of one color, by (key, rank).
Result<Members> members_of(std::int32_t color, const std::vector<Wish>& wishes,
                           const std::vector<PeerInfo>& peers) {
  const auto wish_of = [&](Rank rank) -> const Wish& {
    return wishes[static_cast<std::size_t>(rank)];
  };
  std::vector<Rank> ranks;
  for (const PeerInfo& peer : peers)
    if (wish_of(peer.rank).color == color) ranks.push_back(peer.rank);
  std::ranges::stable_sort(ranks, {}, [&](Rank rank) { return wish_of(rank).key; });
  Members members{.key = wish_of(ranks.front()).session, .list = {}};
  for (const Rank rank : ranks) {
    if (!wish_of(rank).ready) return tl::unexpected(unready(peers, rank));
    members.list.push_back({rank, wish_of(rank).address});
  }
  return members;
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> split(ControlPlane& control, std::int32_t color,
                                            std::int32_t key, Deadline deadline) {
  Wish wish{.color = color, .key = key, .session = {}, .address = {}};
  Result<std::unique_ptr<ChildJob>> child;
  if (color != kNoColor) child = control.prepare_child();
  // A rank that cannot take part must not keep the others waiting.
  if (child && *child) {
    wish.ready = true;
    wish.session = control::make_session_key();
    wish.address = (*child)->address();
  }
  const std::vector<std::byte> mine = encode(wish);
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> all, control.allgather(mine, deadline));
  if (!child) return tl::unexpected(child.error());
  if (!*child) return nullptr;
  TUTTI_TRY_ASSIGN(const std::vector<Wish> wishes,
                   decode_wishes(all, mine.size(), control.peers()));
  TUTTI_TRY_ASSIGN(const Members members, members_of(color, wishes, control.peers()));
  return (*child)->enter(members.key, members.list);
}

}  // namespace tutti
