// SPDX-License-Identifier: Apache-2.0
// The ring of a pair under relacy: the code of pair_ring.hpp itself, instantiated with instrumented
// words, through many interleavings of sender and receiver. Signatures and payloads are plain
// variables to relacy, so a missing order, or memory that is written again too early, is a data
// race. Each planted fault must be caught in the scenario that the real protocol passes.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "relacy_harness.hpp"
#include "transports/pair_ring.hpp"

namespace tutti::interleaving {
namespace {

enum class Role { kNumber, kConsumed };

enum class Fault {
  kNone,
  kRelaxedNumberStore,
  kRelaxedNumberLoad,
  kRelaxedConsumedStore,
  kRelaxedConsumedLoad,
  kCreditTooEarly,   // the receiver gives the credit of a message that it has not read
  kVisibleTooEarly,  // the sender publishes a message before its payload
  kBytesUnbounded,   // the sender looks for free cells alone
};
Fault fault = Fault::kNone;  // relacy makes the suite object itself, so its parameter is global

// An atomic with the face of std::atomic whose orders relacy checks.
template <Role role>
class RingWord {
 public:
  [[nodiscard]] std::uint64_t load(std::memory_order order) const {
    const bool weak = (role == Role::kNumber && fault == Fault::kRelaxedNumberLoad) ||
                      (role == Role::kConsumed && fault == Fault::kRelaxedConsumedLoad);
    return word_.load(weak ? rl::mo_relaxed : translate(order), RL_INFO);
  }
  void store(std::uint64_t value, std::memory_order order) {
    const bool weak = (role == Role::kNumber && fault == Fault::kRelaxedNumberStore) ||
                      (role == Role::kConsumed && fault == Fault::kRelaxedConsumedStore);
    word_.store(value, weak ? rl::mo_relaxed : translate(order), RL_INFO);
  }

 private:
  rl::atomic<std::uint64_t> word_;
};

struct CheckedCell {
  RingWord<Role::kNumber> number;
  PlainWord signature, payload;
};

constexpr std::uint64_t kPieces = 3;  // of a line each; one of two leaves the last one free

// What PairRing is to production code.
struct CheckedRing {
  static constexpr std::uint64_t kCells = 4;
  std::uint64_t cell_count = kCells;
  CheckedCell* cells = nullptr;
  PlainWord* pieces = nullptr;
  std::uint64_t memory_bytes = kPieces * kRingCellBytes;
  RingWord<Role::kConsumed>* consumed = nullptr;
  RingState state;

  [[nodiscard]] CheckedCell& cell(std::uint64_t message) const { return cells[message % kCells]; }
  [[nodiscard]] PlainWord* payload_of(CheckedCell& cell) const { return &cell.payload; }
  [[nodiscard]] PlainWord* payload_at(std::uint64_t offset) const {
    return pieces + offset / kRingCellBytes;
  }
};
static_assert(PairRingLike<CheckedRing>);

constexpr std::uint64_t kMessages = 9;  // two laps of the cells, and more of the bytes

// Payloads in the line, of a line and of two.
std::uint64_t bytes_of(std::uint64_t message) {
  constexpr std::array<std::uint64_t, 4> kSizes{2 * kRingCellBytes, 8, kRingCellBytes,
                                                2 * kRingCellBytes};
  return kSizes[message % kSizes.size()];
}
std::uint64_t words_of(std::uint64_t message) { return bytes_of(message) > kRingCellBytes ? 2 : 1; }

class Rings : public rl::test_suite<Rings, 2> {
 public:
  void before() {
    for (CheckedCell& cell : cells_) {
      cell.number.store(0, std::memory_order_relaxed);
      cell.signature = 0;
      cell.payload = 0;
    }
    for (PlainWord& piece : pieces_) piece = 0;
    consumed_.store(0, std::memory_order_relaxed);
  }

  void thread(unsigned index) { index == 0 ? send_all() : recv_all(); }

