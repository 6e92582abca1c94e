// SPDX-License-Identifier: Apache-2.0
// The connection protocol under relacy: the code of connection_ops.hpp itself, instantiated with
// instrumented words, run through many interleavings of sender and receiver under the C++ memory
// model (stale reads included). Payload and slot headers are plain variables to relacy, so a
// missing release or acquire is a data race, and a slot overwritten too early is one too.
//
// What finds bugs is shown to find them: each planted fault weakens one order or breaks one rule,
// and must be caught in the same scenarios that the real protocol passes.
#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <string>
#include <utility>

#include "relacy_harness.hpp"
#include "transports/connection_ops.hpp"

namespace tutti::interleaving {

enum class Role { kEpoch, kSignature, kProduced, kConsumed, kDone };

// What is wrong with the protocol under test.
enum class Fault {
  kNone,
  kRelaxedEpochStore,
  kRelaxedEpochLoad,
  kRelaxedProducedStore,
  kRelaxedProducedLoad,
  kRelaxedConsumedStore,
  kRelaxedConsumedLoad,
  kCreditTooEarly,    // the receiver gives the credit of a message that it has not read
  kVisibleTooEarly,   // the sender publishes a message before its payload
  kCarveWithoutDone,  // the sender lays another connection over the cells without waiting for done
  kSlotsOfOthers,     // the sender counts the credits of cells by the number of the other ones
};

enum class Scenario {
  kFlagged,   // one cell a message
  kTwoCells,  // one or two cells a message
  kSlots,
  kMixed,  // operations of both protocols on the same counters
  kCarve,  // a second connection takes over the cells of the first
  kShort,  // operations in short cells and in the others on the same counters
};

struct Conditions {
  Scenario scenario = Scenario::kFlagged;
  Fault fault = Fault::kNone;
};
Conditions conditions;  // relacy makes the suite object itself, so its parameters are global

// An atomic with the face of std::atomic whose orders relacy checks.
template <Role role>
class Word {
 public:
  [[nodiscard]] std::uint64_t load(std::memory_order order) const {
    const bool weak =
        (role == Role::kEpoch && conditions.fault == Fault::kRelaxedEpochLoad) ||
        (role == Role::kProduced && conditions.fault == Fault::kRelaxedProducedLoad) ||
        (role == Role::kConsumed && conditions.fault == Fault::kRelaxedConsumedLoad);
    return word_.load(weak ? rl::mo_relaxed : translate(order), RL_INFO);
  }
  void store(std::uint64_t value, std::memory_order order) {
    const bool weak =
        (role == Role::kEpoch && conditions.fault == Fault::kRelaxedEpochStore) ||
        (role == Role::kProduced && conditions.fault == Fault::kRelaxedProducedStore) ||
        (role == Role::kConsumed && conditions.fault == Fault::kRelaxedConsumedStore);
    word_.store(value, weak ? rl::mo_relaxed : translate(order), RL_INFO);
  }

 private:
  rl::atomic<std::uint64_t> word_;
};

struct CheckedCell {
  Word<Role::kEpoch> epoch;
  Word<Role::kSignature> signature;
  PlainWord payload;
};
struct CheckedWords {
  Word<Role::kProduced> produced;
  Word<Role::kConsumed> consumed;
};
struct CheckedSlot {
  PlainWord signature, bytes, payload;
};

constexpr std::uint32_t kSlots = 2;
constexpr std::uint32_t kCells = 4;

// What Connection is to production code.
struct CheckedConnection {
  Protocol protocol = Protocol::kFlagged;
  std::uint32_t slots = kSlots;
  std::uint32_t cells_per_slot = 1;
  CheckedCell* cells = nullptr;
  CheckedCell* short_cells = nullptr;
  std::uint32_t other_slots = 0;
  bool is_short = false;
  CheckedSlot* arena = nullptr;
  CheckedWords* words = nullptr;
  ConnectionState* state = nullptr;
  std::uint64_t operation = 0;
  std::uint64_t first_message = 0;
  std::uint32_t slot = 0;
};

CheckedSlot& slot_header(const CheckedConnection& c, std::uint32_t slot) { return c.arena[slot]; }

CheckedCell* cell_of(const CheckedConnection& c, std::uint32_t slot) {
  return c.is_short ? c.short_cells + slot : c.cells + slot * c.cells_per_slot;
}

struct CheckedView {
  std::array<PlainWord*, 2> pieces;
};
CheckedView payload_of(const CheckedConnection& c, std::uint32_t slot) {
  if (c.protocol == Protocol::kSlots) return {{&c.arena[slot].payload, nullptr}};
  CheckedCell* first = cell_of(c, slot);
  return {{&first->payload, c.cells_per_slot > 1 ? &first[1].payload : nullptr}};
}
static_assert(ConnectionLike<CheckedConnection>);

// A message of a scenario; both ends know it.
struct Message {
  std::uint64_t operation;
  std::uint64_t number;
  [[nodiscard]] std::uint64_t value() const { return operation * 100 + number; }
  [[nodiscard]] std::uint64_t signature() const { return operation * 1000; }
  // In kTwoCells every second message needs the second cell.
  [[nodiscard]] std::uint64_t bytes() const {
    return conditions.scenario == Scenario::kTwoCells && number % 2 == 1 ? kCellPayloadBytes + 1
                                                                         : 8;
  }
};

constexpr std::uint64_t kOperations = 2;
constexpr std::uint64_t kMessages = 3;  // an operation: more than slots, odd, so slots wrap

class Protocols : public rl::test_suite<Protocols, 2> {
 public:
  void before() {
    for (auto& cell : cells_) {
      cell.epoch.store(0, std::memory_order_relaxed);
      cell.signature.store(0, std::memory_order_relaxed);
      cell.payload = 0;
    }
    for (auto& cell : short_cells_) {
      cell.epoch.store(0, std::memory_order_relaxed);
      cell.signature.store(0, std::memory_order_relaxed);
      cell.payload = 0;
    }
    for (auto& slot : slots_) {
      slot.signature = 0;
      slot.bytes = 0;
      slot.payload = 0;
    }
    for (auto& words : words_) {
      words.produced.store(0, std::memory_order_relaxed);
      words.consumed.store(0, std::memory_order_relaxed);
    }
    done_.store(0, std::memory_order_relaxed);
    for (auto& side : states_) side.fill(ConnectionState{});
  }

