// SPDX-License-Identifier: Apache-2.0
#include "api/group.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "api/streams.hpp"
#include "comm/issue.hpp"
#include "comm/run_on_devices.hpp"
#include "comm/transfers.hpp"

namespace tutti {
namespace {

using Hold = std::shared_ptr<const HandleUse>;

Error destroyed() {
  return {Code::kInvalidUsage,
          "a communicator of the group was destroyed before tuttiGroupEnd; nothing of the group "
          "has run"};
}

// Keeps what the handle holds until the group is done with it.
Result<Hold> hold(HandleRef handle) {
  Hold held = std::make_shared<const HandleUse>(handle);
  if (held->get() == nullptr) return tl::unexpected(destroyed());
  return held;
}

// Blocking tasks of a group, a thread each, that wait for each other: the first that fails ends the
// others.
class Together {
 public:
  using Task = std::function<Status(std::size_t i, const std::stop_token& cancel)>;
  Together(const char* what, Task task) : what_(what), task_(std::move(task)) {}

  // Returns the cause: the first error, but what this machine refused before what ranks tell of it.
  [[nodiscard]] Status run(std::size_t count) {
    std::vector<std::thread> threads;
    threads.reserve(count);
    for (std::size_t i = 1; i < count; ++i) try {
        threads.emplace_back([this, i] { run_one(i); });
      } catch (const std::system_error& error) {
        fail(errno_error(fmt::format("cannot start a thread for {} in a group", what_),
                         error.code().value())
                 .value());
      }
    if (count > 0) run_one(0);
    for (std::thread& thread : threads) thread.join();
    return cause_ ? Status(tl::unexpected(*cause_)) : Status();
  }

 private:
  // An exception must not leave the thread that runs a task.
  void run_one(std::size_t i) {
    try {
      if (const Status status = task_(i, cancel_.get_token()); !status) fail(status.error());
    } catch (const std::exception& error) {
      fail({Code::kSystemError, fmt::format("{} in a group: {}", what_, error.what())});
    }
  }
  void fail(const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!cause_ || (cause_->code != Code::kSystemError && error.code == Code::kSystemError))
        cause_ = error;
    }
    cancel_.request_stop();
  }

  const char* const what_;
  const Task task_;
  std::stop_source cancel_;
  std::mutex mutex_;
  std::optional<Error> cause_;  // guarded by mutex_
};

}  // namespace

constinit thread_local int Group::depth_ = 0;
constinit std::atomic<bool> Group::any_{false};

// It has no destructor: to register one takes memory, without which glibc ends the process. Between
// groups it holds none.
Group& Group::current() {
  static_assert(std::is_nothrow_default_constructible_v<Group>);
  struct Room {
    alignas(Group) std::byte bytes[sizeof(Group)];
    bool made;
  };
  constinit thread_local Room room{};
  auto* const group = reinterpret_cast<Group*>(room.bytes);
  if (!std::exchange(room.made, true)) new (group) Group;
  return *std::launder(group);
}

Status Group::leave() {
  if (depth_ == 0)
    return make_error(Code::kInvalidUsage,
                      "this thread has no open group; call tuttiGroupStart first");
  --depth_;
  return {};
}

// Sends and receives become calls like others.
void Group::settle_transfers() {
  if (transfers_ == 0) return;
  calls_.reserve(calls_.size() + transfers_ + 1);  // all of them or none, if there is no memory
  for (std::size_t i = 0; i < transfers_; ++i)
    calls_.push_back({transfers_handle_, few_[i].call(), nullptr});
  transfers_ = 0;
}

void Group::forget() {
  transfers_ = 0;
  calls_ = std::vector<IssuedCall>();  // with its memory, which `= {}` would keep
  for (const IssuedInit& init : inits_) abandon(init.handle);
  inits_ = std::vector<IssuedInit>();
  for (const IssuedTask& task : tasks_)
    if (task.makes.comm != nullptr) abandon(task.makes);
  tasks_ = std::vector<IssuedTask>();
  error_.reset();
}

Result<double> Group::simulate() {
  if (depth_ > 1)
    return make_error(Code::kInvalidUsage,
                      "this is an inner group; call tuttiGroupSimulateEnd for the outermost one");
  TUTTI_TRY(leave());
  const struct Forget {  // also after an exception
    Group& group;
    ~Forget() { group.forget(); }
  } at_the_end{*this};
  if (error_) return tl::unexpected(*error_);
  settle_transfers();
  if (!inits_.empty() || !tasks_.empty())
    return make_error(Code::kInvalidUsage,
                      "the group makes communicators, which has no price; only its other calls do");
  return price();
}

