// SPDX-License-Identifier: Apache-2.0
// Counts above 2^32. A buffer is three pieces of memory that the address space repeats in turn, so
// that 4 GiB take 48 MiB; its last page is its own. Each piece has a value of its own, and 2^32
// bytes are no whole number of turns, so bytes that come to the wrong place show.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/fd.hpp"
#include "job.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
constexpr std::size_t kPieces = 257;  // 2^32 bytes and one piece more
constexpr std::size_t kTurn = 3;      // pieces that differ
// A call that takes the count modulo 2^32 moves a piece and 5 elements.
constexpr std::size_t kCount = kPieces * kPieceBytes + 5;

class RepeatedMemory {
 public:
  RepeatedMemory() {
    bytes_ = kPieces * kPieceBytes + kPageBytes;
    void* const all = ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED) << std::strerror(errno);
    data_ = static_cast<std::uint8_t*>(all);
    for (std::size_t first = 0; first < kTurn; ++first) {
      const UniqueFd piece(::memfd_create("repeated", MFD_CLOEXEC));
      EXPECT_EQ(::ftruncate(piece.get(), kPieceBytes), 0) << std::strerror(errno);
      for (std::size_t i = first; i < kPieces; i += kTurn)
        EXPECT_NE(::mmap(data_ + i * kPieceBytes, kPieceBytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_FIXED, piece.get(), 0),
                  MAP_FAILED)
            << std::strerror(errno);
    }
    EXPECT_NE(::mmap(data_ + kPieces * kPieceBytes, kPageBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED)
        << std::strerror(errno);
  }
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;
  ~RepeatedMemory() { ::munmap(data_, bytes_); }

  // Every element: `value`, one more in the second piece of a turn, two more in the third.
  void fill(std::uint8_t value) {
    for (std::size_t i = 0; i < kTurn; ++i)
      std::memset(data_ + i * kPieceBytes, value + static_cast<int>(i), kPieceBytes);
    std::memset(data_ + kPieces * kPieceBytes, value, kPageBytes);
  }
  void fill_evenly(std::uint8_t value) {
    std::memset(data_, value, kTurn * kPieceBytes);
    std::memset(data_ + kPieces * kPieceBytes, value, kPageBytes);
  }
  [[nodiscard]] std::uint8_t* data() const { return data_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Of elements [begin, end) the first that is not `value`; end: none.
std::size_t first_other(const std::uint8_t* data, std::size_t begin, std::size_t end,
                        std::uint8_t value) {
  while (begin < end && data[begin] == value) ++begin;
  return begin;
}

constexpr std::size_t kTail = kPieces * kPieceBytes;
constexpr std::uint8_t kUntouched = 0xee;

// Did the call write all of it, and nothing behind? Piece i of a turn has `value` + i * `step`.
void expect_filled(const RepeatedMemory& memory, std::uint8_t value, std::uint8_t step = 1) {
  for (std::size_t i = 0; i < kTurn; ++i)
    EXPECT_EQ(first_other(memory.data(), i * kPieceBytes, (i + 1) * kPieceBytes,
                          static_cast<std::uint8_t>(value + i * step)),
              (i + 1) * kPieceBytes);
  EXPECT_EQ(first_other(memory.data(), kTail, kCount, value), kCount);
  EXPECT_EQ(first_other(memory.data(), kCount, kTail + kPageBytes, kUntouched), kTail + kPageBytes);
}

TEST(CountsAbove32Bits, AreReducedToTheLastElement) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    RepeatedMemory in, out;
    in.fill(static_cast<std::uint8_t>(3 + rank));
    out.fill_evenly(kUntouched);
    ASSERT_EQ(tuttiAllReduce(in.data(), out.data(), kCount, tuttiUint8, tuttiSum, comm, nullptr),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    expect_filled(out, 7, 2);
  });
}

TEST(CountsAbove32Bits, AreBroadcastToTheLastElement) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    RepeatedMemory in, out;
    in.fill(static_cast<std::uint8_t>(3 + rank));
    out.fill_evenly(kUntouched);
    ASSERT_EQ(tuttiBroadcast(in.data(), out.data(), kCount, tuttiUint8, 1, comm, nullptr),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    expect_filled(out, 4);
  });
}

TEST(CountsAbove32Bits, AreSentToTheLastElement) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    RepeatedMemory memory;
    rank == 0 ? memory.fill(5) : memory.fill_evenly(kUntouched);
    const tuttiResult_t result =
        rank == 0 ? tuttiSend(memory.data(), kCount, tuttiUint8, 1, comm, nullptr)
                  : tuttiRecv(memory.data(), kCount, tuttiUint8, 0, comm, nullptr);
    ASSERT_EQ(result, tuttiSuccess) << tuttiGetLastError(comm);
    if (rank == 1) expect_filled(memory, 5);
  });
}

// A block of 2^31 and some elements for each rank: places above 2^32 lie in the second block. Its
// input repeats as the output does, so that each element has the value of its place.
TEST(CountsAbove32Bits, BlocksLieBehindThem) {
  constexpr std::size_t kBlock = 2 * 43 * kTurn * kPieceBytes / 2;  // whole turns
  static_assert(kBlock > std::size_t{1} << 31 && 2 * kBlock > kTail);
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    RepeatedMemory in, out;
    in.fill(9);
    out.fill_evenly(kUntouched);
    // The output has room for less than two blocks: rank 1's is shorter by the rest.
    const std::size_t counts[] = {kBlock, kCount - kBlock}, places[] = {0, kBlock};
    ASSERT_EQ(tuttiAllGatherv(in.data(), counts[rank], out.data(), counts, places, tuttiUint8, comm,
                              nullptr),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    for (std::size_t i = 0; i < kTurn; ++i)
      EXPECT_EQ(first_other(out.data(), i * kPieceBytes, (i + 1) * kPieceBytes,
                            static_cast<std::uint8_t>(9 + i)),
                (i + 1) * kPieceBytes);
    EXPECT_EQ(first_other(out.data(), kTail, kCount, 9 + 2), kCount) << "rank 1's last elements";
    EXPECT_EQ(first_other(out.data(), kCount, kTail + kPageBytes, kUntouched), kTail + kPageBytes);
  });
}

}  // namespace
}  // namespace tutti::test
