#include "runtime/regroup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/host.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/faults.hpp"

namespace tutti {
namespace {

// How long the rank that decides waits between looks at who has died.
constexpr auto kLook = std::chrono::milliseconds(1);
// And how long before it asks one that is missing whether it has left this shrink already.
constexpr std::int64_t kBeforeProbeNs = 20'000'000;
// Between two questions to it.
constexpr std::int64_t kFirstPauseNs = 20'000;
constexpr std::int64_t kLongestPauseNs = 2'000'000;
constexpr std::int64_t kAnswerNs = 1'000'000'000;  // of a service thread that lives
constexpr std::size_t kMostMessageBytes = 1024;
constexpr std::size_t kMostPageBytes =
    control::kMaxPayloadBytes - control::kMaxAddressBytes - control::kMaxTcpBytes - 64;

// What the deciding rank answers with.
// kAbsent: it has not come itself; kCollecting: it has, and answers within its own timeout.
enum class Answer : std::uint8_t { kAbsent, kCollecting, kMember, kExcluded, kFailed };

// What a rank tells the others of a split. The key of a new job's first member counts.
struct Wish {
  std::int32_t color = kNoColor, key = 0;
  bool ready = false;  // its part of the new job could be made
  control::SessionKey session;
  ServiceAddress address;
};

std::vector<std::byte> encode(const Wish& wish) {
  control::Writer writer;
  writer.number(wish.color).number(wish.key).number(static_cast<std::uint8_t>(wish.ready));
  writer.raw(wish.session.session).raw(wish.session.secret);
  writer.padded_text(wish.address.local, control::kMaxAddressBytes);
  writer.padded_text(wish.address.tcp, control::kMaxTcpBytes);
  return writer.take();
}

control::SessionKey read_key(control::Reader& reader) {
  control::SessionKey key;
  key.session = reader.block<control::kSessionIdBytes>();
  key.secret = reader.block<control::kSecretBytes>();
  return key;
}

std::optional<Wish> decode_wish(std::span<const std::byte> bytes) {
  control::Reader reader(bytes);
  Wish wish;
  wish.color = reader.number<std::int32_t>();
  wish.key = reader.number<std::int32_t>();
  wish.ready = reader.number<std::uint8_t>() != 0;
  wish.session = read_key(reader);
  wish.address.local = reader.padded_text(control::kMaxAddressBytes);
  wish.address.tcp = reader.padded_text(control::kMaxTcpBytes);
  if (!reader.finished()) return std::nullopt;
  return wish;
}

void write_address(control::Writer& writer, const ServiceAddress& address) {
  writer.text(address.local, control::kMaxAddressBytes).text(address.tcp, control::kMaxTcpBytes);
}

ServiceAddress read_address(control::Reader& reader) {
  ServiceAddress address;
  address.local = reader.text(control::kMaxAddressBytes);
  address.tcp = reader.text(control::kMaxTcpBytes);
  return address;
}

// Adds what a page of an answer holds; false: it is malformed, or brings nothing new.
bool read_page(control::Reader& reader, Members& members, std::size_t& ranks, std::size_t most) {
  const std::size_t before = members.list.size();
  ranks = reader.number<std::uint32_t>();
  members.key = read_key(reader);
  while (reader.ok() && !reader.finished()) {
    const auto parent = reader.number<Rank>();
    members.list.push_back({parent, read_address(reader)});
  }
  return reader.finished() && members.list.size() > before && members.list.size() <= ranks &&
         ranks <= most;
}

std::uint64_t hash_of(const std::vector<Rank>& ranks) {
  return hash_bytes({reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(Rank)});
}

Error unready(const std::vector<PeerInfo>& peers, Rank rank) {
  return {Code::kRemoteError,
          fmt::format("{} cannot take part in the new communicator; its own error says why",
                      describe_rank(peers, rank)),
          rank};
}

Result<std::vector<Wish>> decode_wishes(std::span<const std::byte> bytes, std::size_t each,
                                        const std::vector<PeerInfo>& peers) {
  std::vector<Wish> wishes;
  for (const PeerInfo& peer : peers) {
    std::optional<Wish> wish = decode_wish(bytes.subspan(wishes.size() * each, each));
    if (!wish)
      return make_error(
          Code::kRemoteError,
          fmt::format("{} sent a malformed wish of a split", describe_rank(peers, peer.rank)),
          peer.rank);
    wishes.push_back(*std::move(wish));
  }
  return wishes;
}

// Those of one color, by (key, rank).
Result<Members> members_of(std::int32_t color, const std::vector<Wish>& wishes,
                           const std::vector<PeerInfo>& peers) {
  const auto wish_of = [&](Rank rank) -> const Wish& {
    return wishes[static_cast<std::size_t>(rank)];
  };
  std::vector<Rank> ranks;
  for (const PeerInfo& peer : peers)
    if (wish_of(peer.rank).color == color) ranks.push_back(peer.rank);
  std::ranges::stable_sort(ranks, {}, [&](Rank rank) { return wish_of(rank).key; });
  Members members{.key = wish_of(ranks.front()).session, .list = {}};
  for (const Rank rank : ranks) {
    if (!wish_of(rank).ready) return tl::unexpected(unready(peers, rank));
    members.list.push_back({rank, wish_of(rank).address});
  }
  return members;
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> split(ControlPlane& control, std::int32_t color,
                                            std::int32_t key, Deadline deadline) {
  Wish wish{.color = color, .key = key, .session = {}, .address = {}};
  Result<std::unique_ptr<ChildJob>> child;
  if (color != kNoColor) child = control.prepare_child();
  // A rank that cannot take part must not keep the others waiting.
  if (child && *child) {
    wish.ready = true;
    wish.session = control::make_session_key();
    wish.address = (*child)->address();
  }
  const std::vector<std::byte> mine = encode(wish);
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> all, control.allgather(mine, deadline));
  if (!child) return tl::unexpected(child.error());
  if (!*child) return nullptr;
  TUTTI_TRY_ASSIGN(const std::vector<Wish> wishes,
                   decode_wishes(all, mine.size(), control.peers()));
  TUTTI_TRY_ASSIGN(const Members members, members_of(color, wishes, control.peers()));
  return (*child)->enter(members.key, members.list);
}

// Who has come to which attempt, and what was decided.
class Shrink::Decision {
 public:
  explicit Decision(const std::vector<PeerInfo>& peers) : peers_(peers) {}

