// The roots of this process and their threads.
//
// Threads are joined, never detached: by the next id that is made, by whoever waits for roots, or
// by the static destructor at exit, so that no thread runs in memory that is being torn down. A
// forked child starts with an empty registry and leaves its parent's objects alone.

#include <sodium.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "runtime/control/root.hpp"
#include "runtime/control/thread.hpp"

namespace tutti::control {
namespace {

struct Entry {
  SessionId session{};
  std::shared_ptr<Root> root;
  std::thread thread;
  bool over = false;
};

// All fields are guarded by process_registry_mutex().
class Registry {
 public:
  Registry() = default;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry();

  [[nodiscard]] Status start(const SessionId& session, std::shared_ptr<Root> root);
  void retire(const SessionId& session);
  void call_off(const SessionId& session, Rank rank, std::int32_t ranks, const Error& error);
  [[nodiscard]] bool wait(Deadline deadline);

 private:
  void forget_parents();
  [[nodiscard]] std::list<Entry> take_over();  // what has ended, to be joined without the mutex

  std::unique_ptr<std::list<Entry>> entries_ = std::make_unique<std::list<Entry>>();
  std::condition_variable ended_;
  std::uint64_t generation_ = fork_generation();
};

void join_all(std::list<Entry> entries) {
  for (Entry& entry : entries) entry.thread.join();
}

void Registry::forget_parents() {
  if (generation_ == fork_generation()) return;
  // Threads of the parent: their objects here must be neither joined nor destroyed.
  static_cast<void>(entries_.release());
  entries_ = std::make_unique<std::list<Entry>>();
  generation_ = fork_generation();
}

std::list<Entry> Registry::take_over() {
  std::list<Entry> ended;
  for (auto entry = entries_->begin(); entry != entries_->end();) {
    const auto next = std::next(entry);
    if (entry->over) ended.splice(ended.end(), *entries_, entry);
    entry = next;
  }
  return ended;
}

Status Registry::start(const SessionId& session, std::shared_ptr<Root> root) {
  std::list<Entry> ended;
  Status started;
  {
    const std::lock_guard lock(process_registry_mutex());
    forget_parents();
    ended = take_over();
    Entry& entry = entries_->emplace_back();
    entry.session = session;
    entry.root = root;
    Result<std::thread> thread = spawn_thread("tutti-root", [this, &entry, running = root.get()] {
      running->run();
      const std::lock_guard done(process_registry_mutex());
      entry.root.reset();  // closes its descriptors
      entry.over = true;
      ended_.notify_all();
    });
    if (thread) {
      entry.thread = *std::move(thread);
    } else {
      started = tl::unexpected(std::move(thread).error());
      entries_->pop_back();
    }
    root.reset();  // the entry's thread must be the last owner
  }
  join_all(std::move(ended));
  return started;
}

void Registry::retire(const SessionId& session) {
  const std::lock_guard lock(process_registry_mutex());
  forget_parents();
  for (Entry& entry : *entries_) {
    if (entry.session == session && entry.root) entry.root->stop();
  }
}

void Registry::call_off(const SessionId& session, Rank rank, std::int32_t ranks,
                        const Error& error) {
  const std::lock_guard lock(process_registry_mutex());
  forget_parents();
  for (Entry& entry : *entries_) {
    if (entry.session == session && entry.root) entry.root->call_off(rank, ranks, error);
  }
}

bool Registry::wait(Deadline deadline) {
  std::list<Entry> ended;
  bool none_left = false;
  {
    std::unique_lock lock(process_registry_mutex());
    forget_parents();
    const auto all_over = [&] {
      return std::ranges::all_of(*entries_, [](const Entry& entry) { return entry.over; });
    };
    const auto until =
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.at_ns));
    none_left = ended_.wait_until(lock, until, all_over);
    ended = take_over();
  }
  join_all(std::move(ended));
  return none_left;
}

Registry::~Registry() {
  std::list<Entry> all;
  {
    const std::lock_guard lock(process_registry_mutex());
    forget_parents();
    for (Entry& entry : *entries_) {
      if (entry.root) entry.root->stop();
    }
  }
  // Entries stay where they are while their threads run: each thread writes into its own.
  for (Entry& entry : *entries_) entry.thread.join();
}

Registry& registry() {
  static_cast<void>(process_registry_mutex());  // outlives the registry
  static Registry instance;
  return instance;
}

}  // namespace

Result<UniqueId> start_root(const Log& log, ListenKind kind) {
  if (::sodium_init() < 0) return make_error(Code::kSystemError, "no source of random bytes");
  const SessionKey key = make_session_key();
  TUTTI_TRY_ASSIGN(std::shared_ptr<Root> root, Root::create(key, log, kind));
  const IdContent content{.key = key, .address = root->address()};
  TUTTI_TRY_ASSIGN(const UniqueId id, encode_id(content));
  TUTTI_TRY(registry().start(key.session, std::move(root)));
  return id;
}

void retire_root(const SessionId& session) { registry().retire(session); }

void call_off(const SessionId& session, Rank rank, std::int32_t ranks, const Error& error) {
  registry().call_off(session, rank, ranks, error);
}

bool wait_for_roots(Deadline deadline) { return registry().wait(deadline); }

}  // namespace tutti::control