  void thread(unsigned index) { index == 0 ? send_all() : recv_all(); }

 private:
  // The connection of an operation, as the plan would place it.
  CheckedConnection open(std::uint64_t operation, std::size_t side) {
    CheckedConnection c;
    const bool second = conditions.scenario == Scenario::kCarve && operation == 2;
    c.cells = cells_;
    c.arena = slots_;
    c.words = &words_[second ? 1 : 0];
    c.state = &states_[side][second ? 1 : 0];
    if (conditions.scenario == Scenario::kTwoCells) c.cells_per_slot = 2;
    if (conditions.scenario == Scenario::kSlots ||
        (conditions.scenario == Scenario::kMixed && operation == 2)) {
      c.protocol = Protocol::kSlots;
    }
    if (conditions.scenario == Scenario::kShort) {
      c.slots = 1;
      c.short_cells = short_cells_;
      c.other_slots = kSlots;
      use_short_cells(c, operation == 1);
    }
    return c;
  }

  void send_all() {
    for (std::uint64_t operation = 1; operation <= kOperations; ++operation) {
      CheckedConnection c = open(operation, 0);
      if (conditions.scenario == Scenario::kCarve && conditions.fault != Fault::kCarveWithoutDone) {
        while (done_.load(std::memory_order_acquire) + 1 < operation) rl::yield(1, RL_INFO);
      }
      begin_operation(c, operation);
      for (std::uint64_t number = 0; number < kMessages; ++number) {
        while (!may_send(c)) {
          RL_ASSERT(!is_corrupt(c));
          rl::yield(1, RL_INFO);
        }
        send_one(c, Message{operation, number});
      }
    }
  }

  static bool may_send(CheckedConnection& c) {
    if (conditions.fault != Fault::kSlotsOfOthers) return can_send(c);
    std::swap(c.slots, c.other_slots);
    const bool may = can_send(c);
    std::swap(c.slots, c.other_slots);
    return may;
  }

  static void send_one(CheckedConnection& c, const Message& message) {
    const CheckedView view = send_slot(c);
    if (conditions.fault == Fault::kVisibleTooEarly) {
      commit(c, message.signature(), message.bytes());
    }
    *view.pieces[0] = message.value();
    if (cells_for(message.bytes()) > 1) *view.pieces[1] = message.value() + 1;
    if (conditions.fault != Fault::kVisibleTooEarly) {
      commit(c, message.signature(), message.bytes());
    }
  }

  void recv_all() {
    for (std::uint64_t operation = 1; operation <= kOperations; ++operation) {
      CheckedConnection c = open(operation, 1);
      begin_operation(c, operation);
      for (std::uint64_t number = 0; number < kMessages; ++number) {
        while (!can_recv(c)) {
          RL_ASSERT(!is_corrupt(c));
          rl::yield(1, RL_INFO);
        }
        recv_one(c, Message{operation, number});
      }
      done_.store(operation, std::memory_order_release);
    }
  }

  static void recv_one(CheckedConnection& c, const Message& message) {
    const CheckedView view = recv_slot(c);
    const std::uint64_t signature = recv_signature(c);
    if (conditions.fault == Fault::kCreditTooEarly) release(c);
    RL_ASSERT(signature == message.signature());
    RL_ASSERT(*view.pieces[0] == message.value());
    if (cells_for(message.bytes()) > 1) RL_ASSERT(*view.pieces[1] == message.value() + 1);
    if (conditions.fault != Fault::kCreditTooEarly) release(c);
  }