  void open(std::uint64_t attempt, const std::vector<Rank>& excluded) {
    const std::lock_guard lock(mutex_);
    attempt_ = attempt;
    excluded_ = excluded;
    excluded_hash_ = hash_of(excluded);
    arrived_.clear();
    members_ = {};
    failure_.reset();
  }
  // Waits until all of `expected` have come or died (kNoRank), or something is wrong; at `until_ns`
  // for one that is missing.
  [[nodiscard]] Result<Rank> await(std::span<const Rank> expected, const Request& request,
                                   std::int64_t until_ns) {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (failure_) return tl::unexpected(*failure_);
      const auto missing = std::ranges::find_if(
          expected, [&](Rank rank) { return !arrived_.contains(rank) && !request.is_dead(rank); });
      if (missing == expected.end()) return kNoRank;
      if (request.cancelled()) return make_error(Code::kInvalidUsage, "aborted while shrinking");
      if (request.deadline.passed())
        return make_error(Code::kTimeout,
                          fmt::format("{} is alive and not excluded, but did not come to shrink in "
                                      "time",
                                      describe_rank(peers_, *missing)),
                          *missing);
      if (now_ns() >= until_ns) return *missing;
      came_.wait_for(lock, kLook);
    }
  }
  // This rank has its answer, or an error, and comes to nobody else's decision.
  void finish() {
    const std::lock_guard lock(mutex_);
    if (!members_.list.empty() || failure_) return;
    failure_ = {Code::kRemoteError,
                "its tuttiCommShrink has ended, with the answer of a rank that has died since or "
                "with an error; call it again on all",
                kNoRank};
  }
  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error;
  }
  // This rank and those of the others who have come and live, in rank order.
  [[nodiscard]] Members settle(const ChildMember& own, const Request& request) {
    const std::lock_guard lock(mutex_);
    members_ = {.key = control::make_session_key(), .list = {own}};
    for (const auto& [rank, address] : arrived_)
      if (!request.is_dead(rank)) members_.list.push_back({rank, address});
    std::ranges::sort(members_.list, {}, &ChildMember::parent);
    return members_;
  }

