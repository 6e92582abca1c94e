// SPDX-License-Identifier: Apache-2.0
// A board read from outside: what real ranks wrote comes back, what changes under the reader is
// left out, and bytes that lie, at random or with care, end no reader. The flight recorder's file.
#include "board/board_view.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/clock.hpp"
#include "base/host.hpp"
#include "base/shared_file.hpp"
#include "board/board_memory.hpp"
#include "board/board_words.hpp"
#include "control/process_stat.hpp"
#include "tests/control/job.hpp"
#include "tests/seed.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A job of threads, and the descriptor of its board.
class BoardViewTest : public ::testing::Test {
 protected:
  void open(int ranks, const BoardOptions& options = {}) {
    planes_ = join_threads(ranks);
    boards_.resize(planes_.size());
    run_threads(ranks, [&](Rank rank) {
      auto board = Board::open(*planes_[static_cast<std::size_t>(rank)], patience(), options);
      ASSERT_TRUE(board) << board.error().message;
      boards_[static_cast<std::size_t>(rank)] = *std::move(board);
    });
    if (ranks == 1) return;
    auto reply = planes_[1]->call(0, RequestKind::kBoard, {}, patience());
    ASSERT_TRUE(reply) << reply.error().message;
    fd_ = std::move(reply->fd);
  }
  [[nodiscard]] BoardView read() const {
    const auto view = read_board(fd_.get(), "the board");
    EXPECT_TRUE(view) << view.error().message;
    return view.value_or(BoardView{});
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    struct stat info {};
    EXPECT_EQ(::fstat(fd_.get(), &info), 0);
    std::vector<std::byte> all(static_cast<std::size_t>(info.st_size));
    EXPECT_EQ(::pread(fd_.get(), all.data(), all.size(), 0), info.st_size);
    return all;
  }

  std::vector<std::unique_ptr<ControlPlane>> planes_;
  std::vector<std::unique_ptr<Board>> boards_;
  UniqueFd fd_;
};

OperationSignature signature_of(std::uint64_t operation) {
  return {.operation = operation, .op = ReduceOp::kMax, .count = operation * 3, .plan = 77};
}

TEST_F(BoardViewTest, SaysWhoIsThereAndWhatItDoes) {
  open(3);
  const std::int64_t before = coarse_now_ns();
  for (const auto& board : boards_) board->set_state(RankState::kAlive);
  for (std::uint64_t operation = 1; operation <= kRememberedOperations + 6; ++operation) {
    boards_[0]->enter(signature_of(operation));
    if (operation < kRememberedOperations + 6) boards_[0]->leave(operation);
  }
  boards_[0]->waiting_for(2, {.lane = 3, .step = 5, .slice = 7, .since_ns = 1234});
  const KernelFault fault{.peer = 2,
                          .block = 131,
                          .place = {.lane = 9, .step = 4, .slice = 2},
                          .receives = true,
                          .expected = 0xe000001,
                          .seen = 0xd000001};
  boards_[2]->note_fault(fault);
  boards_[2]->note_fault({.peer = 0, .block = 1});  // what came of it
  boards_[1]->enter(signature_of(1));
  boards_[1]->waiting_for(0);
  boards_[1]->leave(1);
  const BoardView view = read();
  EXPECT_EQ(view.session, session_text(planes_[0]->session()));
  EXPECT_EQ(view.host, host_name());
  EXPECT_EQ(view.ranks, 3);
  EXPECT_EQ(view.boot, boot_identity());
  EXPECT_NEAR(static_cast<double>(view.made_realtime_ns) / 1e9,
              static_cast<double>(::time(nullptr)), 600);
  EXPECT_FALSE(view.poison);
  ASSERT_EQ(view.here.size(), 3u);
  for (const RankView& rank : view.here) {
    EXPECT_EQ(rank.pid, ::getpid());
    EXPECT_EQ(rank.uid, ::geteuid());
    EXPECT_EQ(rank.start_ticks, process_start_ticks(::getpid()));
    EXPECT_EQ(rank.pid_namespace, pid_namespace());
    EXPECT_EQ(rank.state, RankState::kAlive);
    EXPECT_THAT(rank.nonsense, IsEmpty());
  }
  const KernelFault seen = view.find(2)->fault.value();
  EXPECT_EQ(seen.peer, fault.peer);
  EXPECT_EQ(seen.block, fault.block);
  EXPECT_EQ(seen.place.lane, fault.place.lane);
  EXPECT_EQ(seen.place.step, fault.place.step);
  EXPECT_EQ(seen.place.slice, fault.place.slice);
  EXPECT_TRUE(seen.receives);
  EXPECT_EQ(seen.expected, fault.expected);
  EXPECT_EQ(seen.seen, fault.seen);
  EXPECT_FALSE(view.find(0)->fault);
  const RankView& busy = *view.find(0);
  EXPECT_TRUE(busy.inside());
  EXPECT_EQ(busy.entered, kRememberedOperations + 6);
  ASSERT_EQ(busy.history.size(), kRememberedOperations);
  for (std::size_t i = 0; i < busy.history.size(); ++i)
    EXPECT_EQ(busy.history[i].signature, signature_of(7 + i));
  EXPECT_GE(busy.history.back().entered_ns, before);
  ASSERT_TRUE(busy.wait);
  EXPECT_EQ(busy.wait->peer, 2);
  EXPECT_EQ(busy.wait->place.lane, 3u);
  EXPECT_EQ(busy.wait->place.step, 5u);
  EXPECT_EQ(busy.wait->place.slice, 7u);
  EXPECT_EQ(busy.wait->place.since_ns, 1234);
  // A slow operation notes when it was left, and that it waits no more.
  EXPECT_FALSE(view.find(1)->inside());
  EXPECT_FALSE(view.find(1)->wait);
  EXPECT_GE(view.find(1)->left_ns, before);
  EXPECT_EQ(boards_[1]->waits_for(1), kNoRank);
  EXPECT_EQ(view.find(2)->entered, 0u);
  EXPECT_EQ(view.find(2)->left_ns, 0);
  EXPECT_EQ(view.find(7), nullptr);
}

