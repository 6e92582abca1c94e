// SPDX-License-Identifier: Apache-2.0
// Memory that the host reaches in place, or only by copying (a GPU's): where pages come from, and a
// view by which the checks read and write either kind.
//
// A view does not own. One thread at a time per view.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

namespace tutti::perf {

// Provides a buffer's zeroed memory, and the host's access to it. Any thread. The base reads and
// writes in place.
class PageSource {
 public:
  virtual ~PageSource() = default;
  // Page-aligned on the host; null where there is none.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) const = 0;
  virtual void release(void* memory, std::size_t bytes) const = 0;

  // Returns whether the host may read and write the bytes in place.
  [[nodiscard]] virtual bool in_place() const { return true; }
  // These return when the bytes are there. `from` of read and `to` of write are of this source,
  // both of copy.
  virtual void read(std::byte* to, const std::byte* from, std::size_t bytes) const;
  virtual void write(std::byte* to, const std::byte* from, std::size_t bytes) const;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) const;
};
// Anonymous memory of this process.
[[nodiscard]] const PageSource& private_pages();

class MemoryView {
 public:
  // The bytes that are copied at a time if the host cannot access them in place; a multiple of
  // every element and of a fingerprint's block.
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

  MemoryView(std::byte* data, std::size_t bytes, const PageSource& source = private_pages())
      : data_(data), bytes_(bytes), source_(&source) {}
  template <class Range>
  requires std::convertible_to<Range&, std::span<std::byte>> MemoryView(Range& range)
      : MemoryView(std::span<std::byte>(range).data(), std::span<std::byte>(range).size()) {}

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] MemoryView part(std::size_t begin, std::size_t end) const {
    return {data_ + begin, end - begin, *source_};
  }

  // Calls look(piece, offset of the piece) over all bytes, in order; piece is a
  // span<const std::byte>, and does not outlive the call.
  template <class Look>
  void read(Look&& look) const {
    if (source_->in_place()) return look(std::span<const std::byte>(data_, bytes_), std::size_t{0});
    std::vector<std::byte> staged(std::min(bytes_, kPieceBytes));
    for (std::size_t at = 0; at < bytes_; at += kPieceBytes) {
      const std::size_t n = std::min(kPieceBytes, bytes_ - at);
      source_->read(staged.data(), data_ + at, n);
      look(std::span<const std::byte>(staged.data(), n), at);
    }
  }
  // Calls fill(piece, offset of the piece), which writes every byte of a span<std::byte>.
  template <class Fill>
  void write(Fill&& fill) const {
    if (source_->in_place()) return fill(std::span<std::byte>(data_, bytes_), std::size_t{0});
    std::vector<std::byte> staged(std::min(bytes_, kPieceBytes));
    for (std::size_t at = 0; at < bytes_; at += kPieceBytes) {
      const std::size_t n = std::min(kPieceBytes, bytes_ - at);
      fill(std::span<std::byte>(staged.data(), n), at);
      source_->write(data_ + at, staged.data(), n);
    }
  }
  // From a view of the same source and length.
  void copy_from(const MemoryView& other) const { source_->copy(data_, other.data_, bytes_); }

 private:
  std::byte* data_;
  std::size_t bytes_;
  const PageSource* source_;
};

}  // namespace tutti::perf