  // Service thread.
  [[nodiscard]] Result<HandlerReply> answer(const tutti::Request& request) {
    control::Reader reader(request.payload);
    const auto attempt = reader.number<std::uint64_t>();
    const auto excluded = reader.number<std::uint64_t>();
    const auto first = reader.number<std::uint32_t>();
    const bool ready = reader.number<std::uint8_t>() != 0;
    const ServiceAddress address = read_address(reader);
    if (!reader.finished()) return make_error(Code::kInvalidUsage, "a malformed shrink request");
    const std::lock_guard lock(mutex_);
    if (attempt > attempt_) return HandlerReply{.payload = plain(Answer::kAbsent)};
    const Error behind{Code::kRemoteError, "the ranks are not in the same attempt to shrink"};
    if (attempt < attempt_) return HandlerReply{.payload = failed(behind)};
    if (std::ranges::binary_search(excluded_, request.from))
      return HandlerReply{.payload = plain(Answer::kExcluded)};
    if (members_.list.empty()) arrive(request.from, excluded, ready, address);
    if (failure_) return HandlerReply{.payload = failed(*failure_)};
    if (members_.list.empty()) return HandlerReply{.payload = plain(Answer::kCollecting)};
    return HandlerReply{.payload = page_of(request.from, first)};
  }

 private:
  // Locked.
  void arrive(Rank rank, std::uint64_t excluded, bool ready, const ServiceAddress& address) {
    if (!failure_ && excluded != excluded_hash_)
      failure_ = {Code::kInvalidUsage,
                  fmt::format("rank {} shrinks without other ranks than this one does; pass the "
                              "same list on all that remain",
                              rank),
                  rank};
    else if (!failure_ && !ready)
      failure_ = unready(peers_, rank);
    arrived_.emplace(rank, address);
    came_.notify_all();
  }
  [[nodiscard]] static std::vector<std::byte> plain(Answer answer) {
    return control::Writer().number(static_cast<std::uint8_t>(answer)).take();
  }
  [[nodiscard]] static std::vector<std::byte> failed(const Error& error) {
    return control::Writer()
        .number(static_cast<std::uint8_t>(Answer::kFailed))
        .number(static_cast<std::uint8_t>(error.code))
        .number(error.culprit)
        .text(error.message, kMostMessageBytes)
        .take();
  }
  // As many members from `first` on as a packet takes.
  [[nodiscard]] std::vector<std::byte> page_of(Rank rank, std::size_t first) const {
    if (!std::ranges::binary_search(members_.list, rank, {}, &ChildMember::parent))
      return plain(Answer::kExcluded);
    control::Writer writer;
    writer.number(static_cast<std::uint8_t>(Answer::kMember))
        .number(static_cast<std::uint32_t>(members_.list.size()))
        .raw(members_.key.session)
        .raw(members_.key.secret);
    for (std::size_t i = first; i < members_.list.size(); ++i) {
      if (writer.bytes().size() > kMostPageBytes) break;
      writer.number(members_.list[i].parent);
      write_address(writer, members_.list[i].address);
    }
    return writer.take();
  }

  const std::vector<PeerInfo> peers_;
  std::mutex mutex_;  // guards all below
  std::condition_variable came_;
  std::uint64_t attempt_ = 0, excluded_hash_ = 0;
  std::vector<Rank> excluded_;
  std::map<Rank, ServiceAddress> arrived_;
  std::optional<Error> failure_;
  Members members_;  // none: not decided
};

Shrink::Shrink(ControlPlane& control)
    : control_(control), decision_(std::make_shared<Decision>(control.peers())) {
  control_.serve(RequestKind::kShrink, [decision = decision_](const tutti::Request& request) {
    return decision->answer(request);
  });
}

std::vector<Rank> Shrink::candidates(const Request& request) const {
  std::vector<Rank> ranks;
  for (const PeerInfo& peer : control_.peers())
    if (!std::ranges::binary_search(request.excluded, peer.rank) &&
        (peer.rank == control_.rank() || !request.is_dead(peer.rank)))
      ranks.push_back(peer.rank);
  return ranks;
}

Result<std::unique_ptr<ControlPlane>> Shrink::run(const Request& request) {
  decision_->open(++attempt_, request.excluded);
  // A rank that cannot take part says so to the one that decides.
  const Result<std::unique_ptr<ChildJob>> child = control_.prepare_child();
  const Result<Members> members = agree(request, child ? &(*child)->address() : nullptr);
  decision_->finish();
  if (!child) return tl::unexpected(child.error());
  if (!members) return tl::unexpected(members.error());
  return (*child)->enter(members->key, members->list);
}

Result<Members> Shrink::agree(const Request& request, const ServiceAddress* own) {
  const std::int64_t begun_ns = now_ns();
  for (;;) {
    const Rank leader = candidates(request).front();
    if (leader == control_.rank()) return decide(request, own);
    bool again = false;
    Result<Members> members = ask_all(leader, request, own, again);
    if (!again) return members;
    // So that an answer is late by half of the time it took.
    const std::int64_t pause_ns =
        std::clamp((now_ns() - begun_ns) / 2, kFirstPauseNs, kLongestPauseNs);
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  }
}