// Without a clock of its own, a quick operation is left when it was entered.
TEST_F(BoardViewTest, AQuickOperationIsLeftWhenItWasEntered) {
  open(2);
  boards_[0]->enter(signature_of(1));
  boards_[0]->waiting_for(1);
  boards_[0]->leave(1);
  boards_[0]->enter(signature_of(2));
  boards_[0]->leave(2);
  const BoardView view = read();
  EXPECT_GE(view.find(0)->left_ns, view.find(0)->operation(2)->entered_ns);
}

TEST_F(BoardViewTest, ThePoisonComesWithBothCalls) {
  open(2);
  boards_[1]->poison({.code = Code::kInvalidUsage,
                      .culprit = 0,
                      .kind = Poison::Kind::kMismatch,
                      .mine = signature_of(4),
                      .theirs = signature_of(5)});
  const BoardView view = read();
  ASSERT_TRUE(view.poison);
  EXPECT_EQ(view.poison->kind, Poison::Kind::kMismatch);
  EXPECT_EQ(view.poison->culprit, 0);
  EXPECT_EQ(view.poison->reporter, 1);
  EXPECT_EQ(view.poison->mine, signature_of(4));
  EXPECT_EQ(view.poison->theirs, signature_of(5));
}

// A record that was rewritten between the first copy and the last is not shown.
TEST_F(BoardViewTest, WhatChangesUnderTheReaderIsLeftOut) {
  open(2);
  for (std::uint64_t operation = 1; operation <= 3; ++operation) {
    boards_[0]->enter(signature_of(operation));
    boards_[0]->leave(operation);
  }
  const std::vector<std::byte> before = bytes();
  for (std::uint64_t operation = 4; operation <= kRememberedOperations + 2; ++operation)
    boards_[0]->enter(signature_of(operation));
  const std::vector<std::byte> after = bytes();
  const auto numbers = [](const BoardCopies& copies) {
    std::vector<std::uint64_t> seen;
    const auto view = decode_board(copies);
    for (const OperationView& operation : view->find(0)->history)
      seen.push_back(operation.signature.operation);
    return seen;
  };
  EXPECT_THAT(numbers({before, before, before}), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers({before, before, after}), ElementsAre(3));
  EXPECT_THAT(numbers({before, after, after}), ElementsAre(3));
}

// All a reader does with a view.
void expect_sane(const BoardView& view) {
  EXPECT_LE(view.ranks, 1 << 20);
  for (const RankView& rank : view.here) {
    EXPECT_LT(rank.rank, view.ranks);
    EXPECT_GE(rank.rank, kNoRank);
    EXPECT_LE(static_cast<int>(rank.state), static_cast<int>(RankState::kFailed));
    if (rank.wait) {
      EXPECT_LT(rank.wait->peer, view.ranks);
      EXPECT_GE(rank.wait->peer, 0);
    }
    EXPECT_LE(rank.history.size(), kRememberedOperations);
    for (const OperationView& operation : rank.history)
      EXPECT_FALSE(operation.signature.to_string().empty());
    if (rank.rank != kNoRank) {
      EXPECT_EQ(view.find(rank.rank), &rank);
    }
  }
  for (const char c : view.host) EXPECT_TRUE(c >= 0x21 && c <= 0x7e);
  if (!view.poison) return;
  EXPECT_LT(view.poison->culprit, view.ranks);
  EXPECT_LT(view.poison->reporter, view.ranks);
}

