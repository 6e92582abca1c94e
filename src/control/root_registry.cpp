// SPDX-License-Identifier: Apache-2.0
// The server of this process's roots, and its thread.
//
// A thread is started for the first root and ends with the last, so there is one at most, beside
// those that have ended and wait to be joined: by the next id that is made, by whoever waits for
// roots, or by the static destructor at exit, so that no thread runs in memory that is being torn
// down. A forked child starts with an empty registry and leaves its parent's objects alone.

#include <fmt/core.h>
#include <sodium.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <list>
#include <mutex>
#include <thread>

#include "base/host.hpp"
#include "control/interfaces.hpp"
#include "control/root_server.hpp"
#include "control/tcp_socket.hpp"
#include "control/thread.hpp"

namespace tutti::control {
namespace {

struct Entry {
  std::unique_ptr<RootServer> server;  // null: the thread has ended
  std::thread thread;
  int visitors = 0;  // that wait for the thread
};

// All fields are guarded by process_registry_mutex().
class Registry {
 public:
  using Work = std::function<void(RootServer&)>;

  Registry() = default;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry();

  // Runs `work` on the thread of the roots, which is started if there is none, and waits for it.
  [[nodiscard]] Status visit(const Work& work);
  // The same if there is one, and does not wait.
  void tell(Work work);
  [[nodiscard]] bool wait(Deadline deadline);

