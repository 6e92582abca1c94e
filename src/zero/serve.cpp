// SPDX-License-Identifier: Apache-2.0
// The asynchronous calls. A worker's request goes to server 0, which decides what is next
// (arrival_order.hpp) and tells the other servers; then all of them answer that worker.
//
// A worker's turn:  request -> server 0;  gradients -> all servers;  an Answer <- server 0;
// parameters <- all servers. At the end, instead of gradients: the list of all updates.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "zero/arrival_order.hpp"
#include "zero/parameter_server.hpp"

namespace tutti::zero {
namespace {

enum Request : std::uint32_t { kNoRequest, kPush, kFinish };

// The requests that workers send server 0. One is awaited of each worker that has parameters.
class Requests {
 public:
  struct Arrived {
    int worker;
    std::uint32_t request;
  };

  Requests(std::vector<Communicator*> ways, int worker_rank)
      : ways_(std::move(ways)),
        worker_rank_(worker_rank),
        received_(ways_.size()),
        streams_(ways_.size()) {}

  void await(int worker) {
    const auto index = static_cast<std::size_t>(worker);
    received_[index] = kNoRequest;
    check(tuttiRecv(&received_[index], sizeof received_[index], tuttiUint8, worker_rank_,
                    ways_[index]->get(), streams_[index].get()),
          ways_[index]->get());
    streams_[index].launch([this, worker, index] {
      const std::lock_guard lock(mutex_);
      arrived_.push_back({worker, received_[index]});
      changed_.notify_one();
    });
  }

  // The next one; throws if a worker's communicator fails before any comes.
  Arrived next() {
    constexpr std::chrono::milliseconds kLook{100};
    for (;;) {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kLook, [this] { return !arrived_.empty(); })) return take();
      lock.unlock();
      check_ways();
    }
  }
  // One that is there already.
  std::optional<Arrived> poll() {
    const std::lock_guard lock(mutex_);
    if (arrived_.empty()) return std::nullopt;
    return take();
  }
  void check_ways() const {
    for (const Communicator* const way : ways_) check(way->state(), way->get());
  }

 private:
  Arrived take() {
    const Arrived first = arrived_.front();
    arrived_.pop_front();
    return first;
  }

  const std::vector<Communicator*> ways_;
  const int worker_rank_;
  std::vector<std::uint32_t> received_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Arrived> arrived_;  // guarded by mutex_
  std::vector<Stream> streams_;  // last: they wait for what uses the others
};

// A decision as it is sent to the other servers.
std::uint64_t packed(const ArrivalOrder::Decision& decision) {
  return static_cast<std::uint64_t>(decision.worker) << 8 |
         static_cast<std::uint64_t>(decision.act);
}
ArrivalOrder::Decision unpacked(std::uint64_t word) {
  return {static_cast<ArrivalOrder::Act>(word & 0xFF), static_cast<int>(word >> 8)};
}

}  // namespace

// Server 0's side of serve(): decides, and listens to the workers.
class TUTTI_ZERO_HIDDEN ParameterServer::Decider {
 public:
  Decider(const Implementation& it, std::vector<Communicator*> ways)
      : order(it.roles.workers, it.servers.staleness, it.servers.arrivals),
        requests_(std::move(ways), it.roles.servers) {}

  // Blocks until there is something to do. What is wrong with the script is in `answer` then.
  ArrivalOrder::Decision next(Answer& answer) {
    for (;;) {
      while (const auto arrived = requests_.poll()) note(*arrived);
      try {
        const ArrivalOrder::Decision decision = order.next();
        if (decision.act != ArrivalOrder::Act::kWait) return decision;
      } catch (const std::runtime_error& error) {
        answer.fail(error.what());
        order.fail();
        continue;
      }
      note(requests_.next());
    }
  }
  void await(int worker) { requests_.await(worker); }

  ArrivalOrder order;

 private:
  void note(const Requests::Arrived& arrived) {
    if (arrived.request == kPush) return order.pushed(arrived.worker);
    if (arrived.request == kFinish) return order.finished(arrived.worker);
    requests_.check_ways();
    throw std::runtime_error("worker " + std::to_string(arrived.worker) + " sent no request");
  }