 private:
  CheckedRing open() {
    return {.cells = cells_, .pieces = pieces_, .consumed = &consumed_, .state = {}};
  }

  void send_all() {
    CheckedRing ring = open();
    for (std::uint64_t message = 0; message < kMessages; ++message) {
      const std::uint64_t bytes = bytes_of(message);
      while (!can_send(ring, fault == Fault::kBytesUnbounded ? 0 : bytes)) {
        RL_ASSERT(!is_corrupt(ring));
        rl::yield(1, RL_INFO);
      }
      PlainWord* const place = send_place(ring, bytes);
      if (fault == Fault::kVisibleTooEarly) commit(ring, 100 + message, bytes);
      for (std::uint64_t i = 0; i < words_of(message); ++i) place[i] = 10 * message + i;
      if (fault != Fault::kVisibleTooEarly) commit(ring, 100 + message, bytes);
    }
  }

  void recv_all() {
    CheckedRing ring = open();
    for (std::uint64_t message = 0; message < kMessages; ++message) {
      const std::uint64_t bytes = bytes_of(message);
      while (!can_recv(ring)) rl::yield(1, RL_INFO);
      RL_ASSERT(recv_signature(ring) == 100 + message);
      const PlainWord* const place = recv_place(ring, bytes);
      if (fault == Fault::kCreditTooEarly) release(ring, bytes);
      for (std::uint64_t i = 0; i < words_of(message); ++i) RL_ASSERT(place[i] == 10 * message + i);
      if (fault != Fault::kCreditTooEarly) release(ring, bytes);
    }
  }

  CheckedCell cells_[CheckedRing::kCells];
  PlainWord pieces_[kPieces];
  RingWord<Role::kConsumed> consumed_;
};

constexpr std::uint64_t kRandomInterleavings = 100'000;

Outcome explore(Fault what, rl::scheduler_type_e search, std::uint64_t interleavings) {
  fault = what;
  return simulate<Rings>(search, interleavings);
}

TEST(PairRingInterleaving, RandomSchedulesAreClean) {
  const Outcome outcome = explore(Fault::kNone, rl::random_scheduler_type, kRandomInterleavings);
  EXPECT_TRUE(outcome.passed) << outcome.report;
}

// Every schedule with at most two preemptions, and every value that a load may return in it.
TEST(PairRingInterleaving, AllSchedulesWithTwoPreemptionsAreClean) {
  const Outcome outcome =
      explore(Fault::kNone, rl::fair_context_bound_scheduler_type, ~std::uint64_t{0} >> 1);
  EXPECT_TRUE(outcome.passed) << outcome.report;
  std::printf("%llu interleavings, all there are\n",
              static_cast<unsigned long long>(outcome.interleavings));
  EXPECT_GT(outcome.interleavings, 100U);
}

struct Planted {
  const char* name;
  Fault fault;
};

class PairRingFault : public testing::TestWithParam<Planted> {};

TEST_P(PairRingFault, IsCaught) {
  const Outcome random = explore(GetParam().fault, rl::random_scheduler_type, kRandomInterleavings);
  EXPECT_FALSE(random.passed) << "survived " << random.interleavings << " random interleavings";
}

INSTANTIATE_TEST_SUITE_P(
    Protocol, PairRingFault,
    testing::Values(Planted{"relaxed_number_store", Fault::kRelaxedNumberStore},
                    Planted{"relaxed_number_load", Fault::kRelaxedNumberLoad},
                    Planted{"relaxed_consumed_store", Fault::kRelaxedConsumedStore},
                    Planted{"relaxed_consumed_load", Fault::kRelaxedConsumedLoad},
                    Planted{"credit_too_early", Fault::kCreditTooEarly},
                    Planted{"visible_too_early", Fault::kVisibleTooEarly},
                    Planted{"bytes_unbounded", Fault::kBytesUnbounded}),
    [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace tutti::interleaving