Result<Members> Shrink::decide(const Request& request, const ServiceAddress* own) {
  std::vector<Rank> others = candidates(request);
  std::erase(others, control_.rank());
  const auto failed = [&](const Error& error) {
    decision_->fail(error);
    return tl::unexpected(error);
  };
  if (own == nullptr) return failed(unready(control_.peers(), control_.rank()));
  for (;;) {
    const Result<Rank> missing = decision_->await(others, request, now_ns() + kBeforeProbeNs);
    if (!missing) return failed(missing.error());
    if (*missing == kNoRank) break;
    if (const auto ended = probe(*missing, request, *own)) return failed(*ended);
  }
  return decision_->settle({control_.rank(), *own}, request);
}

// `again`: not decided yet, or the rank that was to decide has died meanwhile.
Result<Members> Shrink::ask_all(Rank leader, const Request& request, const ServiceAddress* own,
                                bool& again) {
  Members members;
  std::size_t ranks = 0;
  do {
    TUTTI_TRY(ask_page(leader, request, own, members, ranks, again));
  } while (!again && members.list.size() < ranks);
  return members;
}

Result<Reply> Shrink::ask(Rank rank, const Request& request, const ServiceAddress* own,
                          std::size_t first, Deadline deadline) {
  control::Writer question;
  question.number(attempt_).number(hash_of(request.excluded));
  question.number(static_cast<std::uint32_t>(first));
  question.number(static_cast<std::uint8_t>(own != nullptr));
  write_address(question, own != nullptr ? *own : ServiceAddress{});
  return control_.call(rank, RequestKind::kShrink, question.bytes(), deadline);
}

Error Shrink::read_failure(control::Reader& reader, Rank teller) const {
  const auto code = reader.number<std::uint8_t>();
  const auto culprit = reader.number<Rank>();
  const auto all = static_cast<Rank>(control_.peers().size());
  const bool of_job = culprit >= 0 && culprit < all;
  const bool known = code == static_cast<std::uint8_t>(Code::kTimeout) ||
                     code == static_cast<std::uint8_t>(Code::kInvalidUsage);
  return {known ? static_cast<Code>(code) : Code::kRemoteError,
          fmt::format("{} says: {}", describe_rank(control_.peers(), teller),
                      reader.text(kMostMessageBytes)),
          of_job || culprit == kNoRank ? culprit : teller};
}

// Of a rank that is missing: why it will not come, if it has left this shrink.
std::optional<Error> Shrink::probe(Rank missing, const Request& request,
                                   const ServiceAddress& own) {
  const Deadline soon = Deadline::in_ns(kAnswerNs);
  const Result<Reply> reply = ask(missing, request, &own, 0, soon);
  if (!reply) return std::nullopt;
  control::Reader reader(reply->payload);
  if (static_cast<Answer>(reader.number<std::uint8_t>()) != Answer::kFailed) return std::nullopt;
  return read_failure(reader, missing);
}

Status Shrink::ask_page(Rank leader, const Request& request, const ServiceAddress* own,
                        Members& members, std::size_t& ranks, bool& again) {
  const auto name = [&] { return describe_rank(control_.peers(), leader); };
  if (request.cancelled()) return make_error(Code::kInvalidUsage, "aborted while shrinking");
  const Deadline soon = Deadline::in_ns(kAnswerNs);
  const Result<Reply> reply = ask(leader, request, own, members.list.size(),
                                  {std::max(soon.at_ns, request.deadline.at_ns)});
  again = !request.deadline.passed();
  if (!reply) {
    again = request.is_dead(leader) || (again && reply.error().code == Code::kRemoteError);
    return again ? Status() : tl::unexpected(reply.error());
  }
  control::Reader reader(reply->payload);
  const auto answer = static_cast<Answer>(reader.number<std::uint8_t>());
  if (answer == Answer::kAbsent && again) return {};
  if (answer == Answer::kAbsent)
    return make_error(Code::kTimeout,
                      fmt::format("{}, who decides, did not come to shrink in time", name()),
                      leader);
  again = answer == Answer::kCollecting;
  if (again) return {};
  if (answer == Answer::kExcluded)
    return make_error(Code::kInvalidUsage,
                      fmt::format("{} excluded this rank, which takes part", name()), leader);
  if (answer == Answer::kFailed) return tl::unexpected(read_failure(reader, leader));
  if (answer != Answer::kMember || !read_page(reader, members, ranks, control_.peers().size()))
    return make_error(Code::kRemoteError, fmt::format("{} sent a malformed answer", name()),
                      leader);
  return {};
}

}  // namespace tutti
