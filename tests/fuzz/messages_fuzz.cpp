// SPDX-License-Identifier: Apache-2.0
// Any bytes as a packet of a member: every decoder, and a mailbox that takes in what is a piece.
#include "control/mailbox.hpp"
#include "control/messages.hpp"
#include "tests/fuzz/target.hpp"

namespace tutti::fuzz {
namespace {

using namespace control;

constexpr std::int32_t kRanks = 4;

bool of_job(Rank rank) { return rank >= 0 && rank < kRanks; }

void deposit(const FrameHeader& header, const Piece& piece) {
  Mailbox mailbox;
  static_cast<void>(mailbox.enter());
  for (int i = 0; i < 2; ++i) {
    static_cast<void>(mailbox.deposit(1, header.number, header.round, piece));
  }
  static_cast<void>(mailbox.take(1, 0, piece.bytes.size(), Deadline{}));
}

}  // namespace

void run_one(std::span<const std::byte> input) {
  Reader reader(input.first(std::min(input.size(), kMaxPacketBytes)));
  const FrameHeader header = read_header(reader);
  if (!reader.ok()) return;
  Reader as_piece = reader;
  if (const auto piece = decode_piece(as_piece)) {
    require(piece->offset <= piece->total_bytes, "a piece begins in its message");
    require(piece->bytes.size() <= piece->total_bytes - piece->offset, "and ends in it");
    deposit(header, *piece);
  }
  Reader as_error = reader;
  const Error error = decode_error(as_error, kRanks);
  require(error.code != Code::kSuccess, "an error is one");
  require(error.culprit == kNoRank || of_job(error.culprit), "a culprit is of the job");
  require(error.message.size() <= kMaxMessageBytes, "a text has a bound");
  Reader as_met = reader;
  if (const auto contacts = decode_met(as_met, kRanks)) {
    require(contacts->size() <= 32, "contacts have a bound");
    for (const auto& [rank, address] : *contacts) {
      require(of_job(rank) && address.size() <= kMaxAddressBytes, "a contact is of the job");
    }
  }
  Reader as_check_in = reader;
  if (const auto check_in = decode_check_in(as_check_in, 1)) {
    const Member& member = check_in->member;
    require(member.info.rank == 1 && member.info.pid > 0, "a member is who it proved to be");
    require(check_in->root.number >= 0 && check_in->root.number < check_in->root.roots,
            "a root is one of the job's");
    require(decode_member(encode_member(member), 1).has_value(), "a member survives encoding");
  }
}

std::vector<Bytes> seeds() {
  Member member;
  member.info = {.rank = 1, .pid = 77, .uid = 1000, .process_token = 5, .host = "node7"};
  member.address = "unix:@tutti-x";
  member.tcp = "tcp:10.0.0.1:4000";
  const Bytes text(40, std::byte{'x'});
  return {
      encode_piece({.type = FrameType::kPost, .number = 1}, {.total_bytes = 40, .bytes = text}),
      encode_piece({.type = FrameType::kPost, .round = 3, .number = 2},
                   {.offset = 20, .total_bytes = 60, .bytes = text}),
      encode_error({.type = FrameType::kPostFailure, .number = 1},
                   {Code::kRemoteError, "rank 2 died", 2}),
      encode_error({.type = FrameType::kRefused}, {Code::kTimeout, "rank 3 did not come", 3}),
      encode_check_in({.member = member, .left_ns = 5}),
      encode_check_in({.member = member, .left_ns = 5, .root = {.number = 2, .roots = 3}}),
      encode_met({{2, "unix:@a"}, {3, "tcp:[::1]:7"}}),
      start_frame({.type = FrameType::kRequest, .kind = 8, .number = 1}).take(),
      start_frame({.type = FrameType::kBye}).take(),
  };
}

}  // namespace tutti::fuzz