namespace {

// What the calls of one communicator take: its collectives one after another, and beside them its
// sends and receives, all together.
struct Prices {
  Hold hold;
  double collectives_ns = 0;
  std::vector<Call> transfers;
};

// The time of a collective by the plan that runs it.
Result<double> price_collective(Communicator& communicator, const Call& call) {
  if (call.count == 0 || communicator.ranks() == 1) return 0.0;
  TUTTI_TRY_ASSIGN(const Explanation explanation,
                   communicator.explain(call, communicator.in_windows(call)));
  const auto running = std::ranges::find(explanation.candidates, true, &ExplainedCandidate::runs);
  if (running == explanation.candidates.end())
    return make_error(Code::kInternalError,
                      fmt::format("the plan that runs {} has no price", call.info().name));
  return running->cost.time_ns;
}

}  // namespace

// One thread carries out both kinds of calls and waits for neither alone, but what it copies and
// reduces for one delays the other: so the times add up. The sum is too much by the waits in which
// the other kind goes on, a latency of each at least.
Result<double> Group::price() const {
  std::map<Communicator*, Prices> prices;
  for (const IssuedCall& issued : calls_) {
    TUTTI_TRY_ASSIGN(Hold held, hold(issued.handle));
    if (issued.call.on_device)
      return make_error(Code::kNotSupported, "calls with device memory cannot be simulated yet");
    Communicator* const communicator = held->get()->communicator.load(std::memory_order_acquire);
    const InFlightCall in_flight(communicator->call_slot(), "tuttiGroupSimulateEnd");
    TUTTI_TRY(in_flight.status());
    Prices& of_this = prices[communicator];
    of_this.hold = std::move(held);
    if (is_point_to_point(issued.call.collective)) {
      of_this.transfers.push_back(issued.call);
      continue;
    }
    TUTTI_TRY_ASSIGN(const double time_ns, price_collective(*communicator, issued.call));
    of_this.collectives_ns += time_ns;
  }
  double longest_ns = 0;
  for (const auto& [communicator, of_this] : prices)
    longest_ns =
        std::max(longest_ns, of_this.collectives_ns + communicator->price(of_this.transfers));
  return longest_ns;
}

Status Group::end() {
  TUTTI_TRY(leave());
  if (depth_ > 0) return {};
  if (transfers_ > 0 && calls_.empty() && inits_.empty() && tasks_.empty() && !error_)
    return run_transfers();
  const struct Forget {  // also after an exception
    Group& group;
    ~Forget() { group.forget(); }
  } at_the_end{*this};
  if (error_) return tl::unexpected(*error_);
  settle_transfers();
  return run();
}

// The group has nothing else.
Status Group::run_transfers() {
  const std::span all(few_.data(), std::exchange(transfers_, 0));
  const HandleUse held(transfers_handle_);
  if (held.get() == nullptr) return tl::unexpected(destroyed());
  return tutti::run_transfers(*held.get()->communicator.load(std::memory_order_acquire), all,
                              "tuttiGroupEnd");
}

namespace {

// Those of each communicator as one batch. What the group's caller waits for is on a stream of the
// group's own.
Status issue_on_streams(std::span<HeldCall> calls) {
  const auto awaited = std::make_shared<Stream>();
  std::vector<Batch> batches;
  for (const HeldCall& held : calls) {
    auto batch = std::ranges::find(batches, held.communicator, &Batch::communicator);
    if (batch == batches.end())
      batch = batches.insert(batches.end(), {held.communicator, {}, {}, "tuttiGroupEnd"});
    batch->calls.push_back(held.call);
    const std::shared_ptr<Stream>& stream = held.stream != nullptr ? held.stream : awaited;
    if (std::ranges::find(batch->streams, stream) == batch->streams.end())
      batch->streams.push_back(stream);
  }
  Status issued = issue(std::move(batches));
  Status ended = awaited->synchronize();
  return issued ? std::move(ended) : std::move(issued);
}

Status run_on_host(std::span<HeldCall> calls) {
  if (calls.empty()) return {};
  if (std::ranges::any_of(calls, [](const HeldCall& held) { return held.stream != nullptr; }))
    return issue_on_streams(calls);
  return run_operations(calls);
}

}  // namespace

Status Group::run() {
  std::vector<HeldCall> calls;
  for (const IssuedCall& issued : calls_) {
    TUTTI_TRY_ASSIGN(Hold held, hold(issued.handle));
    Communicator* const communicator = held->get()->communicator.load(std::memory_order_acquire);
    calls.push_back({communicator, issued.call, std::move(held), issued.stream});
  }
  TUTTI_TRY_ASSIGN(const std::vector<TaskQueue> tasks, hold_tasks());
  TUTTI_TRY(run_inits());
  TUTTI_TRY(run_tasks(tasks));
  const auto on_device = [](const HeldCall& held) { return held.call.on_device; };
  if (std::ranges::any_of(calls, on_device)) TUTTI_TRY(number_parts(calls));
  const auto on_host = std::stable_partition(calls.begin(), calls.end(), on_device);
  const std::span all(calls);
  const auto on_devices = static_cast<std::size_t>(on_host - calls.begin());
  Status enqueued = run_on_devices(all.first(on_devices));
  // Also after an error: other ranks wait for what other communicators are to do.
  Status run = run_on_host(all.subspan(on_devices));
  return enqueued ? std::move(run) : std::move(enqueued);
}

