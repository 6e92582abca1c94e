// SPDX-License-Identifier: Apache-2.0
// What is spoken on a proved connection: a 16-byte header and a body, one packet each.
//
// To a rank's service: Request (answered by Reply), Post (a piece of an exchange),
// PostFailure (the exchange ended badly at the sender), Bye (before an orderly hang-up; a service
// that ends says it too), Watch and News (watched connections). To the root: CheckIn, then Met or
// Refused comes back; Done, or GiveUp with the reason, ends it. Decoders check every field against
// what is legal here. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/wire.hpp"
#include "control/handshake.hpp"
#include "control/socket.hpp"

namespace tutti::control {

enum class FrameType : std::uint16_t {
  kRequest = 1,
  kReply = 2,
  kPost = 3,
  kPostFailure = 4,
  kBye = 5,
  kWatch = 6,  // from now on this connection carries news, both ways, and its end is a death
  kNews = 7,   // kind: NewsKind; number: the rank it is about
  kCheckIn = 16,
  kMet = 17,
  kRefused = 18,
  kDone = 19,
  kGiveUp = 20,
};

enum class NewsKind : std::uint16_t { kDied = 1, kRevoked = 2 };

struct FrameHeader {
  FrameType type = FrameType::kBye;
  std::uint16_t kind = 0;    // Request: RequestKind. Reply: 0 an answer, 1 an error. News
  std::uint32_t round = 0;   // Post
  std::uint64_t number = 0;  // Request, Reply: of the call. Post: of the exchange. News: the rank
};
inline constexpr std::size_t kFrameHeaderBytes = 16;
inline constexpr std::size_t kMaxPayloadBytes = kMaxPacketBytes - kFrameHeaderBytes;

[[nodiscard]] Writer start_frame(const FrameHeader& header);
[[nodiscard]] FrameHeader read_header(Reader& reader);  // check reader.ok()

// A Post's body: the piece of the round's message that starts at `offset`.
struct Piece {
  std::uint64_t offset = 0;
  std::uint64_t total_bytes = 0;
  std::span<const std::byte> bytes;
};
inline constexpr std::size_t kMaxPieceBytes = kMaxPayloadBytes - 16;
[[nodiscard]] std::vector<std::byte> encode_piece(const FrameHeader& header, const Piece& piece);
[[nodiscard]] std::optional<Piece> decode_piece(Reader& reader);

inline constexpr std::size_t kMaxMessageBytes = 2048;
[[nodiscard]] std::vector<std::byte> encode_error(const FrameHeader& header, const Error& error);
// A culprit outside [0, ranks) becomes kNoRank, an unknown code kRemoteError.
[[nodiscard]] Error decode_error(Reader& reader, std::int32_t ranks);
// An error of `rank` as the others see it: what its machine refused it is to them a rank that
// failed.
[[nodiscard]] Error as_remote(Error error, Rank rank);

// A member of the job: what everybody learns about everybody.
struct Member {
  PeerInfo info;
  std::string address;              // of its service, for ranks of its locality
  std::string tcp;                  // of its service, for others; empty: it has none
  std::uint64_t locality = 0;       // where `address` is good: one machine and network namespace
  std::uint64_t start_ticks = 0;    // of its process since boot; 0: unknown
  std::uint64_t pid_namespace = 0;  // inode; pids mean the same where it is equal
};
inline constexpr std::size_t kMaxHostBytes = 64;
inline constexpr std::size_t kMaxTcpBytes = 56;  // "tcp:[" 39 "]:65535"
inline constexpr std::size_t kMemberBytes = 4 + 4 + 4 + 8 + 8 + 8 + 8 + 8 + 8 +
                                            (2 + kMaxHostBytes) + (2 + kMaxAddressBytes) +
                                            (2 + kMaxTcpBytes);

[[nodiscard]] std::vector<std::byte> encode_member(const Member& member);
// nullopt: malformed, or not of rank `rank`.
[[nodiscard]] std::optional<Member> decode_member(std::span<const std::byte> bytes, Rank rank);
// Returns the address at which `from` reaches the service of `to`; empty: there is none.
[[nodiscard]] const std::string& address_between(const Member& from, const Member& to);
// "rank 3 (pid 812 on node7)"
[[nodiscard]] std::string describe(const PeerInfo& info);

// The root that a rank believes to have come to, of the roots of a job: one for each of its ids.
struct RootOfJob {
  std::int32_t number = 0, roots = 1;
  SessionId job{};  // the same for ranks that have the same ids in the same order
  bool operator==(const RootOfJob&) const = default;
};

struct CheckIn {
  Member member;
  std::int64_t left_ns = 0;  // until the rank's deadline
  RootOfJob root{};
};
[[nodiscard]] std::vector<std::byte> encode_check_in(const CheckIn& check_in);
[[nodiscard]] std::optional<CheckIn> decode_check_in(Reader& reader, Rank rank);

// Met: where the ranks live that this one sends to in the exchange.
using Contacts = std::vector<std::pair<Rank, std::string>>;
[[nodiscard]] std::vector<std::byte> encode_met(const Contacts& contacts);
[[nodiscard]] std::optional<Contacts> decode_met(Reader& reader, std::int32_t ranks);

}  // namespace tutti::control
