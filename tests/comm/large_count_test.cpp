// SPDX-License-Identifier: Apache-2.0
// Counts above 2^32. A buffer is one piece of memory that the address space repeats, so that 4 GiB
// take 16 MiB; its last page is its own.
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
// A call that takes the count modulo 2^32 moves a piece and 5 elements.
constexpr std::size_t kCount = kPieces * kPieceBytes + 5;

class RepeatedMemory {
 public:
  RepeatedMemory() {
    bytes_ = kPieces * kPieceBytes + kPageBytes;
    void* const all = ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED) << std::strerror(errno);
    data_ = static_cast<std::uint8_t*>(all);
    const UniqueFd piece(::memfd_create("repeated", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(piece.get(), kPieceBytes), 0) << std::strerror(errno);
    for (std::size_t i = 0; i < kPieces; ++i)
      EXPECT_NE(::mmap(data_ + i * kPieceBytes, kPieceBytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED, piece.get(), 0),
                MAP_FAILED)
          << std::strerror(errno);
    EXPECT_NE(::mmap(data_ + kPieces * kPieceBytes, kPageBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED)
        << std::strerror(errno);
  }
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;
  ~RepeatedMemory() { ::munmap(data_, bytes_); }

  // Every element that there is memory for, in the last page too.
  void fill(std::uint8_t value) {
    std::memset(data_, value, kPieceBytes);
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

// Did the call write all of it, and nothing behind?
void expect_filled(const RepeatedMemory& memory, std::uint8_t value) {
  EXPECT_EQ(first_other(memory.data(), 0, kPieceBytes, value), kPieceBytes);
  EXPECT_EQ(first_other(memory.data(), kTail, kCount, value), kCount);
  EXPECT_EQ(first_other(memory.data(), kCount, kTail + kPageBytes, kUntouched), kTail + kPageBytes);
}

TEST(CountsAbove32Bits, AreReducedToTheLastElement) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    RepeatedMemory in, out;
    in.fill(static_cast<std::uint8_t>(3 + rank));
    out.fill(kUntouched);
    ASSERT_EQ(tuttiAllReduce(in.data(), out.data(), kCount, tuttiUint8, tuttiSum, comm, nullptr),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    expect_filled(out, 7);
  });
}

TEST(CountsAbove32Bits, AreBroadcastToTheLastElement) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    RepeatedMemory in, out;
    in.fill(static_cast<std::uint8_t>(3 + rank));
    out.fill(kUntouched);
    ASSERT_EQ(tuttiBroadcast(in.data(), out.data(), kCount, tuttiUint8, 1, comm, nullptr),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    expect_filled(out, 4);
  });
}

TEST(CountsAbove32Bits, AreSentToTheLastElement) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    RepeatedMemory memory;
    memory.fill(rank == 0 ? 5 : kUntouched);
    const tuttiResult_t result =
        rank == 0 ? tuttiSend(memory.data(), kCount, tuttiUint8, 1, comm, nullptr)
                  : tuttiRecv(memory.data(), kCount, tuttiUint8, 0, comm, nullptr);
    ASSERT_EQ(result, tuttiSuccess) << tuttiGetLastError(comm);
    if (rank == 1) expect_filled(memory, 5);
  });
}

// A block of 2^31 and some elements for each rank: places above 2^32 lie in the second block.
TEST(CountsAbove32Bits, BlocksLieBehindThem) {
  constexpr std::size_t kBlock = kCount / 2;  // 2 * kBlock is kCount - 1
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    RepeatedMemory in, out;
    in.fill(9);
    out.fill(kUntouched);
    ASSERT_EQ(tuttiAllGather(in.data(), out.data(), kBlock, tuttiUint8, comm, nullptr),
              tuttiSuccess)
        << tuttiGetLastError(comm) << rank;
    EXPECT_EQ(first_other(out.data(), 0, kPieceBytes, 9), kPieceBytes);
    EXPECT_EQ(first_other(out.data(), kTail, 2 * kBlock, 9), 2 * kBlock);
    EXPECT_EQ(out.data()[2 * kBlock], kUntouched);
  });
}

}  // namespace
}  // namespace tutti::test