  CheckedCell cells_[kCells];
  CheckedCell short_cells_[kSlots];
  CheckedSlot slots_[kSlots];
  CheckedWords words_[2];
  Word<Role::kDone> done_;
  std::array<ConnectionState, 2> states_[2];  // of the sender, of the receiver
};

Outcome explore(const Conditions& what, rl::scheduler_type_e search, std::uint64_t interleavings) {
  conditions = what;
  return simulate<Protocols>(search, interleavings);
}

constexpr std::uint64_t kRandomInterleavings = 100'000;
constexpr std::uint64_t kNoLimit = ~std::uint64_t{0} >> 1;

const char* name_of(Scenario scenario) {
  constexpr const char* kNames[] = {"flagged", "two_cells", "slots", "mixed", "carve", "short"};
  return kNames[static_cast<int>(scenario)];
}

void PrintTo(Scenario scenario, std::ostream* out) { *out << name_of(scenario); }

class Interleaving : public testing::TestWithParam<Scenario> {};

TEST_P(Interleaving, RandomSchedulesAreClean) {
  const Outcome outcome =
      explore({GetParam(), Fault::kNone}, rl::random_scheduler_type, kRandomInterleavings);
  EXPECT_TRUE(outcome.passed) << outcome.report;
}

// Every schedule with at most two preemptions, and every value that a load may return in it.
TEST_P(Interleaving, AllSchedulesWithTwoPreemptionsAreClean) {
  const Outcome outcome =
      explore({GetParam(), Fault::kNone}, rl::fair_context_bound_scheduler_type, kNoLimit);
  EXPECT_TRUE(outcome.passed) << outcome.report;
  RecordProperty("interleavings", std::to_string(outcome.interleavings));
  std::printf("%s: %llu interleavings, all there are\n", name_of(GetParam()),
              static_cast<unsigned long long>(outcome.interleavings));
  EXPECT_GT(outcome.interleavings, 100U);
}

INSTANTIATE_TEST_SUITE_P(Protocol, Interleaving,
                         testing::Values(Scenario::kFlagged, Scenario::kTwoCells, Scenario::kSlots,
                                         Scenario::kMixed, Scenario::kCarve, Scenario::kShort),
                         [](const auto& chosen) { return name_of(chosen.param); });

struct Planted {
  const char* name;
  Scenario scenario;
  Fault fault;
};
std::ostream& operator<<(std::ostream& out, const Planted& planted) { return out << planted.name; }

class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsCaught) {
  const Conditions what{GetParam().scenario, GetParam().fault};
  const Outcome random = explore(what, rl::random_scheduler_type, kRandomInterleavings);
  EXPECT_FALSE(random.passed) << "survived " << random.interleavings << " random interleavings";
  std::printf("%s: %s", GetParam().name,
              random.report.substr(0, random.report.find('\n') + 1).c_str());
}

INSTANTIATE_TEST_SUITE_P(
    Protocol, PlantedFault,
    testing::Values(
        Planted{"relaxed_epoch_store", Scenario::kFlagged, Fault::kRelaxedEpochStore},
        Planted{"relaxed_epoch_load", Scenario::kFlagged, Fault::kRelaxedEpochLoad},
        Planted{"relaxed_epoch_store_two_cells", Scenario::kTwoCells, Fault::kRelaxedEpochStore},
        Planted{"relaxed_produced_store", Scenario::kSlots, Fault::kRelaxedProducedStore},
        Planted{"relaxed_produced_load", Scenario::kSlots, Fault::kRelaxedProducedLoad},
        Planted{"relaxed_consumed_store_flagged", Scenario::kFlagged, Fault::kRelaxedConsumedStore},
        Planted{"relaxed_consumed_load_flagged", Scenario::kFlagged, Fault::kRelaxedConsumedLoad},
        Planted{"relaxed_consumed_store_slots", Scenario::kSlots, Fault::kRelaxedConsumedStore},
        Planted{"relaxed_consumed_load_slots", Scenario::kSlots, Fault::kRelaxedConsumedLoad},
        Planted{"credit_too_early_flagged", Scenario::kFlagged, Fault::kCreditTooEarly},
        Planted{"credit_too_early_slots", Scenario::kSlots, Fault::kCreditTooEarly},
        Planted{"visible_too_early_flagged", Scenario::kFlagged, Fault::kVisibleTooEarly},
        Planted{"visible_too_early_slots", Scenario::kSlots, Fault::kVisibleTooEarly},
        Planted{"carve_without_done", Scenario::kCarve, Fault::kCarveWithoutDone},
        Planted{"credit_too_early_short", Scenario::kShort, Fault::kCreditTooEarly},
        Planted{"slots_of_others_short", Scenario::kShort, Fault::kSlotsOfOthers}),
    [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace tutti::interleaving
