// SPDX-License-Identifier: Apache-2.0
// Any bytes as what a member of the job says after the handshake, to a rank that shrinks, splits,
// registers a window or maps a segment. The first byte says which of them; the plane says what the
// input has and keeps to its own contract, as the one over sockets does whatever a peer sends.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/shared_file.hpp"
#include "comm/regroup.hpp"
#include "comm/shrink.hpp"
#include "comm/window.hpp"
#include "control/messages.hpp"
#include "tests/fuzz/target.hpp"
#include "transports/shm/shm_transport.hpp"

namespace tutti::fuzz {
namespace {

constexpr Rank kOwn = 1;
constexpr std::int32_t kRanks = 3;
constexpr std::size_t kMostReplies = 6;         // a rank pauses longer before each question
constexpr std::uint64_t kMostFile = 64 * 1024;  // bytes
constexpr std::uint64_t kArenaBytes = 4096;

// Nothing here waits for anybody.
Deadline patience() { return Deadline::in_ms(60'000); }

std::vector<PeerInfo> make_peers() {
  std::vector<PeerInfo> peers;
  for (Rank rank = 0; rank < kRanks; ++rank)
    peers.push_back({.rank = rank,
                     .pid = 100 + rank,
                     .process_token = static_cast<std::uint64_t>(rank) + 1,
                     .host_id = 7,
                     .host = "node7"});
  return peers;
}

// Enters no job: who takes part in it has been read by then, and is checked by the real one.
class ScriptedChild final : public ChildJob {
 public:
  [[nodiscard]] const ServiceAddress& address() const override { return address_; }
  [[nodiscard]] Result<std::unique_ptr<ControlPlane>> enter(
      const control::SessionKey&, std::span<const ChildMember> members) override {
    require(!members.empty() && members.size() <= static_cast<std::size_t>(kRanks),
            "a new job is a part of the old one");
    for (const ChildMember& member : members)
      require(member.address.local.size() <= control::kMaxAddressBytes &&
                  member.address.tcp.size() <= control::kMaxTcpBytes,
              "an address has a bound");
    return make_error(Code::kSystemError, "the script enters no job");
  }

 private:
  const ServiceAddress address_{"unix:@tutti-x", "tcp:10.0.0.1:4000"};
};

class ScriptedPlane final : public ControlPlane {
 public:
  explicit ScriptedPlane(Reader script) : script_(script) {}

  std::function<UniqueFd(Reader&)> lend;  // with each reply; none: no descriptor

  [[nodiscard]] Rank rank() const override { return kOwn; }
  [[nodiscard]] const std::vector<PeerInfo>& peers() const override { return peers_; }
  void serve(RequestKind kind, Handler handler) override { handlers_[kind] = std::move(handler); }
  [[nodiscard]] Result<Reply> call(Rank, RequestKind, std::span<const std::byte>,
                                   Deadline) override {
    const auto payload = script_.raw(script_.number<std::uint8_t>());
    if (!script_.ok() || ++replies_ > kMostReplies)
      return make_error(Code::kInvalidUsage, "the script has ended");
    return Reply{{payload.begin(), payload.end()}, lend ? lend(script_) : UniqueFd()};
  }
  [[nodiscard]] Result<std::vector<std::byte>> allgather(std::span<const std::byte> mine, Deadline,
                                                         std::span<std::byte>) override {
    std::vector<std::byte> all;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const auto other = rank == kOwn ? mine : script_.raw(mine.size());
      all.insert(all.end(), other.begin(), other.end());
    }
    if (!script_.ok()) return make_error(Code::kRemoteError, "the script has ended");
    gathered_ = all;
    return all;
  }
  [[nodiscard]] Result<HandlerReply> ask(RequestKind kind, const Request& request) {
    return handlers_.at(kind)(request);
  }
  [[nodiscard]] Reader& script() { return script_; }
  [[nodiscard]] std::span<const std::byte> gathered() const { return gathered_; }

  [[nodiscard]] Result<std::unique_ptr<ChildJob>> prepare_child() override {
    return std::make_unique<ScriptedChild>();
  }
  [[nodiscard]] Status await_writable(int, Deadline) override { return {}; }
  void watch_peers(std::function<bool(Rank)>) override {}
  void forget_peers() override {}
  [[nodiscard]] bool has_pidfd() const override { return true; }
  [[nodiscard]] std::string note() const override { return {}; }
  [[nodiscard]] SessionId session() const override { return {}; }
  void end_calls_when(std::function<bool()>) override {}
  void interrupt() override {}
  void close() override {}

 private:
  Reader script_;
  const std::vector<PeerInfo> peers_ = make_peers();
  std::map<RequestKind, Handler> handlers_;
  std::size_t replies_ = 0;
  std::vector<std::byte> gathered_;
};

void check(const Error& error) {
  require(error.code != Code::kSuccess, "an error is one");
  require(error.culprit >= kNoRank && error.culprit < kRanks, "a culprit is of the job");
  require(
      std::ranges::all_of(error.message, [](unsigned char c) { return c >= 0x20 && c != 0x7f; }),
      "an error is one line and nothing for the terminal to obey");
}

// Rank 0, who decides, answers; then others ask this rank as if it had decided.
void shrink(ScriptedPlane& plane) {
  Shrink shrink(plane);
  int questions = 0;
  const Status shrunk =
      shrink.run({.excluded = {},
                  .is_dead = [](Rank) { return false; },
                  .cancelled = [&] { return ++questions > 8; },
                  .join = [](std::unique_ptr<ControlPlane>, const std::stop_token&) -> Status {
                    return make_error(Code::kRemoteError, "nobody is there");
                  },
                  .drop = [] {},
                  .timeout_ns = patience().left_ns()});
  if (!shrunk) check(shrunk.error());
  for (std::size_t i = 0; i < kMostReplies; ++i) {
    const Rank from = plane.script().number<std::uint8_t>() % 2 == 0 ? 0 : 2;
    const auto question = plane.script().raw(plane.script().number<std::uint8_t>());
    if (!plane.script().ok()) return;
    const auto answer = plane.ask(RequestKind::kShrink, {from, question});
    if (!answer) check(answer.error());
  }
}

void split_job(ScriptedPlane& plane) {
  const auto job = split(plane, 1, 0, patience());
  check(job.error());
}

void* window_memory() {
  static void* const memory = allocate(4096).value();
  return memory;
}

// A peer lends a file of the size it told of, or of another.
void window(ScriptedPlane& plane) {
  Rank peer = 0;
  plane.lend = [&](Reader& script) {
    const auto field = plane.gathered().subspan(
        static_cast<std::size_t>(std::exchange(peer, 2)) * plane.gathered().size() / kRanks + 24,
        8);
    const auto file_bytes = Reader(field).number<std::uint64_t>();
    const std::uint64_t wrong_by = script.number<std::uint8_t>();
    auto file = make_shared_file("window", std::min(file_bytes, kMostFile) + wrong_by);
    return file ? *std::move(file) : UniqueFd();
  };
  WindowTable table(plane);
  const auto added =
      table.add({.id = 1, .memory = window_memory(), .bytes = 4096, .symmetric = true}, patience());
  if (!added) return check(added.error());
  if (!*added) return check(added->error());
  for (Rank rank = 0; rank < kRanks; ++rank) {
    for (const PeerWindow& part : table.of(rank)) {
      require(part.memory.bytes() > 0 && part.memory.bytes() <= kMostFile + 255, "in the file");
      require(part.memory.data()[0] == std::byte{0} &&
                  part.memory.data()[part.memory.bytes() - 1] == std::byte{0},
              "both ends can be read");
    }
    const auto address = plane.script().number<std::uint64_t>();
    const auto bytes = plane.script().number<std::uint64_t>();
    const Use use = plane.script().number<std::uint8_t>() % 2 == 0 ? Use::kRead : Use::kWrite;
    const std::byte* const found = find_in(table.of(rank), address, bytes, use);
    if (found == nullptr) continue;
    const PeerWindow& part = table.of(rank).front();
    require(found >= part.memory.data() &&
                bytes <= part.memory.bytes() - static_cast<std::size_t>(found - part.memory.data()),
            "what is found lies in the window");
  }
  require(table.remove(1).has_value() && table.mapped_bytes() == 0, "nothing stays mapped");
}

// The segment of a peer: its reply, its header, and whether its file is sealed and of the size.
void segment(ScriptedPlane& plane) {
  plane.lend = [](Reader& script) {
    const auto kind = script.number<std::uint8_t>();
    const auto header = script.raw(script.number<std::uint8_t>());
    const std::size_t bytes =
        shm::SegmentFile::bytes_of({kRanks, kArenaBytes}, kRanks) + (kind & 2u);
    UniqueFd file((kind & 1) != 0 ? ::memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                                  : make_shared_file("segment", bytes).value().release());
    if ((kind & 1) != 0 && ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
      return UniqueFd();
    require(::pwrite(file.get(), header.data(), header.size(), 0) ==
                static_cast<ssize_t>(header.size()),
            "the header fits");
    return file;
  };
  auto transport = make_shm_transport(plane, {.arena_bytes = kArenaBytes});
  require(transport.has_value() && (*transport)->listen().has_value(), "a segment of our own");
  for (const Rank peer : {0, 2}) {
    const Status connected = (*transport)->connect(peer, patience());
    if (!connected)
      check(connected.error());
    else
      static_cast<void>((*transport)->done_of(peer));
  }
}

}  // namespace

void run_one(std::span<const std::byte> input) {
  if (input.empty()) return;
  ScriptedPlane plane{Reader(input.subspan(1))};
  switch (static_cast<unsigned>(input[0]) % 4) {
    case 3:
      return split_job(plane);
    case 0:
      return shrink(plane);
    case 1:
      return window(plane);
    default:
      return segment(plane);
  }
}

std::vector<Bytes> seeds() {
  const auto reply = [](const Bytes& payload) {
    return Writer().number(static_cast<std::uint8_t>(payload.size())).raw(payload).take();
  };
  const auto joined = [](int which, std::initializer_list<Bytes> parts) {
    Writer writer;
    for (const Bytes& part : parts) writer.raw(part);
    return marked(which, writer.bytes());
  };
  const Bytes collecting = reply({std::byte{1}});
  const auto place = [](Rank rank) {
    return Writer().number(rank).text("unix:@tutti-y", 99).text("tcp:10.0.0.2:4000", 99).take();
  };
  const Bytes key(kSessionIdBytes + control::kSecretBytes, std::byte{5});
  const Bytes member = reply(Writer()
                                 .number(std::uint8_t{2})
                                 .number(std::uint32_t{2})
                                 .raw(key)
                                 .raw(place(0))
                                 .raw(place(1))
                                 .take());
  const Bytes failed = reply(Writer()
                                 .number(std::uint8_t{4})
                                 .number(static_cast<std::uint8_t>(Code::kTimeout))
                                 .number(Rank{2})
                                 .text("rank 2 did not come", 100)
                                 .take());
  const Bytes question = marked(1, reply(Writer()
                                             .number(std::uint64_t{1})
                                             .number(std::uint64_t{0})
                                             .number(std::uint32_t{0})
                                             .number(std::uint8_t{1})
                                             .text("unix:@tutti-y", 99)
                                             .text("", 99)
                                             .take()));
  const Bytes wish = Writer()
                         .number(std::int32_t{1})
                         .number(std::int32_t{0})
                         .number(std::uint8_t{1})
                         .raw(key)
                         .padded_text("unix:@tutti-y", control::kMaxAddressBytes)
                         .padded_text("", control::kMaxTcpBytes)
                         .take();
  const auto part = [](std::uint64_t address) {
    return Writer()
        .number(address)
        .number(std::uint64_t{4096})
        .number(std::uint64_t{0})
        .number(std::uint64_t{8192})
        .number(std::uint32_t{1})
        .number(std::uint32_t{0})
        .take();
  };
  const Bytes lent = Writer().number(std::uint8_t{0}).number(std::uint8_t{0}).take();
  const Bytes sought = Writer().number(std::uint64_t{0x10000}).number(std::uint64_t{64}).take();
  const auto header = [](Rank rank) {
    return Writer()
        .number(std::uint64_t{0x314d48535f495454})
        .number(std::uint32_t{1})
        .number(rank)
        .number(kRanks)
        .number(std::uint32_t{0})
        .number(kArenaBytes)
        .take();
  };
  const Bytes keyed = reply(Writer().number(std::uint64_t{1}).take());
  const Bytes kind{std::byte{0}};
  return {joined(0, {collecting, member, question}), joined(0, {failed}), joined(3, {wish, wish}),
          joined(1, {part(0x10000), part(0x20000), lent, lent, part(0x10000), part(0x20000), sought,
                     sought, sought}),
          joined(2, {keyed, kind, reply(header(0)), keyed, kind, reply(header(2))})};
}

}  // namespace tutti::fuzz