TEST_F(BoardViewTest, BytesThatLieEndNoReader) {
  open(4);
  for (const auto& board : boards_) board->set_state(RankState::kAlive);
  for (std::uint64_t operation = 1; operation <= 80; ++operation)
    for (const auto& board : boards_) board->enter(signature_of(operation));
  const unsigned seed = draw_seed();
  std::mt19937_64 random(seed);
  const std::vector<std::byte> honest = bytes();
  int decoded = 0;
  for (int round = 0; round < 3000; ++round) {
    std::array<std::vector<std::byte>, 3> copies{honest, honest, honest};
    const bool keep_header = round % 4 != 0;
    const std::uint64_t lies = random() % (round % 3 == 0 ? 4000 : 40);
    for (std::uint64_t i = 0; i < lies; ++i) {
      const std::size_t from = keep_header ? sizeof(BoardHeader) : 0;
      const std::size_t words = (honest.size() - from) / 8;
      const std::size_t at = from + random() % words * 8;
      // Numbers that are nearly right are the dangerous ones.
      const std::uint64_t lie = random() % 2 == 0 ? random() >> random() % 64 : random() % 6 - 1;
      const bool torn = random() % 4 == 0;
      for (std::size_t copy = torn ? random() % 3 : 0; copy < 3; ++copy)
        std::memcpy(copies[copy].data() + at, &lie, sizeof lie);
    }
    if (round % 50 == 0)
      for (auto& copy : copies) copy.resize(random() % honest.size());
    const auto view = decode_board({copies[0], copies[1], copies[2]});
    if (!view) continue;
    ++decoded;
    expect_sane(*view);
  }
  EXPECT_GT(decoded, 1000);
}

TEST_F(BoardViewTest, ALieIsNamed) {
  open(2);
  for (const auto& board : boards_) board->enter(signature_of(1));
  std::vector<std::byte> lie = bytes();
  const auto write = [&](std::size_t block, std::size_t offset, auto value) {
    std::memcpy(lie.data() + board_bytes(0) + block * sizeof(RankBlock) + offset, &value,
                sizeof value);
  };
  write(0, offsetof(RankBlock, line) + offsetof(RankLine, state), std::uint32_t{9});
  write(0, offsetof(RankBlock, line) + offsetof(RankLine, waits_for_plus_one), std::int32_t{99});
  write(0, offsetof(RankBlock, line) + offsetof(RankLine, left), std::uint64_t{50});
  write(0, offsetof(RankBlock, line) + offsetof(RankLine, gathering), std::uint32_t{4});
  write(1, offsetof(RankBlock, identity) + offsetof(RankIdentity, rank), std::int32_t{0});
  const auto view = decode_board({lie, lie, lie});
  ASSERT_TRUE(view);
  ASSERT_EQ(view->here.size(), 2u);
  EXPECT_THAT(view->find(0)->nonsense, ElementsAre("is in state 9", "has entered #1 and left #50",
                                                   "is in gathering 4", "waits for rank 98 of 2"));
  EXPECT_THAT(view->here[0].nonsense, ElementsAre("calls itself rank 0, as another does"));
}

TEST_F(BoardViewTest, OnlyABoardIsRead) {
  open(2);
  const auto refusal = [&](const std::vector<std::byte>& content) {
    const auto file = make_shared_file("test", std::max<std::size_t>(content.size(), 1));
    EXPECT_EQ(::pwrite(file->get(), content.data(), content.size(), 0),
              static_cast<ssize_t>(content.size()));
    const auto view = read_board(file->get(), "f");
    return view ? std::string("read") : view.error().message;
  };
  std::vector<std::byte> copy = bytes();
  EXPECT_EQ(refusal(copy), "read");
  EXPECT_THAT(refusal({}), HasSubstr("this is not a status page of Tutti"));
  copy.resize(copy.size() - 64);
  EXPECT_THAT(refusal(copy), HasSubstr("f: the status page is damaged"));
  copy = bytes();
  copy[offsetof(BoardHeader, layout)] = std::byte{200};
  EXPECT_THAT(refusal(copy),
              HasSubstr("f: the status page has layout 200, but this tool reads layout 5"));
  copy[0] = std::byte{0};
  EXPECT_EQ(refusal(copy), "f: this is not a status page of Tutti");
  EXPECT_EQ(read_board(-1, "f").error().code, Code::kSystemError);
}

TEST(BoardWords, APlaceThatIsTooLargeIsCapped) {
  const WaitPlace place =
      unpack_place(pack_place({.lane = 5000, .step = 1u << 30, .slice = ~0u}), 9);
  EXPECT_EQ(place.lane, 4095u);
  EXPECT_EQ(place.step, (1u << 20) - 1);
  EXPECT_EQ(place.slice, ~0u);
  EXPECT_EQ(place.since_ns, 9);
}

