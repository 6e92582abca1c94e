// SPDX-License-Identifier: Apache-2.0
// tutti.hpp: ownership, regrouping, memory and errors as C++ programs see them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <type_traits>
#include <vector>

namespace tutti::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

static_assert(std::is_nothrow_default_constructible_v<Communicator>);
static_assert(std::is_nothrow_move_constructible_v<Window>);
static_assert(!std::is_copy_constructible_v<Memory>);
static_assert(data_type_of<const std::int64_t> == tuttiInt64);
#ifdef __FLT16_MANT_DIG__
static_assert(Element<_Float16> && data_type_of<_Float16> == tuttiFloat16);
#endif
#ifdef __STDCPP_BFLOAT16_T__
static_assert(data_type_of<std::bfloat16_t> == tuttiBfloat16);
#endif

// Runs `body` in a thread for each rank of a new communicator.
void run_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  const UniqueId id = UniqueId::create();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Communicator comm(id, ranks, rank);
        body(comm);
      } catch (const Exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
}

void expect_sum(Communicator& comm) {
  std::vector<std::int32_t> values(100, comm.rank());
  comm.all_reduce(values);
  EXPECT_THAT(values, Each(comm.nranks() * (comm.nranks() - 1) / 2));
}

TEST(CppApi, CallsOnStreamsReturnAndEventsOrderThem) {
  run_ranks(2, [](Communicator& comm) {
    Stream stream, other;
    const Event summed;
    std::vector<std::int32_t> values(100, comm.rank() + 1);
    std::int32_t seen = 0;
    comm.all_reduce(values, tuttiSum, stream.get());
    stream.record(summed);
    other.wait(summed);
    other.launch(
        [&values, &seen, kept = std::make_unique<int>(4)]() noexcept { seen = values[0] + *kept; });
    other.synchronize();
    EXPECT_EQ(seen, 7);
    EXPECT_TRUE(summed.done() && stream.done());
    Stream moved = std::move(stream);
    comm.barrier(moved.get());
    summed.synchronize();
    moved.synchronize();
    std::vector<std::int32_t> differing(comm.rank() == 0 ? 1 : 2);
    try {
      comm.all_reduce(differing, tuttiSum, moved.get());
      moved.synchronize();
      FAIL() << "calls that differ have succeeded";
    } catch (const Exception& error) {
      EXPECT_EQ(error.code(), tuttiInvalidUsage);
    }
  });
}

TEST(CppApi, AnEmptyCommunicatorThrowsAndIsFilledByAMove) {
  Communicator comm;
  EXPECT_FALSE(comm);
  std::vector<float> values(3);
  try {
    comm.all_reduce(values);
    FAIL() << "an empty communicator reduced";
  } catch (const Exception& error) {
    EXPECT_EQ(error.code(), tuttiInvalidArgument);
  }
  comm = std::move(Communicator::init_all(1).front());
  EXPECT_TRUE(comm);
  expect_sum(comm);
}

TEST(CppApi, SplitMakesACommunicatorOfEachColor) {
  run_ranks(4, [](Communicator& comm) {
    const int color = comm.rank() == 3 ? TUTTI_SPLIT_NOCOLOR : comm.rank() % 2;
    Communicator part = comm.split(color, -comm.rank());
    EXPECT_EQ(static_cast<bool>(part), color != TUTTI_SPLIT_NOCOLOR);
    if (!part) return;
    EXPECT_EQ(part.nranks(), color == 0 ? 2 : 1);
    EXPECT_EQ(part.rank(), comm.rank() == 0 ? 1 : 0);  // the greater rank has the lesser key
    expect_sum(part);
  });
}

TEST(CppApi, SplitTakesAConfiguration) {
  run_ranks(2, [](Communicator& comm) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.algorithm = "one_shot";
    Communicator part = comm.split(0, 0, config);
    EXPECT_THAT(part.info().forcedAlgorithm, HasSubstr("one_shot"));
    expect_sum(part);
  });
}

TEST(CppApi, ShrinkLeavesOutWhoIsExcludedAlsoAfterRevoke) {
  run_ranks(3, [](Communicator& comm) {
    const int excluded[] = {1};
    if (comm.rank() == 1) return;
    comm.revoke();
    Communicator rest = comm.shrink(TUTTI_SHRINK_ABORT, excluded);
    EXPECT_EQ(rest.nranks(), 2);
    expect_sum(rest);
  });
}

TEST(CppApi, InitAllTakesAConfiguration) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.algorithm = "ring";
  std::vector<Communicator> ranks = Communicator::init_all(3, config);
  ASSERT_EQ(ranks.size(), 3u);
  for (const Communicator& comm : ranks)
    EXPECT_THAT(comm.info().forcedAlgorithm, HasSubstr("ring"));
  config.opTimeoutMs = -1;
  EXPECT_THROW(static_cast<void>(Communicator::init_all(3, config)), Exception);
}

TEST(CppApi, MemoryBecomesAWindow) {
  run_ranks(2, [](Communicator& comm) {
    constexpr std::size_t kCount = 10'000;
    Memory memory(kCount * sizeof(std::int32_t));
    const Window window(comm, memory);
    EXPECT_NE(window.get(), nullptr);
    const std::span<std::int32_t> values = memory.as<std::int32_t>();
    ASSERT_EQ(values.size(), kCount);
    EXPECT_THAT(values, Each(0));
    std::iota(values.begin(), values.end(), comm.rank());
    comm.all_reduce(values);
    EXPECT_EQ(values.front(), 1);
    EXPECT_EQ(values.back(), 2 * static_cast<std::int32_t>(kCount) - 1);
    // Nobody frees what the other one still reads.
    std::vector<std::int32_t> last(1, 1);
    comm.all_reduce(last);
  });
}

TEST(CppApi, WindowsAndRegistrationsMayOutliveTheirCommunicator) {
  Memory memory(4096);
  Window window;
  Registration registration;
  {
    Communicator comm = std::move(Communicator::init_all(1).front());
    window = Window(comm, memory);
    registration = Registration(comm, memory.data(), memory.size_bytes());
    Window moved = std::move(window);
    EXPECT_EQ(window.get(), nullptr);
    window = std::move(moved);
    EXPECT_NE(window.get(), nullptr);
  }
}

#ifdef __FLT16_MANT_DIG__
TEST(CppApi, ReducesTheCompilersHalf) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<_Float16> values(5, static_cast<_Float16>(comm.rank() == 0 ? 0.5F : 1.5F));
    comm.all_reduce(values);
    for (const _Float16 value : values) EXPECT_EQ(static_cast<float>(value), 2.0F);
  });
}
#endif

TEST(CppApi, FromLauncherTakesAConfiguration) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.algorithm = "no_such_algorithm";
  try {
    static_cast<void>(Communicator::from_launcher(config));
    FAIL() << "an unknown algorithm was taken";
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("no_such_algorithm"));
  }
}

}  // namespace
}  // namespace tutti::test
