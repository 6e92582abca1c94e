// The C++ layer over the real library: ownership, types, exceptions. What the C functions do is
// tested with the runtime.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

extern "C" int tutti_c11_probe(void);  // public_api_c11.c

namespace tutti {
namespace {

static_assert(data_type_of<float> == tuttiFloat32);
static_assert(data_type_of<const double> == tuttiFloat64);
static_assert(data_type_of<int> == tuttiInt32);
static_assert(data_type_of<unsigned long> == tuttiUint64);
static_assert(data_type_of<signed char> == tuttiInt8);
static_assert(data_type_of<Bfloat16> == tuttiBfloat16);
static_assert(Element<Half> && !Element<bool> && !Element<std::string>);
static_assert(WritableElementRange<std::vector<float>&> && WritableElementRange<std::span<float>>);
static_assert(!WritableElementRange<const std::vector<float>&>);
static_assert(!WritableElementRange<std::span<const float>>);
static_assert(!std::is_copy_constructible_v<Communicator>);
static_assert(std::is_nothrow_move_constructible_v<Communicator>);
static_assert(sizeof(Half) == 2 && sizeof(Bfloat16) == 2);

// Runs body(rank, communicator) in `ranks` threads.
template <typename Body>
void in_threads(int ranks, Body&& body) {
  const UniqueId id = UniqueId::create();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Communicator comm(id, ranks, rank);
      body(rank, comm);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(PublicApi, HeaderIsC11) { EXPECT_EQ(tutti_c11_probe(), TUTTI_VERSION_CODE); }

TEST(PublicApi, ThreadsReduceVectorsArraysAndSpans) {
  in_threads(3, [](int rank, Communicator& comm) {
    EXPECT_EQ(comm.rank(), rank);
    EXPECT_EQ(comm.nranks(), 3);
    std::vector<float> values(5, static_cast<float>(rank + 1));
    comm.all_reduce(values);
    EXPECT_EQ(values, std::vector<float>(5, 6.0f));
    const std::array<std::int64_t, 2> input{rank, -rank};
    std::array<std::int64_t, 2> output{};
    comm.all_reduce(input, output, tuttiMax);
    EXPECT_EQ(output, (std::array<std::int64_t, 2>{2, 0}));
    std::vector<Bfloat16> ones(4, Bfloat16{0x3f80});
    comm.all_reduce(std::span(ones), tuttiAvg);
    EXPECT_EQ(ones, std::vector<Bfloat16>(4, Bfloat16{0x3f80}));
    EXPECT_EQ(comm.state(), tuttiSuccess);
  });
}

TEST(PublicApi, InfoTellsHowItRan) {
  in_threads(2, [](int rank, Communicator& comm) {
    comm.set_algorithm("ring");
    std::vector<double> values(1000, 1);
    comm.all_reduce(values);
    const tuttiCommInfo_t info = comm.info();
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(info.nRanks, 2);
    EXPECT_STREQ(info.forcedAlgorithm, "ring");
    EXPECT_STREQ(info.lastAlgorithm, "ring");
    EXPECT_NE(info.lastPlanHash, 0u);
    EXPECT_GE(info.payloadBytesSent, 8000u);  // a ring of two sends as much as it reduces
    EXPECT_GE(info.messagesSent, 1u);
    EXPECT_EQ(info.poisoned, 0);
    comm.set_algorithm(nullptr);
    EXPECT_STREQ(comm.info().forcedAlgorithm, "");
  });
}

TEST(PublicApi, OneThreadDrivesARankEachInAGroup) {
  std::vector<Communicator> comms = Communicator::init_all(4);
  ASSERT_EQ(comms.size(), 4u);
  std::vector<std::vector<int>> values(4);
  Group group;
  for (std::size_t rank = 0; rank < comms.size(); ++rank) {
    values[rank].assign(3, static_cast<int>(rank));
    comms[rank].all_reduce(values[rank]);
  }
  group.end();
  for (const auto& result : values) EXPECT_EQ(result, std::vector<int>(3, 6));
}

TEST(PublicApi, HandlesMoveAndAreReleased) {
  std::vector<Communicator> comms = Communicator::init_all(1);
  Communicator a = std::move(comms[0]);
  EXPECT_FALSE(comms[0]);
  EXPECT_TRUE(a);
  Communicator b(nullptr);
  b = std::move(a);
  EXPECT_EQ(b.nranks(), 1);
  Communicator c(b.release());
  EXPECT_FALSE(b);
  c.finalize();
}

TEST(PublicApi, ErrorsCarryCodeAndMessage) {
  std::vector<Communicator> comms = Communicator::init_all(1);
  std::vector<float> three(3), two(2);
  const auto code_of = [](auto&& call) {
    try {
      call();
    } catch (const Exception& error) {
      EXPECT_NE(std::strlen(error.what()), 0u);
      return error.code();
    }
    return tuttiSuccess;
  };
  EXPECT_EQ(code_of([&] { comms[0].all_reduce(three, two); }), tuttiInvalidArgument);
  EXPECT_EQ(code_of([&] { comms[0].set_algorithm("no_such"); }), tuttiInvalidArgument);
  EXPECT_EQ(code_of([&] { Communicator(UniqueId::create(), 2, 2); }), tuttiInvalidArgument);
  EXPECT_EQ(code_of([&] { Communicator(UniqueId{}, 2, 0); }), tuttiInvalidArgument);
  EXPECT_EQ(code_of([&] { comms[0].all_reduce(three, static_cast<tuttiRedOp_t>(77)); }),
            tuttiInvalidArgument);
  comms[0].all_reduce(three);  // none of these poisoned it
  comms[0].abort();
  EXPECT_FALSE(comms[0]);
}

TEST(PublicApi, UniqueIdsAreBytes) {
  const UniqueId id = UniqueId::create();
  const UniqueId copy = UniqueId::from_bytes(id.bytes());
  EXPECT_EQ(std::memcmp(&id.value, &copy.value, TUTTI_UNIQUE_ID_BYTES), 0);
  const UniqueId other = UniqueId::create();
  EXPECT_NE(std::memcmp(&id.value, &other.value, TUTTI_UNIQUE_ID_BYTES), 0);
}

}  // namespace
}  // namespace tutti
