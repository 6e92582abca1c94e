// Bytes of control messages: little-endian integers, byte strings and texts with a 32-bit length.
//
//   Writer writer;                         Reader reader(received);
//   writer.u32(kVersion);                  TUTTI_TRY_ASSIGN(std::uint32_t version, reader.u32());
//   writer.text(peer.host);                TUTTI_TRY_ASSIGN(peer.host, reader.text(255));
//                                          TUTTI_TRY(reader.finish());
//
// A Reader never reads beyond its span, whatever a peer sent, and allocates nothing larger than
// what is there and what the caller allows. A failed read consumes nothing. One thread at a time;
// the Reader's span must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti {

class Writer {
 public:
  void u8(std::uint8_t value) { integer(value); }
  void u16(std::uint16_t value) { integer(value); }
  void u32(std::uint32_t value) { integer(value); }
  void u64(std::uint64_t value) { integer(value); }
  // Signed values travel as two's complement.
  void i32(std::int32_t value) { integer(static_cast<std::uint32_t>(value)); }
  void i64(std::int64_t value) { integer(static_cast<std::uint64_t>(value)); }
  // The bytes alone: the reader knows how many.
  void raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // u32 length, then the bytes; at most 2^32 - 1.
  void bytes(std::span<const std::byte> value) {
    u32(static_cast<std::uint32_t>(value.size()));
    raw(value);
  }
  void text(std::string_view value) { bytes(std::as_bytes(std::span(value))); }

  [[nodiscard]] std::span<const std::byte> view() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <typename T>
  void integer(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }

  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Errors of all reads: kRemoteError, "message too short: ...", for the bytes are a peer's.
  [[nodiscard]] Result<std::uint8_t> u8() { return integer<std::uint8_t>(); }
  [[nodiscard]] Result<std::uint16_t> u16() { return integer<std::uint16_t>(); }
  [[nodiscard]] Result<std::uint32_t> u32() { return integer<std::uint32_t>(); }
  [[nodiscard]] Result<std::uint64_t> u64() { return integer<std::uint64_t>(); }
  [[nodiscard]] Result<std::int32_t> i32() {
    return u32().map([](std::uint32_t value) { return static_cast<std::int32_t>(value); });
  }
  [[nodiscard]] Result<std::int64_t> i64() {
    return u64().map([](std::uint64_t value) { return static_cast<std::int64_t>(value); });
  }
  // A view of exactly `count` bytes, valid as long as the Reader's span.
  [[nodiscard]] Result<std::span<const std::byte>> raw(std::size_t count) {
    if (count > bytes_.size()) return too_short(count);
    const std::span<const std::byte> value = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return value;
  }
  // Fills `into` completely.
  [[nodiscard]] Status raw_into(std::span<std::byte> into) {
    TUTTI_TRY_ASSIGN(const std::span<const std::byte> value, raw(into.size()));
    if (!value.empty()) std::memcpy(into.data(), value.data(), value.size());
    return {};
  }
  // What Writer::bytes and Writer::text wrote, if it is no longer than `most_bytes`.
  [[nodiscard]] Result<std::span<const std::byte>> bytes(std::size_t most_bytes) {
    const std::span<const std::byte> before = bytes_;
    TUTTI_TRY_ASSIGN(const std::uint32_t count, u32());
    if (count > most_bytes) {
      bytes_ = before;
      return make_error(Code::kRemoteError, "malformed message: a field of " +
                                                std::to_string(count) + " bytes, at most " +
                                                std::to_string(most_bytes) + " are allowed");
    }
    Result<std::span<const std::byte>> value = raw(count);
    if (!value) bytes_ = before;
    return value;
  }
  [[nodiscard]] Result<std::string> text(std::size_t most_bytes) {
    TUTTI_TRY_ASSIGN(const std::span<const std::byte> value, bytes(most_bytes));
    return std::string(reinterpret_cast<const char*>(value.data()), value.size());
  }

  [[nodiscard]] std::size_t left() const { return bytes_.size(); }
  // Error kRemoteError if bytes are left over: both ends must agree on the whole message.
  [[nodiscard]] Status finish() const {
    if (bytes_.empty()) return {};
    return make_error(Code::kRemoteError, "malformed message: " + std::to_string(bytes_.size()) +
                                              " bytes more than expected");
  }

 private:
  template <typename T>
  Result<T> integer() {
    if (sizeof(T) > bytes_.size()) return too_short(sizeof(T));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value |= std::to_integer<std::uint64_t>(bytes_[i]) << (8 * i);
    bytes_ = bytes_.subspan(sizeof(T));
    return static_cast<T>(value);
  }
  [[nodiscard]] tl::unexpected<Error> too_short(std::size_t wanted) const {
    return make_error(Code::kRemoteError, "message too short: " + std::to_string(bytes_.size()) +
                                              " bytes left of the " + std::to_string(wanted) +
                                              " that must follow");
  }

  std::span<const std::byte> bytes_;
};

}  // namespace tutti
