// The roots of this process and their threads.
//
// Threads are joined, never detached: by the next id that is made, by whoever waits for roots, or
// by the static destructor at exit, so that no thread runs in memory that is being torn down. A
// forked child starts with an empty registry and leaves its parent's objects alone.

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "base/host.hpp"
#include "runtime/control/interfaces.hpp"
#include "runtime/control/root.hpp"
#include "runtime/control/tcp_socket.hpp"
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

static_assert(kMaxLocalNameBytes == kMaxIdLocalBytes);

namespace {

// Where nobody chose an interface, none is needed.
Result<std::optional<Listener>> listen_for_hosts(const Log& log, std::string_view interfaces) {
  TUTTI_TRY_ASSIGN(const std::optional<TcpAddress> address, choose_interface(interfaces));
  if (!address) return std::nullopt;
  Result<Listener> listener = listen_tcp(*address);
  if (listener) return *std::move(listener);
  if (!interfaces.empty()) return tl::unexpected(std::move(listener).error());
  TUTTI_LOG(log, LogLevel::kInfo, "ranks of other hosts cannot join: {}", listener.error().message);
  return std::nullopt;
}

}  // namespace

Result<UniqueId> start_root(const Log& log, std::string_view interfaces, ListenKind kind) {
  if (::sodium_init() < 0) return make_error(Code::kSystemError, "no source of random bytes");
  IdContent content{.key = make_session_key(), .locality = host_identity("")};
  std::vector<Listener> listeners;
  TUTTI_TRY_ASSIGN(Listener local, listen_local(kind));
  content.local = local.address();
  listeners.push_back(std::move(local));
  TUTTI_TRY_ASSIGN(std::optional<Listener> tcp, listen_for_hosts(log, interfaces));
  if (tcp) {
    content.tcp = tcp->address();
    listeners.push_back(*std::move(tcp));
  }
  TUTTI_TRY_ASSIGN(const UniqueId id, encode_id(content));
  TUTTI_TRY_ASSIGN(std::shared_ptr<Root> root,
                   Root::create(content.key, log, std::move(listeners)));
  TUTTI_TRY(registry().start(content.key.session, std::move(root)));
  return id;
}

Result<std::vector<TcpAddress>> find_agreed(const std::string& tcp, std::string_view interfaces) {
  const std::optional<HostPort> place = split_tcp(tcp);
  if (!place) return make_error(Code::kInternalError, fmt::format("malformed address '{}'", tcp));
  TUTTI_TRY_ASSIGN(std::vector<TcpAddress> addresses, resolve(*place));
  const bool named = !parse_ip(place->host, place->port) && place->host != "localhost";
  if (!named) return addresses;
  if (!std::ranges::all_of(addresses, &TcpAddress::loopback)) {
    std::erase_if(addresses, [](const TcpAddress& address) { return address.loopback(); });
    return addresses;
  }
  TUTTI_TRY_ASSIGN(std::optional<TcpAddress> own, choose_interface(interfaces));
  if (!own) return addresses;
  own->port = place->port;
  return std::vector{*own};
}

Status start_agreed_root(const IdContent& content, const Log& log, std::string_view interfaces) {
  if (::sodium_init() < 0) return make_error(Code::kSystemError, "no source of random bytes");
  TUTTI_TRY_ASSIGN(const std::vector<TcpAddress> addresses, find_agreed(content.tcp, interfaces));
  std::vector<Listener> listeners;
  for (const TcpAddress& address : addresses) {
    Result<Listener> listener = listen_tcp(address);
    const bool last = address == addresses.back();
    if (listener) {
      listeners.push_back(*std::move(listener));
    } else if (listener.error().code != Code::kInvalidArgument || (last && listeners.empty())) {
      // A port that is taken at one of them would lead some ranks to somebody else.
      return tl::unexpected(std::move(listener).error());
    }
  }
  TUTTI_TRY_ASSIGN(std::shared_ptr<Root> root,
                   Root::create(content.key, log, std::move(listeners)));
  return registry().start(content.key.session, std::move(root));
}

void retire_root(const SessionId& session) { registry().retire(session); }

void call_off(const SessionId& session, Rank rank, std::int32_t ranks, const Error& error) {
  registry().call_off(session, rank, ranks, error);
}

bool wait_for_roots(Deadline deadline) { return registry().wait(deadline); }

}  // namespace tutti::control