 private:
  void forget_parents();
  [[nodiscard]] std::list<Entry> take_over();  // what has ended, to be joined without the mutex
  [[nodiscard]] Result<Entry*> running();

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
    if (!entry->server) ended.splice(ended.end(), *entries_, entry);
    entry = next;
  }
  return ended;
}

Result<Entry*> Registry::running() {
  for (Entry& entry : *entries_)
    if (entry.server) return &entry;
  TUTTI_TRY_ASSIGN(std::unique_ptr<RootServer> server, RootServer::create());
  Entry& entry = entries_->emplace_back();
  entry.server = std::move(server);
  Result<std::thread> thread = spawn_thread("tutti-root", [this, &entry] {
    std::unique_ptr<RootServer> last;  // outlives its run()
    // The last look and the end are one step: whoever visits finds a thread that serves, or none.
    entry.server->run([&] {
      const std::lock_guard lock(process_registry_mutex());
      if (entry.visitors > 0) return false;
      last = std::move(entry.server);
      ended_.notify_all();
      return true;
    });
  });
  if (!thread) {
    entries_->pop_back();
    return tl::unexpected(std::move(thread).error());
  }
  entry.thread = *std::move(thread);
  return &entry;
}

Status Registry::visit(const Work& work) {
  std::list<Entry> ended;
  std::promise<void> done;
  Result<Entry*> entry;
  {
    const std::lock_guard lock(process_registry_mutex());
    forget_parents();
    ended = take_over();
    entry = running();
    if (entry) {
      ++(*entry)->visitors;
      RootServer* const server = (*entry)->server.get();
      server->post([&work, &done, server] {
        try {
          work(*server);
          done.set_value();
        } catch (...) {
          done.set_exception(std::current_exception());
        }
      });
    }
  }
  join_all(std::move(ended));
  if (!entry) return tl::unexpected(std::move(entry).error());
  std::future<void> outcome = done.get_future();
  outcome.wait();
  {
    const std::lock_guard lock(process_registry_mutex());
    --(*entry)->visitors;
    (*entry)->server->post([] {});  // it may end now
  }
  outcome.get();
  return {};
}

void Registry::tell(Work work) {
  const std::lock_guard lock(process_registry_mutex());
  forget_parents();
  for (Entry& entry : *entries_)
    if (RootServer* const server = entry.server.get())
      server->post([server, work] { work(*server); });
}

bool Registry::wait(Deadline deadline) {
  std::list<Entry> ended;
  bool none_left = false;
  {
    std::unique_lock lock(process_registry_mutex());
    forget_parents();
    const auto all_over = [&] {
      return std::ranges::all_of(*entries_, [](const Entry& entry) { return !entry.server; });
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
  {
    const std::lock_guard lock(process_registry_mutex());
    forget_parents();
    for (Entry& entry : *entries_)
      if (RootServer* const server = entry.server.get()) server->post([server] { server->stop(); });
  }
  // Entries stay where they are while their threads run: each thread writes into its own.
  for (Entry& entry : *entries_) entry.thread.join();
}

Registry& registry() {
  static_cast<void>(process_registry_mutex());  // outlives the registry
  static Registry instance;
  return instance;
}

// Serves `content` behind the doorways, whose addresses `settle` writes into it before. False: some
// of them need listeners.
Result<bool> serve_behind(std::vector<Doorway>& doorways, const IdContent& content,
                          const RootSetup& setup, const std::function<Status()>& settle) {
  Result<bool> served = false;
  const Status visited = registry().visit([&](RootServer& server) {
    served = server.open(doorways, setup.log);
    if (!served || !*served) return;
    if (const Status settled = settle(); !settled) {
      served = tl::unexpected(settled.error());
      return;
    }
    server.serve(content.key, setup.log, doorways, setup.idle_ns);
  });
  if (!visited) return tl::unexpected(visited.error());
  return served;
}

}  // namespace

static_assert(kMaxLocalNameBytes == kMaxIdLocalBytes);

Result<UniqueId> start_root(const RootSetup& setup) {
  if (::sodium_init() < 0)
    return make_error(Code::kSystemError, "the system provides no random bytes");
  IdContent content{.key = make_session_key(), .locality = host_identity("")};
  TUTTI_TRY_ASSIGN(const std::optional<TcpAddress> at, choose_interface(setup.interfaces));
  // The locality names the network namespace: another one has other sockets at equal addresses.
  std::vector<Doorway> doorways(at ? 2 : 1);
  doorways[0].place = fmt::format("{:x} unix {}", content.locality, static_cast<int>(setup.kind));
  if (at) doorways[1].place = fmt::format("{:x} {}", content.locality, at->ip_text());
  UniqueId id;
  const auto settle = [&]() -> Status {
    content.local = doorways[0].address;
    if (doorways.size() > 1) content.tcp = doorways[1].address;
    TUTTI_TRY_ASSIGN(id, encode_id(content));
    return {};
  };
  for (;;) {
    TUTTI_TRY_ASSIGN(const bool served, serve_behind(doorways, content, setup, settle));
    if (served) return id;
    // Here and not on the roots' thread: sockets are of the network namespace of this one.
    TUTTI_TRY_ASSIGN(Listener local, listen_local(setup.kind));
    doorways[0].listener.emplace(std::move(local));
    if (doorways.size() == 1) continue;
    Result<Listener> tcp = listen_tcp(*at);
    if (tcp) {
      doorways[1].listener.emplace(*std::move(tcp));
    } else if (!setup.interfaces.empty()) {
      return tl::unexpected(std::move(tcp).error());
    } else {  // where nobody chose an interface, none is needed
      TUTTI_LOG(setup.log, LogLevel::kInfo, "ranks of other hosts cannot join: {}",
                tcp.error().message);
      doorways.pop_back();
    }
  }
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

Status start_agreed_root(const IdContent& content, const RootSetup& setup) {
  if (::sodium_init() < 0)
    return make_error(Code::kSystemError, "the system provides no random bytes");
  // It is the name of this host: where it is not known, no other rank has failed.
  const auto own = [](Error error) {
    if (error.code == Code::kRemoteError) error.code = Code::kSystemError;
    return error;
  };
  TUTTI_TRY_ASSIGN(const std::vector<TcpAddress> addresses,
                   find_agreed(content.tcp, setup.interfaces).map_error(own));
  std::vector<Doorway> doorways;
  for (const TcpAddress& address : addresses) {
    Result<Listener> listener = listen_tcp(address);
    const bool last = address == addresses.back();
    if (listener) {
      // Nobody else has that port, and so no other root this door.
      doorways.push_back({.place = fmt::format("{:x} {}", host_identity(""), address.text())});
      doorways.back().listener.emplace(*std::move(listener));
    } else if (listener.error().code != Code::kInvalidArgument || (last && doorways.empty())) {
      // A port that is taken at one of them would lead some ranks to somebody else.
      return tl::unexpected(std::move(listener).error());
    }
  }
  TUTTI_TRY(serve_behind(doorways, content, setup, [] { return Status(); }));
  return {};
}

void retire_root(const SessionId& session) {
  registry().tell([session](RootServer& server) {
    if (Root* const root = server.find(session)) root->stop();
  });
}

void call_off(const SessionId& session, Rank rank, std::int32_t ranks, const Error& error) {
  registry().tell([=](RootServer& server) {
    if (Root* const root = server.find(session)) root->call_off(rank, ranks, error);
  });
}

void abandon_root(const SessionId& session, Rank rank, std::int32_t ranks, const Error& error) {
  call_off(session, rank, ranks, error);
  retire_root(session);
}

bool wait_for_roots(Deadline deadline) { return registry().wait(deadline); }

}  // namespace tutti::control
