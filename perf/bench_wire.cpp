// SPDX-License-Identifier: Apache-2.0
// What a wire carries between two processes of this machine: the latency of a small message and the
// bandwidth of large ones, of one connection of a transport, without copies of the payload and
// without a schedule. It measures a transport as ib_write_lat and ib_write_bw measure the verbs
// below it.
//
//   bench_wire tcp 10.9.0.1 10.9.0.2      # the address of each rank
//   bench_wire verbs rxe0 rxe1            # the device of each rank
//
// Latency: half of a round trip of flagged messages, median and mean. Bandwidth: messages in slots,
// sent as fast as credits allow, until the last one was consumed; GB = 1e9 bytes. Both ranks wait
// as the library does, so each wants a core.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "control/control_plane.hpp"
#include "exec/waiter.hpp"
#include "perf/common/flags.hpp"
#include "transports/connection_ops.hpp"
#include "transports/tcp/tcp_transport.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace tutti {
namespace {

constexpr std::uint64_t kMessage = 1;  // signature
constexpr std::uint32_t kSlots = 4;
constexpr std::int64_t kPatienceMs = 120'000;

struct Options {
  std::string transport;
  std::array<std::string, 2> at;  // of each rank: its address or device
  std::uint64_t small_bytes = 8;
  std::uint64_t large_bytes = std::uint64_t{1} << 20;
  int small_messages = 1000;
  int large_messages = 64;
  int warmup = 20;
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "bench_wire: %s\n", why.c_str());
  std::_Exit(1);
}
void require(const Status& status) {
  if (!status) give_up(status.error().message);
}
template <typename T>
T require(Result<T> result) {
  if (!result) give_up(result.error().message);
  return *std::move(result);
}

std::uint64_t slot_bytes(const Options& options) {
  return kSlotHeaderBytes + (options.large_bytes + 63) / 64 * 64;
}

std::unique_ptr<Transport> make_transport(const Options& options, Rank rank, ControlPlane& plane) {
  const std::string& at = options.at[static_cast<std::size_t>(rank)];
  const std::uint64_t arena_bytes = kSlots * slot_bytes(options);
  if (options.transport == "tcp")
    return require(make_tcp_transport(plane, {.ip = at, .arena_bytes = arena_bytes}));
  if (options.transport == "verbs")
    return require(make_verbs_transport(plane, {.hca = "=" + at, .arena_bytes = arena_bytes}))
        .transport;
  give_up("unknown transport '" + options.transport + "'; choose tcp or verbs");
}

// One end of a connection in each direction, and what drives them.
class Rank2 {
 public:
  Rank2(const Options& options, Rank rank, const UniqueId& id)
      : plane_(require(ControlPlane::join(id, rank, 2, {.deadline = patience()}))),
        transport_(make_transport(options, rank, *plane_)),
        rank_(rank) {
    require(transport_->listen());
    require(plane_->barrier(patience()));
    require(transport_->connect(1 - rank, patience()));
  }
  ~Rank2() {
    // Makes the last messages arrive, and waits until the peer has consumed everything.
    transport_->publish_done(operation_);
    until([&] { return transport_->unflushed() == kNoRank && transport_->owed().bytes == 0; });
    require(plane_->barrier(patience()));
    transport_->close();
  }
  Rank2(const Rank2&) = delete;
  Rank2& operator=(const Rank2&) = delete;

  // Both directions of a layout.
  void open(ConnectionSpec spec) {
    ++operation_;
    spec.source = rank_;
    spec.destination = 1 - rank_;
    out_ = require(transport_->open_send(spec));
    std::swap(spec.source, spec.destination);
    in_ = require(transport_->open_recv(spec));
    begin_operation(out_, operation_);
    begin_operation(in_, operation_);
  }
  void send(std::uint64_t bytes) {
    until([&] { return can_send(out_); });
    commit(out_, kMessage, bytes);
    require(transport_->progress());
  }
  void receive() {
    until([&] { return can_recv(in_); });
    release(in_);
    require(transport_->progress());
  }
  [[nodiscard]] Rank rank() const { return rank_; }

