// SPDX-License-Identifier: Apache-2.0
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
static_assert(!WritableElementRange<std::vector<float>>);  // its result would be gone
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

TEST(PublicApi, BlocksGoWhereTheyBelong) {
  in_threads(3, [](int rank, Communicator& comm) {
    const std::array<int, 3> input{10 * rank, 10 * rank + 1, 10 * rank + 2};
    std::array<int, 3> output{};
    comm.all_to_all(input, output);
    EXPECT_EQ(output, (std::array<int, 3>{rank, 10 + rank, 20 + rank}));
    const std::array<int, 1> own{rank + 5};
    std::vector<int> all(rank == 1 ? 3 : 0);
    comm.gather(own, all, 1);
    EXPECT_EQ(all, rank == 1 ? (std::vector<int>{5, 6, 7}) : std::vector<int>());
    std::array<int, 1> mine{};
    comm.scatter(all, mine, 1);
    EXPECT_EQ(mine, own);
    comm.barrier();
    const std::array<int, 4> uneven{};
    std::array<int, 4> unused{};
    EXPECT_THROW(comm.all_to_all(uneven, unused), Exception);
  });
}

TEST(PublicApi, SendsAndReceives) {
  in_threads(3, [](int rank, Communicator& comm) {
    const std::vector<double> to(100, rank + 0.5);
    std::vector<double> from(100);
    Group group;
    comm.send(to, (rank + 1) % 3);
    comm.recv(from, (rank + 2) % 3);
    group.end();
    EXPECT_EQ(from, std::vector<double>(100, (rank + 2) % 3 + 0.5));
    EXPECT_THROW(comm.send(to, 3), Exception);
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

std::vector<tuttiCandidate_t> candidates(const Communicator& comm, std::size_t count) {
  std::size_t total = 0;
  check(tuttiGetCandidates(comm.get(), "all_reduce", count, tuttiFloat, 0, nullptr,
                           sizeof(tuttiCandidate_t), 0, &total));
  std::vector<tuttiCandidate_t> all(total);
  check(tuttiGetCandidates(comm.get(), "all_reduce", count, tuttiFloat, 0, all.data(),
                           sizeof all[0], total, &total));
  return all;
}

TEST(PublicApi, ExplainsWhatRunsAndWhyTheOthersDoNot) {
  in_threads(3, [](int, Communicator& comm) {
    const auto all = candidates(comm, 100'000);
    ASSERT_GT(all.size(), 10u);
    EXPECT_EQ(all.front().runs, 1) << "the cheapest runs";
    for (std::size_t i = 0; i < all.size(); ++i) {
      const tuttiCandidate_t& c = all[i];
      EXPECT_GE(c.timeUs, all[i == 0 ? 0 : i - 1].timeUs);
      EXPECT_NEAR(c.messagesUs + c.switchesUs + c.stepsUs + c.bytesUs + c.remoteUs, c.timeUs,
                  1e-9 * c.timeUs);
      EXPECT_LT(c.measuredUs, 0) << "nothing was measured";
      EXPECT_GE(c.slices, 1u);
    }
    const std::string text = comm.explain("all_reduce", 100'000, tuttiFloat);
    EXPECT_NE(text.find("all_reduce of 400000 bytes among 3 ranks"), std::string::npos) << text;
    EXPECT_NE(text.find(std::string(all.front().name) + " "), std::string::npos) << text;
    EXPECT_NE(text.find("\nprice: the sum of the terms"), std::string::npos) << text;
    // What runs is what was named, in every detail.
    const std::string last = all.back().name;
    comm.set_algorithm(last.c_str());
    std::vector<float> values(100'000, 1);
    comm.all_reduce(values);
    EXPECT_EQ(comm.info().lastAlgorithm, last.substr(0, last.find('@')));
    EXPECT_STREQ(comm.info().forcedAlgorithm, last.c_str());
    EXPECT_EQ(candidates(comm, 100'000).back().runs, 1);
    EXPECT_NE(comm.explain("all_reduce", 100'000, tuttiFloat).find("; forced: " + last),
              std::string::npos);
  });
}

TEST(PublicApi, ExplanationsRefuseWhatIsNoQuestion) {
  in_threads(1, [](int, Communicator& comm) {
    const char* text = nullptr;
    std::size_t total = 0;
    EXPECT_EQ(tuttiExplain(comm.get(), "all_reduce", 0, tuttiFloat, 0, &text),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiExplain(comm.get(), "all_reduce", 5, tuttiFloat, 0, nullptr),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiExplain(comm.get(), "all_reduce", SIZE_MAX, tuttiFloat, 0, &text),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiExplain(nullptr, "all_reduce", 5, tuttiFloat, 0, &text), tuttiInvalidArgument);
    tuttiCandidate_t one;
    EXPECT_EQ(tuttiGetCandidates(comm.get(), "all_reduce", 5, tuttiFloat, 0, &one, 8, 1, &total),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiGetCandidates(comm.get(), "all_reduce", 5, tuttiFloat, 0, &one, sizeof one, 1,
                                 nullptr),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiExplain(comm.get(), "all_reduce", 5, tuttiFloat, 0, &text), tuttiSuccess);
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