  Requests requests_;
};

void ParameterServer::Implementation::serve(
    const std::function<Optimizer(std::uint64_t)>& optimizer_of) {
  check_mode(true, "serve", "step()");
  if (!server) throw std::invalid_argument("serve() of a worker; call push() and finish()");
  if (!std::exchange(ready, false))
    throw std::invalid_argument("serve() before initialize() or load()");
  collectively([&] {
    std::vector<Communicator*> comms;
    for (Way& way : ways) comms.push_back(&way.comm);
    std::optional<Decider> decider;
    if (roles.server() == 0) decider.emplace(*this, comms);
    std::vector<Answer> answers(ways.size());  // to each worker, when it is answered
    Answer failed;
    try {
      for (std::uint64_t updates = 0;;) {
        const std::uint64_t word = decider ? packed(decider->next(failed)) : 0;
        const ArrivalOrder::Decision decision = unpacked(server->links.from_first(word));
        if (decision.act == ArrivalOrder::Act::kEnd) break;
        const auto index = static_cast<std::size_t>(decision.worker);
        const Way& way = ways[index];
        switch (decision.act) {
          case ArrivalOrder::Act::kGive:
            share(way, answers[index]);
            spread_all(way);
            if (decider) decider->await(decision.worker);
            break;
          case ArrivalOrder::Act::kApply:
            collect_all(way);
            answers[index] = server->update(optimizer_of(updates++));
            if (answers[index].failed == 0) break;
            failed = answers[index];
            if (decider) decider->order.fail();
            break;
          case ArrivalOrder::Act::kDrop:
            collect_all(way);
            share(way, failed);
            break;
          case ArrivalOrder::Act::kRefuse:
            share(way, failed);
            break;
          case ArrivalOrder::Act::kWait:
          case ArrivalOrder::Act::kEnd:
            break;
        }
      }
      if (failed.failed != 0) throw Agreed(failed.text);
      if (decider) arrivals = decider->order.arrivals();
      end_serving();
    } catch (const Agreed&) {
      throw;
    } catch (...) {
      failure = std::current_exception();
      give_up();  // before the decider waits for what is on its way
      throw;
    }
  });
}

// All servers and workers learn of all updates, and the workers get the last parameters.
void ParameterServer::Implementation::end_serving() {
  Answer answer;
  answer.value = server->links.from_first(arrivals.size());
  arrivals.resize(answer.value);
  for (const Way& way : ways) {
    share(way, answer);
    share(way, std::as_writable_bytes(std::span(arrivals)));
    spread_all(way);
  }
}

float ParameterServer::Implementation::receive_parameters() {
  Answer answer;
  share(ways.front(), answer);
  if (answer.failed != 0) throw Agreed(answer.text);
  spread_all(ways.front());
  return static_cast<float>(answer.norm);
}

float ParameterServer::Implementation::push() {
  check_mode(true, "push", "step()");
  if (!worker) throw std::invalid_argument("push() of a server; call serve()");
  if (!ready)
    throw std::invalid_argument("push() before initialize() or load(), or after finish()");
  own_worker().check_unused("push");
  return collectively([&] {
    own_worker().sums.finish();
    const Stalled stalled(usage);
    const std::uint32_t request = kPush;
    send(ways.front(), &request, sizeof request, 0, usage.other_bytes);
    collect_all(ways.front());
    own_worker().sums.begin_step();
    return receive_parameters();
  });
}

void ParameterServer::Implementation::finish() {
  check_mode(true, "finish", "step()");
  if (!worker) throw std::invalid_argument("finish() of a server; call serve()");
  own_worker().check_at_rest("finish");
  if (!std::exchange(ready, false))
    throw std::invalid_argument("finish() before initialize() or load(), or twice");
  collectively([&] {
    const Way& way = ways.front();
    const std::uint32_t request = kFinish;
    send(way, &request, sizeof request, 0, usage.other_bytes);
    Answer answer;
    share(way, answer);
    if (answer.failed != 0) throw Agreed(answer.text);
    arrivals.resize(answer.value);
    share(way, std::as_writable_bytes(std::span(arrivals)));
    spread_all(way);
  });
}

}  // namespace tutti::zero