Status Group::run_inits() {
  std::vector<Hold> starting;
  for (const IssuedInit& init : inits_) {
    TUTTI_TRY_ASSIGN(Hold held, hold(init.handle));
    starting.push_back(std::move(held));
  }
  Together inits("an initialization", [&](std::size_t i, const std::stop_token& cancel) {
    return inits_[i].run(*inits_[i].handle.comm, cancel);
  });
  const auto others = std::stable_partition(inits_.begin(), inits_.end(),
                                            [](const IssuedInit& init) { return init.blocking; });
  TUTTI_TRY(inits.run(static_cast<std::size_t>(others - inits_.begin())));
  Status begun;
  for (const IssuedInit& init : std::span(others, inits_.end())) {
    begun = start_later(init.handle, [run = init.run](tuttiComm& own) { return run(own, {}); });
    if (begun.error().code != Code::kInProgress) return begun;
  }
  inits_.clear();
  return begun;
}

Result<std::vector<Group::TaskQueue>> Group::hold_tasks() const {
  std::vector<TaskQueue> queues;
  for (const IssuedTask& issued : tasks_) {
    TUTTI_TRY_ASSIGN(Hold held, hold(issued.handle));
    auto queue = std::ranges::find_if(
        queues, [&](const TaskQueue& q) { return q.hold->get() == held->get(); });
    if (queue == queues.end()) queue = queues.insert(queues.end(), {std::move(held), {}, {}});
    queue->tasks.push_back(issued.run);
    if (issued.makes.comm == nullptr) continue;
    TUTTI_TRY_ASSIGN(Hold made, hold(issued.makes));
    queue->made.push_back(std::move(made));
  }
  return queues;
}

Status Group::run_tasks(const std::vector<TaskQueue>& queues) {
  Together together("a collective call", [&](std::size_t i, const std::stop_token&) -> Status {
    for (const Task& task : queues[i].tasks)
      TUTTI_TRY(task(*queues[i].hold->get()->communicator.load(std::memory_order_acquire)));
    return {};
  });
  TUTTI_TRY(together.run(queues.size()));
  tasks_.clear();
  return {};
}

namespace {

Status issue_alone(const char* function, Communicator& communicator, std::vector<Call> calls,
                   std::shared_ptr<Stream> stream) {
  std::vector<Batch> one;
  one.push_back({&communicator, std::move(calls), {std::move(stream)}, function});
  return issue(std::move(one));
}

Status run_or_hold(const char* function, tuttiComm* comm, tuttiStream_t stream,
                   const CheckCall& check) {
  TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, function));
  TUTTI_TRY_ASSIGN(const Call call, check(*communicator));
  TUTTI_TRY_ASSIGN(std::shared_ptr<Stream> on, stream_of(function, stream, call));
  Group& group = Group::current();
  if (Group::active()) {
    TUTTI_TRY_ASSIGN(const HandleRef handle, check_handle(comm, function));
    group.add(handle, call, std::move(on));
    return {};
  }
  if (on != nullptr) return issue_alone(function, *communicator, {call}, std::move(on));
  HeldCall one{communicator, call, nullptr};
  return call.on_device ? run_on_devices({&one, 1}) : run_operations({&one, 1});
}

Status run_or_hold_several(const char* function, tuttiComm* comm, tuttiStream_t stream,
                           const CheckParts& check) {
  TUTTI_TRY_ASSIGN(Communicator* const communicator, open_handle(comm, function));
  TUTTI_TRY_ASSIGN(Parts parts, check(*communicator));
  Group& group = Group::current();
  if (stream == nullptr && !parts.on_device && !Group::active())
    return run_parts(*communicator, parts, function);
  std::vector<Call> calls = parts.calls();
  TUTTI_TRY_ASSIGN(std::shared_ptr<Stream> on, stream_of(function, stream, calls[0]));
  if (Group::active()) {
    TUTTI_TRY_ASSIGN(const HandleRef handle, check_handle(comm, function));
    for (const Call& call : calls) group.add(handle, call, on);
    return {};
  }
  if (on != nullptr) return issue_alone(function, *communicator, std::move(calls), std::move(on));
  if (!parts.on_device) return run_parts(*communicator, parts, function);
  std::vector<HeldCall> held;
  for (const Call& call : calls) held.push_back({communicator, call, nullptr});
  return run_on_devices(held);
}

// In `guarded`: an error of a call in a group is the group's too.
Status tell_group(Status status) {
  if (!status && Group::active()) Group::current().fail(status.error());
  return status;
}

}  // namespace

tuttiResult_t submit(const char* function, tuttiComm* comm, tuttiStream_t stream,
                     const CheckCall& check) {
  return guarded(function, comm,
                 [&] { return tell_group(run_or_hold(function, comm, stream, check)); });
}

tuttiResult_t submit_several(const char* function, tuttiComm* comm, tuttiStream_t stream,
                             const CheckParts& check) {
  return guarded(function, comm,
                 [&] { return tell_group(run_or_hold_several(function, comm, stream, check)); });
}

}  // namespace tutti
