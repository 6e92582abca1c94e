// SPDX-License-Identifier: Apache-2.0
#include "device/job.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "device/segment.hpp"
#include "transports/spec_check.hpp"

namespace tutti::device {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<SessionId, std::weak_ptr<Job>> jobs;  // guarded by mutex
};
Registry& registry() {
  static auto* const all = new Registry;  // never destroyed: communicators may outlive main
  return *all;
}

}  // namespace

Result<std::shared_ptr<Job>> Job::join(Platform& platform, const SessionId& session, Rank rank,
                                       std::int32_t ranks, int device, std::uint64_t arena_bytes) {
  // A device that does not run them matters at the first call with its memory only.
  static_cast<void>(platform.load(device));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.jobs, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<Job> job = all.jobs[session].lock();
  if (job == nullptr) {
    job = std::make_shared<Job>(platform, ranks, arena_bytes);
    all.jobs[session] = job;
  }
  const std::lock_guard own(job->mutex_);
  Member& member = job->members_[at(rank)];
  if (member.joined)
    return make_error(Code::kInvalidUsage, fmt::format("rank {} has joined twice", rank));
  member.joined = true;
  member.device = device;
  job->changed_.notify_all();
  return job;
}

void Job::limit_blocks(Rank rank, const BlockRange& range) {
  const std::lock_guard lock(mutex_);
  members_[at(rank)].blocks = range;
}

Status Job::await_members(Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (Rank rank = 0; rank < ranks(); ++rank)
    while (!members_[at(rank)].joined) {
      wait_a_while(lock, deadline);
      if (!members_[at(rank)].joined && deadline.passed())
        return make_error(Code::kTimeout, fmt::format("rank {} did not join in time", rank), rank);
    }
  return {};
}

