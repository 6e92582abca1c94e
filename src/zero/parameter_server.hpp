// SPDX-License-Identifier: Apache-2.0
// A parameter server's roles and parts, and what they send each other. A worker is an Engine of one
// rank that does not update; a server is a ServerPart.
//
// One unit's gradients or parameters are on their way at a time, in one group of sends and receives
// between a communicator's servers and its workers. Synchronous ranks share one communicator.
// Asynchronous workers have one each with all servers, so that whoever is ready is answered.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/parameter_server.hpp"
#include "zero/engine.hpp"
#include "zero/server_part.hpp"

namespace tutti::zero {

// Adds the time of its life to Usage::stall_seconds.
class Stalled {
 public:
  explicit Stalled(Usage& usage) : usage_(usage) {}
  Stalled(const Stalled&) = delete;
  Stalled& operator=(const Stalled&) = delete;
  ~Stalled() {
    usage_.stall_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  Usage& usage_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Who is who. Pure.
struct Roles {
  int workers = 1, servers = 1;
  bool colocated = false;
  int rank = 0;

  [[nodiscard]] bool works() const { return rank < workers; }
  [[nodiscard]] bool serves() const { return server() >= 0 && server() < servers; }
  [[nodiscard]] int server() const { return colocated ? rank : rank - workers; }  // which one
  [[nodiscard]] int rank_of_server(int server) const {
    return colocated ? server : workers + server;
  }
};
// Throws std::invalid_argument for servers that do not fit so many ranks, and for a rank that is
// none.
[[nodiscard]] Roles roles_of(const Servers& servers, int ranks, int rank);

struct TUTTI_ZERO_HIDDEN ParameterServer::Implementation {
  Implementation(Communicator& comm, std::span<const Unit> given, const Config& config,
                 const Servers& servers);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  void check_usable() const;
  void check_mode(bool asynchronous, const char* function, const char* instead) const;
  // What all ranks but servers may do only at rest.
  void check_at_rest(const char* function) const;
  // Runs a part of a collective call. If it throws anything but std::invalid_argument or Refused,
  // this can only be destroyed, and nobody waits for this rank; of Agreed all ranks know.
  template <typename Function>
  auto collectively(Function&& function);
  void give_up() noexcept;

  // A communicator between servers and workers, and who is who in it.
  struct Way {
    Communicator comm;
    int first_server = 0;  // its servers are consecutive
    int first_worker = 0, workers = 1;
  };
  // This rank's part of sending all workers' gradients of a unit to the servers, and of adding them
  // up there; and of sending the servers' parameters to the workers.
  void collect(const Way& way, int unit);
  void spread(const Way& way, int unit);
  void collect_all(const Way& way);
  void spread_all(const Way& way);
  // What server 0 has reaches all others of the way.
  void share(const Way& way, std::span<std::byte> bytes);
  void share(const Way& way, Answer& answer);
  // The same after a call of the servers alone, which may have failed: throws on all ranks then.
  void settle(Answer& answer);
  void send(const Way& way, const void* data, std::size_t bytes, int rank, std::uint64_t& counted);

  [[nodiscard]] std::uint64_t library_bytes() const;

  float step(const Optimizer& optimizer);
  void read(int unit, int parameter, std::span<float> values);
  void begin_with_parameters();

  void end_serving();
  float receive_parameters();
  float push();
  void finish();
  void serve(const std::function<Optimizer(std::uint64_t)>& optimizer_of);

  Engine::Implementation& own_worker() { return *worker->it_; }

  const Config config;
  const Servers servers;
  const Roles roles;
  std::vector<Unit> units;
  Layout layout;
  Way all;                // every rank
  std::vector<Way> ways;  // asynchronous: a worker's own, or on a server one for each worker
  std::unique_ptr<Engine> worker;
  std::unique_ptr<ServerPart> server;
  Block wire;  // a worker's gradients of a unit in a 16-bit reduce type
  Usage usage;
  Memory memory;
  std::vector<Arrival> arrivals;
  // Asynchronous: parameters were filled or loaded, and nobody has served or finished since.
  bool ready = false;
  std::exception_ptr failure;
  bool end_is_agreed = false;
  int exceptions = 0;  // in flight when this was made
};

template <typename Function>
auto ParameterServer::Implementation::collectively(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::invalid_argument&) {
    throw;  // found before anything was done
  } catch (const Refused&) {
    throw;
  } catch (const Agreed&) {
    failure = std::current_exception();
    end_is_agreed = true;
    if (server) server->links.agree_on_end();
    if (worker) own_worker().links.agree_on_end();
    throw;
  } catch (...) {
    failure = std::current_exception();
    give_up();
    throw;
  }
}

}  // namespace tutti::zero
