// SPDX-License-Identifier: Apache-2.0
#include "transports/job.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/leaks.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

constexpr std::int64_t kPatienceMs = 30'000;  // far beyond what a loaded machine needs

void run_member(const UniqueId& id, Rank rank, const JobOptions& options, const Factory& factory,
                const std::function<void(Member&)>& body) {
  JoinOptions join_options;
  join_options.deadline = Member::patience();
  auto control = ControlPlane::join(id, rank, options.ranks, join_options);
  ASSERT_TRUE(control) << "rank " << rank << ": " << control.error().message;
  auto transport = factory.make(**control, options.arena_bytes);
  ASSERT_TRUE(transport) << "rank " << rank << ": " << transport.error().message;
  Member me{rank, options.ranks, control->get(), transport->get()};
  if (options.listen) {
    const Status status = me.transport->listen();
    EXPECT_TRUE(status) << "rank " << rank << ": " << status.error().message;
    me.meet();
    if (options.receive) me.connect(rank);
  }
  if (!testing::Test::HasFailure()) body(me);
  // Nobody leaves before all are through: a rank may still be asked for its segment.
  me.meet();
  (*transport)->close();
  (*control)->close();
}

void run_threads(const JobOptions& options, const Factory& factory,
                 const std::function<void(Member&)>& body) {
  const auto id = create_unique_id();
  ASSERT_TRUE(id) << id.error().message;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] { run_member(*id, rank, options, factory, body); });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Pipe {
  UniqueFd read_end, write_end;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) std::abort();
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// In a fresh child. Rank 0 makes the id, so that the parent stays without threads.
void child_main(Rank rank, std::vector<Pipe>& pipes, const JobOptions& options,
                const Factory& factory, const std::function<void(Member&)>& body) {
  UniqueId id;
  if (rank == 0) {
    const auto made = create_unique_id();
    ASSERT_TRUE(made) << made.error().message;
    id = *made;
    for (Rank other = 1; other < options.ranks; ++other) {
      const int fd = pipes[static_cast<std::size_t>(other)].write_end.get();
      ASSERT_EQ(::write(fd, id.bytes.data(), id.bytes.size()), ssize_t{kUniqueIdBytes});
    }
  } else {
    for (Pipe& pipe : pipes) pipe.write_end.reset();  // so that rank 0's death ends the read
    const int fd = pipes[static_cast<std::size_t>(rank)].read_end.get();
    ASSERT_EQ(::read(fd, id.bytes.data(), id.bytes.size()), ssize_t{kUniqueIdBytes});
  }
  run_member(id, rank, options, factory, body);
}

void run_processes(const JobOptions& options, const Factory& factory,
                   const std::function<void(Member&)>& body) {
  std::fflush(nullptr);
  std::vector<Pipe> pipes;
  for (Rank rank = 0; rank < options.ranks; ++rank) pipes.push_back(make_pipe());
  std::vector<pid_t> children;
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0) << "fork failed";
    if (child == 0) {
      child_main(rank, pipes, options, factory, body);
      EXPECT_FALSE(leaks_memory()) << "rank " << rank << " leaks memory: standard error says where";
      Member::leave_at_once();
    }
    children.push_back(child);
  }
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[rank], &status, 0), children[rank]);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << " ended with wait status " << status;
  }
}

// Runs `visit(byte, at)` over the first `bytes` bytes of a message, piece by piece.
template <typename Visit>
void for_each_byte(const SlotView& view, std::uint64_t bytes, Visit&& visit) {
  for (std::uint64_t at = 0; at < bytes; ++at) {
    const std::size_t piece = at / view.segment_bytes;
    if (!visit(view.base[piece * view.segment_stride + at % view.segment_bytes], at)) return;
  }
}

}  // namespace

const char* name_of(Spawn spawn) { return spawn == Spawn::kThreads ? "threads" : "processes"; }

std::ostream& operator<<(std::ostream& out, const Factory& factory) { return out << factory.name; }

std::ostream& operator<<(std::ostream& out, Spawn spawn) { return out << name_of(spawn); }

void Member::leave_at_once() {
  std::fflush(nullptr);
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

Deadline Member::patience() { return Deadline::in_ms(kPatienceMs); }

void Member::meet() const {
  if (transport != nullptr) transport->tell_done();
  const bool left = transport == nullptr || poll("what was sent to leave", [&] {
                      transport->hasten();
                      const Status status = transport->progress();
                      return status && transport->unflushed() == kNoRank;
                    });
  EXPECT_TRUE(left);
  const std::array<std::byte, 1> nothing{};
  const auto met = control->allgather(nothing, patience());
  EXPECT_TRUE(met) << "rank " << rank << ": " << met.error().message;
}

void Member::connect(Rank peer) const {
  const Status status = transport->connect(peer, patience());
  EXPECT_TRUE(status) << "rank " << rank << ": " << status.error().message;
}

Connection Member::open_send(const ConnectionSpec& spec) const {
  auto connection = transport->open_send(spec);
  EXPECT_TRUE(connection) << "rank " << rank << ": " << connection.error().message;
  return connection.value_or(Connection{});
}

Connection Member::open_recv(const ConnectionSpec& spec) const {
  auto connection = transport->open_recv(spec);
  EXPECT_TRUE(connection) << "rank " << rank << ": " << connection.error().message;
  return connection.value_or(Connection{});
}

void Member::give_way() const {
  const Status status = transport->progress();
  EXPECT_TRUE(status) << "rank " << rank << ": " << status.error().message;
  std::this_thread::yield();
}

void Member::fail_waiting(const char* what) const {
  ADD_FAILURE() << "rank " << rank << " waited in vain for " << what;
}

void run_job(const JobOptions& options, const Factory& factory,
             const std::function<void(Member&)>& body) {
  static_cast<void>(test_seed());  // before any fork: both ends of a connection need the same
  options.spawn == Spawn::kThreads ? run_threads(options, factory, body)
                                   : run_processes(options, factory, body);
}

char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  return name_end + 2 < text.size() ? text[name_end + 2] : '\0';
}

std::uint64_t test_seed() {
  static const std::uint64_t seed = draw_seed();
  return seed;
}

void fill_pattern(const SlotView& view, std::uint64_t stream, std::uint64_t number,
                  std::uint64_t bytes) {
  for_each_byte(view, bytes, [&](std::byte& byte, std::uint64_t at) {
    byte = pattern_byte(stream, number, at);
    return true;
  });
}

std::uint64_t first_difference(const SlotView& view, std::uint64_t stream, std::uint64_t number,
                               std::uint64_t bytes) {
  std::uint64_t difference = bytes;
  for_each_byte(view, bytes, [&](std::byte byte, std::uint64_t at) {
    if (byte == pattern_byte(stream, number, at)) return true;
    difference = at;
    return false;
  });
  return difference;
}

}  // namespace tutti::test