 private:
  static Deadline patience() { return Deadline::in_ms(kPatienceMs); }
  // As the library does for a rank that has a core of its own.
  template <typename Ready>
  void until(Ready&& ready) {
    const auto block = [&](std::int64_t ns) { return transport_->await(1 - rank_, ns); };
    for (Waiter waiter({}); !ready();) {
      require(transport_->progress());
      if (waiter.wait(block) && waiter.waited_ns() > kPatienceMs * 1'000'000)
        give_up("rank " + std::to_string(rank_) + " waited until the timeout");
    }
  }

  std::unique_ptr<ControlPlane> plane_;
  std::unique_ptr<Transport> transport_;
  Rank rank_;
  std::uint64_t operation_ = 0;
  Connection out_, in_;
};

void measure_latency(const Options& options, Rank2& me) {
  me.open({.protocol = Protocol::kFlagged,
           .slots = kSlots,
           .cells_per_slot = cells_for(options.small_bytes)});
  std::vector<double> one_way_us;
  for (int i = -options.warmup; i < options.small_messages; ++i) {
    const std::int64_t start = now_ns();
    if (me.rank() == 0) me.send(options.small_bytes);
    me.receive();
    if (me.rank() == 1) me.send(options.small_bytes);
    if (i >= 0) one_way_us.push_back(static_cast<double>(now_ns() - start) / 2e3);
  }
  if (me.rank() != 0) return;
  std::ranges::sort(one_way_us);
  const double sum = std::accumulate(one_way_us.begin(), one_way_us.end(), 0.0);
  const auto count = one_way_us.size();
  std::printf("latency_us %.3f mean_us %.3f bytes %llu messages %zu\n", one_way_us[count / 2],
              sum / static_cast<double>(count),
              static_cast<unsigned long long>(options.small_bytes), count);
}

void measure_bandwidth(const Options& options, Rank2& me) {
  me.open({.protocol = Protocol::kSlots, .slots = kSlots, .slot_bytes = slot_bytes(options)});
  // The receiver says when it has everything; credits may wait for a message that takes them along.
  const auto send_all = [&](int messages) {
    for (int i = 0; i < messages; ++i) me.rank() == 0 ? me.send(options.large_bytes) : me.receive();
    me.rank() == 0 ? me.receive() : me.send(0);
  };
  send_all(options.warmup);
  const std::int64_t start = now_ns();
  send_all(options.large_messages);
  if (me.rank() != 0) return;
  const auto bytes = static_cast<double>(options.large_bytes) * options.large_messages;
  std::printf("bandwidth_GB_s %.6f bytes %llu messages %d\n",
              bytes / static_cast<double>(now_ns() - start),
              static_cast<unsigned long long>(options.large_bytes), options.large_messages);
}

void run_rank(const Options& options, Rank rank, const UniqueId& id) {
  Rank2 me(options, rank, id);
  measure_latency(options, me);
  measure_bandwidth(options, me);
}

// The id is made after the fork: a process with threads should not fork.
int run(const Options& options) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) give_up("pipe2 failed");
  const pid_t child = ::fork();
  UniqueId id{};
  if (child == 0) {
    if (::read(pipe[0], &id, sizeof id) != sizeof id) give_up("rank 0 could not make a unique id");
    run_rank(options, 1, id);
    return 0;
  }
  id = require(create_unique_id());
  if (::write(pipe[1], &id, sizeof id) != sizeof id) give_up("cannot write to rank 1");
  run_rank(options, 0, id);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  tutti::Options options;
  CLI::App app("Measures latency and bandwidth of a transport between two processes.",
               "bench_wire");
  app.add_option("transport", options.transport, "tcp or verbs")->required();
  app.add_option("at0", options.at[0], "where rank 0 is: an address, or a device")->required();
  app.add_option("at1", options.at[1], "where rank 1 is")->required();
  app.add_option("--small", options.small_bytes, "bytes of a small message")->capture_default_str();
  app.add_option("--large", options.large_bytes, "bytes of a large message")->capture_default_str();
  app.add_option("-n", options.small_messages, "small messages")->capture_default_str();
  app.add_option("-N", options.large_messages, "large messages")->capture_default_str();
  app.add_option("-w", options.warmup, "of either, before")->capture_default_str();
  if (const auto status = tutti::perf::parse_flags(app, argc, argv)) return *status;
  return tutti::run(options);
}
