// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, where there are some: what perf/common/gpus.hpp promises of them, and
// all_reduce_perf on their memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <string>

#include "common/check.hpp"
#include "common/gpus.hpp"

namespace tutti::perf {
namespace {

using testing::HasSubstr;

struct Outcome {
  int status = -1;
  std::string output;  // both streams
};
Outcome run_tool(const std::string& arguments) {
  Outcome outcome;
  const char* const elsewhere = std::getenv("ALL_REDUCE_PERF");  // where it was built for
  const std::string tool = elsewhere != nullptr ? elsewhere : TUTTI_ALL_REDUCE_PERF;
  std::FILE* const pipe = ::popen((tool + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> text{};
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) outcome.output += text.data();
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(Gpus, AreListedOrTheirAbsenceIsExplained) {
  const FoundGpus found = find_gpus();
  EXPECT_EQ(found.gpus == nullptr, !found.absence.empty()) << found.absence;
  EXPECT_THAT(found.absence, testing::Not(HasSubstr("\n")));
  if (!found.gpus) return;
  ASSERT_FALSE(found.gpus->list().empty());
  for (const GpuFacts& gpu : found.gpus->list()) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_THAT(gpu.bus, testing::MatchesRegex("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}"));
  }
}

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    FoundGpus found = find_gpus();
    if (!found.gpus) GTEST_SKIP() << found.absence;
    gpus_ = std::move(found.gpus);
    gpus_->use(0);
  }
  std::unique_ptr<Gpus> gpus_;
};

TEST_F(OnGpu, MemoryIsClearedReadWrittenAndCopied) {
  constexpr std::size_t kBytes = MemoryView::kPieceBytes + 1001;
  GuardedBuffer from(kBytes, 3, gpus_->pages()), to(kBytes, 3, gpus_->pages());
  std::uint64_t not_zero = 0;
  from.memory().read([&](std::span<const std::byte> piece, std::size_t) {
    for (const std::byte byte : piece) not_zero += byte != std::byte{0} ? 1 : 0;
  });
  EXPECT_EQ(not_zero, 0u);
  poison(from.memory());
  to.memory().copy_from(from.memory());
  EXPECT_FALSE(find_unpoisoned(to.memory()));
  to.memory().part(kBytes - 1, kBytes).write([](std::span<std::byte> piece, std::size_t) {
    piece[0] = ~piece[0];
  });
  EXPECT_TRUE(find_unpoisoned(to.memory()));
  EXPECT_FALSE(from.check_guards());
  EXPECT_FALSE(to.check_guards());
}

TEST_F(OnGpu, StreamsAreIdleAndEventsInOrder) {
  const Gpus::Stream stream = gpus_->make_stream();
  const Gpus::Event before = gpus_->make_event(), after = gpus_->make_event();
  gpus_->record(before, stream);
  gpus_->record(after, stream);
  while (!gpus_->idle(stream)) {
  }
  EXPECT_GE(gpus_->elapsed_us(before, after), 0);
  EXPECT_GT(gpus_->free_bytes(0), 0u);
  EXPECT_GT(gpus_->used_bytes(), 0u);
  gpus_->free_event(after);
  gpus_->free_event(before);
  gpus_->free_stream(stream);
}

// Every row right, on device memory, for each way in which a run can put operations on streams.
TEST_F(OnGpu, AllReducePerf) {
  for (const char* flags : {"", "-t 2", "-g 2", "-t 2 -g 2 -m 3", "-t 2 -p 1 -y 1", "-t 2 -z 1",
                            "-t 2 -I 1", "-t 2 -u 3", "-t 3 -o avg -d bfloat16"}) {
    const Outcome outcome =
        run_tool(std::string("--memory device -b 8 -e 1M -f 32 -n 4 -T 20 ") + flags);
    EXPECT_EQ(outcome.status, 0) << flags << '\n' << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(" on device memory = ")) << flags;
    EXPECT_THAT(outcome.output, HasSubstr("# Out of bounds values : 0 OK\n")) << flags;
  }
}

TEST_F(OnGpu, AllReducePerfByGraphs) {
  for (const char* flags : {"-G 1", "-t 2 -G 5", "-g 2 -G 3"}) {
    const Outcome outcome =
        run_tool(std::string("--memory device -b 8 -e 1M -f 32 -n 4 -T 20 ") + flags);
    EXPECT_EQ(outcome.status, 0) << flags << '\n' << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("# Out of bounds values : 0 OK\n")) << flags;
    EXPECT_THAT(outcome.output, HasSubstr("#   graph in-place    : first launch ")) << flags;
  }
}

}  // namespace
}  // namespace tutti::perf
