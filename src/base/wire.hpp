// SPDX-License-Identifier: Apache-2.0
// Fixed-width little-endian fields, written to and read from the bytes of untrusted peers.
//
//   Writer writer;                              Reader reader(received);
//   writer.number(kVersion);                    const auto version =
//   reader.number<std::uint16_t>(); writer.text(peer.host, kMostHostBytes);     peer.host =
//   reader.text(kMostHostBytes);
//                                               TUTTI_TRY(reader.finish());
//
// A Reader never reads past its end: after the first short read every value is 0 or empty and ok()
// is false, so a parser reads all its fields and asks once. Pure; any thread. The span of a Reader
// must outlive it.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/text.hpp"

namespace tutti {

class Writer {
 public:
  template <std::integral T>
  Writer& number(T value) {
    const auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>((bits >> (8 * i)) & 0xff));
    }
    return *this;
  }
  Writer& raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  // Length in one byte pair, then the text, cut at `most_bytes`.
  Writer& text(std::string_view text, std::size_t most_bytes) {
    text = text.substr(0, std::min<std::size_t>(most_bytes, UINT16_MAX));
    number(static_cast<std::uint16_t>(text.size()));
    return raw(std::as_bytes(std::span(text)));
  }
  // The same in a field of always `field_bytes` + 2 bytes.
  Writer& padded_text(std::string_view value, std::size_t field_bytes) {
    value = value.substr(0, field_bytes);
    text(value, field_bytes);
    bytes_.resize(bytes_.size() + field_bytes - value.size());
    return *this;
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <std::integral T>
  [[nodiscard]] T number() {
    std::uint64_t bits = 0;
    const std::span<const std::byte> field = raw(sizeof(T));
    for (std::size_t i = 0; i < field.size(); ++i) {
      bits |= static_cast<std::uint64_t>(field[i]) << (8 * i);
    }
    return static_cast<T>(bits);
  }
  [[nodiscard]] std::span<const std::byte> raw(std::size_t count_bytes) {
    if (!ok_ || count_bytes > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::span<const std::byte> field = bytes_.first(count_bytes);
    bytes_ = bytes_.subspan(count_bytes);
    return field;
  }
  template <std::size_t N>
  [[nodiscard]] std::array<std::byte, N> block() {
    std::array<std::byte, N> result{};
    const std::span<const std::byte> field = raw(N);
    std::copy(field.begin(), field.end(), result.begin());
    return result;
  }
  // printable(), so that a peer's text can stand in an error message.
  [[nodiscard]] std::string text(std::size_t most_bytes) {
    const auto text_bytes = number<std::uint16_t>();
    if (text_bytes > most_bytes) ok_ = false;
    const std::span<const std::byte> field = raw(ok_ ? text_bytes : 0);
    return printable({reinterpret_cast<const char*>(field.data()), field.size()}, field.size());
  }
  [[nodiscard]] std::string padded_text(std::size_t field_bytes) {
    std::string result = text(field_bytes);
    if (ok_) static_cast<void>(raw(field_bytes - result.size()));
    return result;
  }
  // Returns all remaining bytes.
  [[nodiscard]] std::span<const std::byte> rest() { return raw(bytes_.size()); }
  [[nodiscard]] bool ok() const { return ok_; }
  // All fields were there and nothing is left.
  [[nodiscard]] bool finished() const { return ok_ && bytes_.empty(); }
  // kRemoteError unless finished().
  [[nodiscard]] Status finish() const {
    if (finished()) return {};
    return make_error(
        Code::kRemoteError,
        ok_ ? "malformed message: " + std::to_string(bytes_.size()) + " bytes more than expected"
            : "malformed message: it ends too soon, or a field is too long");
  }
  // Bytes that have not been read.
  [[nodiscard]] std::size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace tutti