class FlightFileTest : public BoardViewTest {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-board-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    return {std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()};
  }
  std::filesystem::path folder_;
};

TEST_F(FlightFileTest, IsThereUntilTheLastHasLeft) {
  open(2, {.flight_dir = folder_.string()});
  ASSERT_EQ(files().size(), 1u);
  std::string form = flight_file_template(
      {.session = planes_[0]->session(), .host = host_name(), .first = 0, .ranks = 2});
  const std::string name = files()[0].filename().string();
  const std::size_t unique = form.find("XXXXXX");
  ASSERT_EQ(name.size(), form.size());
  EXPECT_EQ(name, form.replace(unique, 6, name, unique, 6));
  boards_[0]->enter(signature_of(1));
  EXPECT_TRUE(read().find(0)->inside());
  for (const auto& board : boards_) board->set_state(RankState::kLeft);
  boards_[0].reset();
  boards_[1].reset();
  EXPECT_TRUE(files().empty());
}

TEST_F(FlightFileTest, IsLeftWhereARankDidNotLeave) {
  open(2, {.flight_dir = folder_.string()});
  boards_[0]->set_state(RankState::kLeft);
  boards_[1]->set_state(RankState::kAlive);
  boards_.clear();
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(FlightFileTest, IsLeftAfterAnError) {
  open(2, {.flight_dir = folder_.string()});
  boards_[0]->poison({.culprit = 1});
  for (const auto& board : boards_) board->set_state(RankState::kLeft);
  boards_.clear();
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(FlightFileTest, ARankAloneHasOneToo) {
  open(1, {.flight_dir = folder_.string()});
  ASSERT_EQ(files().size(), 1u);
  boards_[0]->set_state(RankState::kLeft);
  boards_.clear();
  EXPECT_TRUE(files().empty());
}

TEST_F(FlightFileTest, AFolderThatIsNotThereIsNoHindrance) {
  const std::string log_file = (folder_ / "log").string();
  const auto log = Log::open(LogLevel::kWarn, log_file);
  ASSERT_TRUE(log);
  open(2, {.flight_dir = (folder_ / "missing").string(), .log = *log});
  boards_[0]->enter(signature_of(1));
  EXPECT_EQ(boards_[1]->last_entered(0), 1u);
  std::string line(4096, '\0');
  const UniqueFd file(::open(log_file.c_str(), O_RDONLY | O_CLOEXEC));
  line.resize(
      static_cast<std::size_t>(std::max<ssize_t>(::read(file.get(), line.data(), 4096), 0)));
  EXPECT_THAT(line, HasSubstr("cannot make the flight recorder's file"));
  EXPECT_THAT(line, HasSubstr("TUTTI_FLIGHT_DIR"));
}

// Runs by hand with one secret and one address have one session.
TEST_F(FlightFileTest, WhatAKilledRunLeftIsNotInTheWayOfTheNext) {
  constexpr std::size_t kBytes = board_bytes(2);
  const auto first = make_flight_file(folder_.string(), {.host = "a"}, kBytes);
  ASSERT_TRUE(first) << first.error().message;
  const auto second = make_flight_file(folder_.string(), {.host = "a"}, kBytes);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(files().size(), 2u);
  remove_flight_file(second->get());
  EXPECT_EQ(files().size(), 1u);
  remove_flight_file(first->get());
}

// A peer hands out the descriptor: of a file with a name only one that nobody else can open.
TEST_F(FlightFileTest, OnlyAPrivateFileOfItsNameIsMapped) {
  constexpr std::size_t kBytes = board_bytes(2);
  const auto refusal = [](int fd) {
    const auto mapped = BoardMemory::map(fd, 2);
    return mapped ? std::string("mapped") : mapped.error().message;
  };
  const auto made = make_flight_file(folder_.string(), {.host = "a/../b"}, kBytes);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(files()[0].string(), ::testing::ContainsRegex("-a_.._b-rank0-......\\.board$"));
  EXPECT_EQ(refusal(made->get()), "mapped");
  ASSERT_EQ(::fchmod(made->get(), 0640), 0);
  EXPECT_THAT(refusal(made->get()), HasSubstr("neither a shared file"));
  ASSERT_EQ(::fchmod(made->get(), 0600), 0);
  std::filesystem::rename(files()[0], folder_ / "diary");
  EXPECT_THAT(refusal(made->get()), HasSubstr("neither a shared file"));
  remove_flight_file(made->get());
  EXPECT_EQ(files().size(), 1u);  // not its name, so not its to remove
  std::filesystem::rename(files()[0], folder_ / "tutti-x.board");
  ASSERT_EQ(::ftruncate(made->get(), 64), 0);
  EXPECT_THAT(refusal(made->get()), HasSubstr("has 64 bytes"));
  remove_flight_file(made->get());
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace tutti::control
