// SPDX-License-Identifier: Apache-2.0
#include "control/messages.hpp"

#include <fmt/core.h>

namespace tutti::control {

Writer start_frame(const FrameHeader& header) {
  Writer writer;
  writer.number(static_cast<std::uint16_t>(header.type)).number(header.kind);
  writer.number(header.round).number(header.number);
  return writer;
}

FrameHeader read_header(Reader& reader) {
  FrameHeader header;
  header.type = static_cast<FrameType>(reader.number<std::uint16_t>());
  header.kind = reader.number<std::uint16_t>();
  header.round = reader.number<std::uint32_t>();
  header.number = reader.number<std::uint64_t>();
  return header;
}

std::vector<std::byte> encode_piece(const FrameHeader& header, const Piece& piece) {
  Writer writer = start_frame(header);
  writer.number(piece.offset).number(piece.total_bytes).raw(piece.bytes);
  return writer.take();
}

std::optional<Piece> decode_piece(Reader& reader) {
  Piece piece;
  piece.offset = reader.number<std::uint64_t>();
  piece.total_bytes = reader.number<std::uint64_t>();
  piece.bytes = reader.rest();
  const bool legal = reader.ok() && piece.offset <= piece.total_bytes &&
                     piece.bytes.size() <= piece.total_bytes - piece.offset;
  if (!legal) return std::nullopt;
  return piece;
}

std::vector<std::byte> encode_error(const FrameHeader& header, const Error& error) {
  Writer writer = start_frame(header);
  writer.number(static_cast<std::uint8_t>(error.code)).number(error.culprit);
  writer.text(error.message, kMaxMessageBytes);
  return writer.take();
}

Error decode_error(Reader& reader, std::int32_t ranks) {
  const auto code = reader.number<std::uint8_t>();
  const auto culprit = reader.number<Rank>();
  Error error;
  error.message = reader.text(kMaxMessageBytes);
  error.code = reader.ok() ? failure_code(code) : Code::kRemoteError;
  error.culprit = reader.ok() && culprit >= 0 && culprit < ranks ? culprit : kNoRank;
  return error;
}

Error as_remote(Error error, Rank rank) {
  if (error.code != Code::kSystemError) return error;
  error.code = Code::kRemoteError;
  if (error.culprit == kNoRank) error.culprit = rank;
  return error;
}

std::vector<std::byte> encode_member(const Member& member) {
  Writer writer;
  writer.number(member.info.rank).number(member.info.pid).number(member.info.uid);
  writer.number(member.info.process_token).number(member.info.token_address);
  writer.number(member.info.host_id);
  writer.number(member.start_ticks).number(member.pid_namespace).number(member.locality);
  writer.padded_text(member.info.host, kMaxHostBytes);
  writer.padded_text(member.address, kMaxAddressBytes);
  writer.padded_text(member.tcp, kMaxTcpBytes);
  return writer.take();
}

std::optional<Member> decode_member(std::span<const std::byte> bytes, Rank rank) {
  Reader reader(bytes);
  Member member;
  member.info.rank = reader.number<Rank>();
  member.info.pid = reader.number<std::int32_t>();
  member.info.uid = reader.number<std::uint32_t>();
  member.info.process_token = reader.number<std::uint64_t>();
  member.info.token_address = reader.number<std::uint64_t>();
  member.info.host_id = reader.number<std::uint64_t>();
  member.start_ticks = reader.number<std::uint64_t>();
  member.pid_namespace = reader.number<std::uint64_t>();
  member.locality = reader.number<std::uint64_t>();
  member.info.host = reader.padded_text(kMaxHostBytes);
  member.address = reader.padded_text(kMaxAddressBytes);
  member.tcp = reader.padded_text(kMaxTcpBytes);
  if (!reader.finished() || member.info.rank != rank || member.info.pid <= 0) return std::nullopt;
  return member;
}

const std::string& address_between(const Member& from, const Member& to) {
  return from.locality == to.locality ? to.address : to.tcp;
}

std::string describe(const PeerInfo& info) {
  return fmt::format("rank {} (pid {} on {})", info.rank, info.pid, info.host);
}

std::vector<std::byte> encode_check_in(const CheckIn& check_in) {
  Writer writer = start_frame({.type = FrameType::kCheckIn});
  writer.number(check_in.left_ns).number(check_in.root.number).number(check_in.root.roots);
  writer.raw(check_in.root.job).raw(encode_member(check_in.member));
  return writer.take();
}

std::optional<CheckIn> decode_check_in(Reader& reader, Rank rank) {
  CheckIn check_in;
  check_in.left_ns = reader.number<std::int64_t>();
  check_in.root.number = reader.number<std::int32_t>();
  check_in.root.roots = reader.number<std::int32_t>();
  check_in.root.job = reader.block<kSessionIdBytes>();
  if (check_in.root.number < 0 || check_in.root.number >= check_in.root.roots) return std::nullopt;
  std::optional<Member> member = decode_member(reader.rest(), rank);
  if (!member) return std::nullopt;
  check_in.member = std::move(*member);
  return check_in;
}

std::vector<std::byte> encode_met(const Contacts& contacts) {
  Writer writer = start_frame({.type = FrameType::kMet});
  writer.number(static_cast<std::uint32_t>(contacts.size()));
  for (const auto& [rank, address] : contacts) {
    writer.number(rank).text(address, kMaxAddressBytes);
  }
  return writer.take();
}

std::optional<Contacts> decode_met(Reader& reader, std::int32_t ranks) {
  constexpr std::uint32_t kMostContacts = 32;  // a parent and children in two trees
  const auto count = reader.number<std::uint32_t>();
  if (count > kMostContacts) return std::nullopt;
  Contacts contacts;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto rank = reader.number<Rank>();
    std::string address = reader.text(kMaxAddressBytes);
    if (!reader.ok() || rank < 0 || rank >= ranks) return std::nullopt;
    contacts.emplace_back(rank, std::move(address));
  }
  if (!reader.finished()) return std::nullopt;
  return contacts;
}

}  // namespace tutti::control