void Job::wait_a_while(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  changed_.wait_for(lock, std::chrono::nanoseconds(std::clamp<std::int64_t>(
                              deadline.left_ns(), 1'000'000, 1'000'000'000)));
}

Job::Job(Platform& platform, std::int32_t ranks, std::uint64_t arena_bytes)
    : platform_(platform), arena_bytes_(arena_bytes), members_(at(ranks)), calls_(at(ranks)) {}

Job::~Job() {
  for (Rank rank = 0; rank < ranks(); ++rank) drain(rank);
  free_all();
  if (HostWords* const words = host_words_.load())
    platform_.release_words(reinterpret_cast<Word*>(words));
}

// All but the words of the host, which fault() reads at any time.
void Job::free_all() {
  for (Member& member : members_) {
    member.last = nullptr;
    for (Event* const event : {&member.arrived, &member.launched, &member.noted})
      if (*event != nullptr) platform_.release_event(std::exchange(*event, nullptr));
    for (std::byte** const memory : {&member.segment, &member.table_room, &member.plans})
      if (*memory != nullptr) platform_.release(member.device, std::exchange(*memory, nullptr));
    for (std::byte* const one : member.more_plans) platform_.release(member.device, one);
    member.more_plans.clear();
  }
  reservations_.clear();
  queues_.clear();
}

Status Job::allocate() {
  const std::lock_guard lock(mutex_);
  if (allocated_) return {};
  for (Rank rank = 0; rank < ranks(); ++rank) {
    if (!members_[at(rank)].joined)
      return make_error(
          Code::kNotSupported,
          fmt::format(
              "rank {} is in another process, or joined before the program used CUDA; in this "
              "version all ranks of a call with device memory must be threads of one process",
              rank),
          rank);
    if (ranks_on(members_[at(rank)].device) > kMaxTasks)
      return make_error(
          Code::kNotSupported,
          fmt::format("{} ranks use device {}, but this version allows at most {}",
                      ranks_on(members_[at(rank)].device), members_[at(rank)].device, kMaxTasks));
  }
  Status made = allocate_all();
  if (made) made = fill_tables();
  if (!made) free_all();
  allocated_ = made.has_value();
  return made;
}

Status Job::prepare() {
  TUTTI_TRY(allocate());
  const std::lock_guard lock(mutex_);
  if (prepared_) return {};
  Status reserved = reserve_blocks();
  if (!reserved) reservations_.clear();
  prepared_ = reserved.has_value();
  return reserved;
}

Status Job::reserve_blocks() {
  BlockRange each;
  for (const Member& member : members_) {
    each.least = std::max(each.least, member.blocks.least);
    each.most = std::min(each.most, member.blocks.most);
  }
  blocks_each_ = ~0U;
  for (const int device : devices()) {
    const std::size_t count = ranks_on(device);
    TUTTI_TRY_ASSIGN(const int resident, platform_.resident_blocks(device));
    TUTTI_TRY_ASSIGN(Reservation taken,
                     Reservation::take(device, resident, static_cast<int>(count), each));
    blocks_each_ = std::min(
        blocks_each_, static_cast<std::uint32_t>(static_cast<std::size_t>(taken.count()) / count));
    reservations_.push_back(std::move(taken));
  }
  return {};
}

Status Job::allocate_all() {
  const std::set<int> all = devices();
  one_device_ = all.size() == 1;
  for (const int device : all) {
    TUTTI_TRY(platform_.load(device));
    for (const int other : all) {
      TUTTI_TRY(platform_.reach(device, other));
      whole_lines_ = whole_lines_ && platform_.whole_lines(device, other);
    }
  }
  const SegmentLayout layout(ranks(), arena_bytes_);
  for (Member& member : members_) {
    TUTTI_TRY_ASSIGN(member.segment, platform_.allocate(member.device, layout.bytes()));
    TUTTI_TRY_ASSIGN(member.table_room,
                     platform_.allocate(member.device, members_.size() * sizeof(RankWords*)));
    TUTTI_TRY_ASSIGN(member.plans, platform_.allocate(member.device, kPlanBytes));
    TUTTI_TRY_ASSIGN(member.arrived, platform_.make_event(member.device));
    TUTTI_TRY_ASSIGN(member.launched, platform_.make_event(member.device));
  }
  if (host_words_.load() != nullptr) return {};
  constexpr std::size_t kWordsEach = sizeof(HostWords) / sizeof(Word);
  TUTTI_TRY_ASSIGN(Word* const words,
                   platform_.allocate_words(members_.front().device, members_.size() * kWordsEach));
  host_words_.store(reinterpret_cast<HostWords*>(words));
  return {};
}

Status Job::fill_tables() {
  std::vector<RankWords*> all;
  for (Rank rank = 0; rank < ranks(); ++rank) all.push_back(words_of(rank));
  for (Member& member : members_) {
    member.table = reinterpret_cast<RankWords**>(member.table_room);
    TUTTI_TRY(platform_.upload(member.device, member.table_room, static_cast<void*>(all.data()),
                               all.size() * sizeof(RankWords*)));
  }
  return {};
}

std::set<int> Job::devices() const {
  std::set<int> all;
  for (const Member& member : members_) all.insert(member.device);
  return all;
}

std::size_t Job::ranks_on(int device) const {
  return static_cast<std::size_t>(
      std::ranges::count(members_, device, [](const Member& member) { return member.device; }));
}

RankWords* Job::words_of(Rank rank) const {
  return reinterpret_cast<RankWords*>(members_[at(rank)].segment);
}

std::uint64_t Job::left(Rank rank) const {
  return host_words_.load() == nullptr ? 0
                                       : host_words_of(rank)->left.load(std::memory_order_relaxed);
}

std::optional<Job::Found> Job::fault() const {
  if (host_words_.load() == nullptr) return std::nullopt;
  for (Rank rank = 0; rank < ranks(); ++rank)
    if (const FaultFound found = read_fault(*host_words_of(rank)); found.fault != Fault::kNone)
      return Found{rank, found};
  return std::nullopt;
}

Result<std::byte*> Job::room_for_plan(Rank rank, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Member& member = members_[at(rank)];
  const std::uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (whole <= kPlanBytes - member.plan_bytes)
    return member.plans + std::exchange(member.plan_bytes, member.plan_bytes + whole);
  TUTTI_TRY_ASSIGN(std::byte* const memory, platform_.allocate(member.device, whole));
  member.more_plans.push_back(memory);
  return memory;
}

Result<Connection> Job::open(const ConnectionSpec& spec, Messages messages, bool sender) const {
  TUTTI_TRY(check_spec(spec, {.ranks = ranks(),
                              .arena_bytes = arena_bytes_,
                              .connections_per_pair = kConnectionsPerPairOnDevice,
                              .cells_per_pair = kCellsPerPairOnDevice}));
  const SegmentLayout layout(ranks(), arena_bytes_);
  std::byte* const inbox = members_[at(spec.destination)].segment;
  std::byte* const own = members_[at(sender ? spec.source : spec.destination)].segment;
  Connection c;
  c.protocol = spec.protocol;
  c.slots = spec.slots;
  c.cells_per_slot = spec.cells_per_slot;
  c.slot_bytes = spec.slot_bytes;
  if (spec.protocol == Protocol::kSlots)
    c.arena = inbox + layout.arena() + spec.arena_offset_bytes;
  else
    c.cells =
        reinterpret_cast<Cell*>(inbox + layout.cells(spec.source, messages)) + spec.first_cell;
  c.words =
      reinterpret_cast<ConnectionWords*>(inbox + layout.connection_words(spec.source, spec.index));
  c.state = reinterpret_cast<ConnectionState*>(
      own + layout.state(sender ? spec.destination : spec.source, spec.index, sender));
  return c;
}

// ---- launches ---------------------------------------------------------------------------------

Result<Job::Ticket> Job::enqueue(std::span<const Issue> issues) {
  Captured captured;
  Ticket ticket;
  std::unique_lock lock(mutex_);
  if (aborted_) return make_error(Code::kRemoteError, "the communicator was aborted");
  for (Issue issue : issues) {
    const int device = device_of(issue.rank);
    if (issue.capture != 0) {
      captured[{device, issue.capture}].push_back(issue);
      continue;
    }
    TUTTI_TRY_ASSIGN(issue.stream_id, platform_.id_of(device, issue.stream));
    ticket.push_back({device, batches_[device].number, issue.stream, issue.stream_id});
    TUTTI_TRY(add(issue, lock));
  }
  TUTTI_TRY(enqueue_captured(captured));
  return ticket;
}

Status Job::await(const Ticket& ticket, std::int64_t timeout_ns) {
  const Deadline deadline = timeout_ns > 0 ? Deadline::in_ns(timeout_ns)
                                           : Deadline{std::numeric_limits<std::int64_t>::max()};
  for (const Pending& one : ticket) {
    std::unique_lock lock(mutex_);
    TUTTI_TRY(await_launch(one.device, one.number, lock, deadline));
    // The next launch, which changes these, needs this rank.
    const Batch& batch = batches_[one.device];
    lock.unlock();
    if (batch.stream_id != one.stream_id)
      TUTTI_TRY(platform_.wait(one.device, one.stream, batch.over));
  }
  return {};
}

// Those of one device and one graph are one launch.
Status Job::enqueue_captured(const Captured& launches) {
  for (const auto& [key, together] : launches) {
    // Their kernels wait for each other, at every replay, as long as this lives.
    const int device = key.first;
    const std::size_t all = ranks_on(device);
    if (together.size() < all && !queues_.contains(device)) {
      TUTTI_TRY_ASSIGN(Reservation taken,
                       Reservation::take_queues(device, platform_.hardware_queues(device),
                                                static_cast<int>(all)));
      queues_.emplace(device, std::move(taken));
    }
    TUTTI_TRY(check_alike(together));
    TUTTI_TRY(launch_captured(together));
  }
  return {};
}

// The last rank of a device launches for all, on its own stream; the others have marked theirs
// before, each in its thread. CUDA is called without the lock: where a queue is full the call waits
// for kernels, and these may wait for what ranks of other devices are to launch. The other ranks of
// this device wait for the batch's number, so nobody else touches batch or members.
Status Job::add(const Issue& issue, std::unique_lock<std::mutex>& lock) {
  const int device = device_of(issue.rank);
  Batch& batch = batches_[device];
  if (batch.issues.size() + 1 < ranks_on(device)) {
    lock.unlock();
    const Status marked = platform_.record(members_[at(issue.rank)].arrived, device, issue.stream);
    lock.lock();
    TUTTI_TRY(marked);
  }
  if (std::ranges::any_of(batch.issues, [&](const Issue& one) { return one.rank == issue.rank; }))
    return make_error(
        Code::kInvalidUsage,
        fmt::format("rank {} called again before {} on the same device called; a thread that "
                    "serves several ranks of a device must put one operation of each into a group",
                    issue.rank, absent_from(batch, device)));
  batch.issues.push_back(issue);
  if (batch.issues.size() < ranks_on(device)) return {};
  batch.launching = true;
  lock.unlock();
  Status launched = check_alike(batch.issues);
  if (launched) launched = launch_batch(batch);
  lock.lock();
  batch.launching = false;
  batch.failed = launched ? std::nullopt : std::optional(launched.error());
  batch.issues.clear();
  ++batch.number;
  changed_.notify_all();
  return {};
}

Status Job::await_launch(int device, std::uint64_t number, std::unique_lock<std::mutex>& lock,
                         Deadline deadline) {
  Batch& batch = batches_[device];
  // A launch under way is waited for in any case: it uses what the caller may free.
  while (batch.number == number && (batch.launching || !aborted_)) {
    // A rank that knows of a fault makes no more calls.
    if (!batch.launching && fault())
      return make_error(Code::kRemoteError, "an operation failed on a CUDA device");
    wait_a_while(lock, deadline);
    if (batch.number == number && !batch.launching && deadline.passed())
      return make_error(Code::kTimeout,
                        fmt::format("{} of device {} did not come within the operation timeout "
                                    "(TUTTI_OP_TIMEOUT_S)",
                                    absent_from(batch, device), device));
  }
  if (batch.number == number) return make_error(Code::kRemoteError, "the communicator was aborted");
  return batch.failed ? Status(tl::unexpected(*batch.failed)) : Status();
}

std::string Job::absent_from(const Batch& batch, int device) const {
  std::string text;
  for (Rank rank = 0; rank < ranks(); ++rank)
    if (device_of(rank) == device &&
        std::ranges::none_of(batch.issues, [&](const Issue& one) { return one.rank == rank; }))
      text += fmt::format("{}{}", text.empty() ? "rank " : ", ", rank);
  return text;
}

Status Job::check_alike(std::span<const Issue> issues) {
  const auto text = [](const Issue& one) {
    return fmt::format("rank {}: {} of {} {}, {}, plan {:016x} in {}", one.rank,
                       name_of(one.collective), one.count, name_of(one.type), name_of(one.op),
                       one.plan, name_of(one.messages));
  };
  const Issue& first = issues.front();
  for (const Issue& one : issues)
    if (one.collective != first.collective || one.type != first.type || one.op != first.op ||
        one.plan != first.plan || one.messages != first.messages || one.count != first.count)
      return make_error(Code::kInvalidUsage,
                        fmt::format("calls do not match: {}; {}", text(first), text(one)),
                        one.rank);
  return {};
}

// After what the others' streams hold, and before what they hold later, which await() sees to. An
// operation on another stream than the rank's last one comes after that one.
Status Job::launch_batch(Batch& batch) {
  const Issue& own = batch.issues.back();
  const int device = device_of(own.rank);
  for (const Issue& issue : batch.issues) {
    const Member& member = members_[at(issue.rank)];
    if (issue.stream_id != own.stream_id)
      TUTTI_TRY(platform_.wait(device, own.stream, member.arrived));
    if (member.last != nullptr && member.last_stream != issue.stream_id)
      TUTTI_TRY(platform_.wait(device, own.stream, member.last));
  }
  TUTTI_TRY(launch(batch.issues));
  batch.over = members_[at(own.rank)].launched;
  batch.stream_id = own.stream_id;
  TUTTI_TRY(platform_.record(batch.over, device, own.stream));
  for (const Issue& issue : batch.issues) {
    members_[at(issue.rank)].last = batch.over;
    members_[at(issue.rank)].last_stream = issue.stream_id;
  }
  return {};
}

// All by one thread, so that a handle is one stream. A graph cannot wait for what is outside of it;
// its user orders the replays.
Status Job::launch_captured(std::span<const Issue> issues) {
  const Issue& own = issues.back();
  const int device = device_of(own.rank);
  const Event over = members_[at(own.rank)].arrived;
  std::vector<const Issue*> others;
  for (const Issue& issue : issues)
    if (issue.stream != own.stream) others.push_back(&issue);
  for (const Issue* const other : others) {
    const Event arrived = members_[at(other->rank)].arrived;
    TUTTI_TRY(platform_.record(arrived, device, other->stream));
    TUTTI_TRY(platform_.wait(device, own.stream, arrived));
  }
  TUTTI_TRY(launch(issues));
  if (!others.empty()) TUTTI_TRY(platform_.record(over, device, own.stream));
  for (const Issue* const other : others) TUTTI_TRY(platform_.wait(device, other->stream, over));
  return {};
}

Status Job::launch(std::span<const Issue> issues) {
  const Issue& own = issues.back();
  std::vector<LaunchTask> tasks;
  std::uint32_t blocks = 1;  // of the rank that has most
  for (const Issue& issue : issues) {
    tasks.push_back(issue.task);
    blocks = std::max(blocks, issue.blocks);
  }
  // What only moves bytes needs one kernel, whatever their type.
  const bool reduces = info_of(own.collective).reduces();
  return platform_.launch({.device = device_of(own.rank),
                           .stream = own.stream,
                           .type = reduces ? own.type : DataType::kInt8,
                           .op = reduces ? own.op : ReduceOp::kSum,
                           .messages = own.messages,
                           .blocks_each = blocks,
                           .common = own.common,
                           .tasks = tasks});
}

bool Job::has(Rank rank) {
  const std::lock_guard lock(mutex_);
  return members_[at(rank)].joined;
}

void Job::abort() {
  // Before the lock: a launch may hold it that waits for room, which these kernels make by ending.
  if (host_words_.load() != nullptr)
    for (Rank rank = 0; rank < ranks(); ++rank)
      host_words_of(rank)->stop.store(1, std::memory_order_release);
  copies_.abort();
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

// The thread of the rank is in no launch meanwhile.
Status Job::follow_last(Rank rank, Stream stream) {
  const Member& member = members_[at(rank)];
  if (member.last == nullptr) return {};
  TUTTI_TRY_ASSIGN(const std::uint64_t id, platform_.id_of(member.device, stream));
  return member.last_stream == id ? Status() : platform_.wait(member.device, stream, member.last);
}

Status Job::note_last(Rank rank, Stream stream) {
  Member& member = members_[at(rank)];
  TUTTI_TRY(follow_last(rank, stream));
  TUTTI_TRY_ASSIGN(member.last_stream, platform_.id_of(member.device, stream));
  if (member.noted == nullptr) {
    TUTTI_TRY_ASSIGN(member.noted, platform_.make_event(member.device));
  }
  member.last = member.noted;
  return platform_.record(member.noted, member.device, stream);
}

void Job::drain(Rank rank) {
  const Member& member = members_[at(rank)];
  if (member.last != nullptr) static_cast<void>(platform_.synchronize(member.last));
}

}  // namespace tutti::device
