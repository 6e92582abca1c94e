// SPDX-License-Identifier: Apache-2.0
#include "execute.hpp"

#include <fmt/core.h>
#include <tutti/stream.h>

#include <atomic>
#include <barrier>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "order.hpp"
#include "values.hpp"

namespace tutti::programs {
namespace {

using Bytes = std::vector<std::byte>;

// The first error of a job. Any thread.
class Failure {
 public:
  void set(std::string text) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = std::move(text);
  }
  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;  // guarded by mutex_
};

// One rank's program; in a thread of its own.
class Rank {
 public:
  Rank(const Program& program, const ExecuteOptions& options, int rank, Failure& failure)
      : program_(program),
        options_(options),
        rank_(rank),
        failure_(failure),
        snapshots_(program.steps.size()) {
    const std::vector<std::size_t> counts = buffer_counts(program);
    for (std::size_t b = 0; b < counts.size(); ++b) {
      buffers_.emplace_back(counts[b] * bytes_of(program.buffers[b]));
      fill(b, static_cast<std::uint32_t>(b));
    }
    parts_.emplace_back(1);
    for (int r = 0; r < program.ranks; ++r) parts_[0][0].push_back(r);
  }

  void run(const tuttiUniqueId& id, std::barrier<>& joined) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.opTimeoutMs = options_.op_timeout_ms;
    comms_.push_back(nullptr);
    bool goes_on =
        told(tuttiCommInitRankConfig(&comms_[0], program_.ranks, id, rank_, &config), "joins");
    joined.arrive_and_wait();
    streams_.resize(static_cast<std::size_t>(program_.streams));
    events_.resize(kEvents);
    for (tuttiStream_t& stream : streams_) goes_on &= told(tuttiStreamCreate(&stream), "streams");
    for (tuttiEvent_t& event : events_) goes_on &= told(tuttiEventCreate(&event), "events");
    const std::vector<Step>& steps = program_.steps;
    for (std::size_t first = 0; goes_on && first < steps.size(); first = end_of_unit(steps, first))
      goes_on = unit(first, end_of_unit(steps, first));
    end(goes_on);
  }

  // Empty: as the model says.
  [[nodiscard]] std::string compare(const Contents& wanted) const {
    for (std::size_t b = 0; b < buffers_.size(); ++b)
      if (std::string found = differs(buffers_[b], own(wanted.buffers)[b], b); !found.empty())
        return fmt::format("buffer {} in the end, {}", b, found);
    for (const auto& [step, elements] : wanted.snapshots) {
      const auto b = static_cast<std::size_t>(program_.steps[step].out);
      const std::optional<Bytes>& found = snapshots_[step];
      if (!found) return fmt::format("step {} has not run", step);
      if (std::string what = differs(*found, own(elements), b); !what.empty())
        return fmt::format("buffer {} at step {}, {}", b, step, what);
    }
    return {};
  }

 private:
  template <class T>
  const T& own(const std::vector<T>& by_rank) const {
    return by_rank[static_cast<std::size_t>(rank_)];
  }
  [[nodiscard]] std::string differs(const Bytes& bytes, const Elements& wanted,
                                    std::size_t buffer) const {
    const tuttiDataType_t type = program_.buffers[buffer];
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (const std::uint64_t got = load(&bytes[i * bytes_of(type)], bytes_of(type));
          got != wanted[i])
        return fmt::format("{}, rank {}, element {}: {}, not {}", name_of(type), rank_, i,
                           text_of(type, got), text_of(type, wanted[i]));
    return {};
  }

  // False: the call failed, and the job ends.
  bool told(tuttiResult_t result, std::string_view what) {
    if (result == tuttiSuccess) return true;
    failure_.set(fmt::format("rank {} {}: {}: {}", rank_, what, tuttiGetErrorString(result),
                             tuttiGetLastError(nullptr)));
    return false;
  }

  void fill(std::size_t buffer, std::uint32_t salt) {
    const tuttiDataType_t type = program_.buffers[buffer];
    const std::size_t bytes = bytes_of(type), count = buffers_[buffer].size() / bytes;
    for (std::size_t i = 0; i < count; ++i)
      store(&buffers_[buffer][i * bytes], bytes, fill_value(type, salt, rank_, i));
  }

  void function(std::size_t number) {
    const Step& step = program_.steps[number];
    const auto buffer = static_cast<std::size_t>(step.out);
    if (step.kind == Kind::kFill) fill(buffer, step.salt);
    if (step.kind == Kind::kSnapshot) snapshots_[number] = buffers_[buffer];
    if (step.kind != Kind::kAdd) return;
    const tuttiDataType_t type = program_.buffers[buffer];
    for (std::size_t i = 0; i < buffers_[buffer].size(); i += bytes_of(type)) {
      std::byte* const at = &buffers_[buffer][i];
      store(at, bytes_of(type), plus_one(type, load(at, bytes_of(type))));
    }
  }
  struct Function {
    Rank* rank;
    std::size_t step;
    static void run(void* it) {
      const auto& [rank, step] = *static_cast<const Function*>(it);
      rank->function(step);
    }
  };

  bool unit(std::size_t first, std::size_t end) {
    const bool is_group = program_.steps[first].group != 0;
    if (is_group && !told(tuttiGroupStart(), "starts a group")) return false;
    bool well = true;
    for (std::size_t i = first; well && i < end; ++i) {
      well = told(issue(i), fmt::format("step {} ({})", i, name_of(program_.steps[i].kind)));
      if (options_.after_step) options_.after_step(rank_, i, buffers_);
    }
    return (!is_group || told(tuttiGroupEnd(), fmt::format("group of step {}", first))) && well;
  }

  tuttiResult_t issue(std::size_t number) {
    const Step& step = program_.steps[number];
    const int place = stream_of(program_, step, rank_);
    const tuttiStream_t stream =
        place == kNoStream ? nullptr : streams_[static_cast<std::size_t>(place)];
    if (is_function(step.kind)) {
      if (stream == nullptr) return function(number), tuttiSuccess;
      return tuttiLaunchHostFunc(stream, Function::run,
                                 &functions_.emplace_back(Function{this, number}));
    }
    if (!uses_comm(step.kind)) return order(step, stream);
    const auto comm = static_cast<std::size_t>(step.comm);
    const Part* const part = part_of(parts_[comm], rank_);
    if (step.kind == Kind::kSplit) return split(step, part);
    if (part == nullptr) return tuttiSuccess;
    if (step.kind == Kind::kDestroy) return tuttiCommDestroy(std::exchange(comms_[comm], nullptr));
    if (step.kind == Kind::kAlgorithm) {
      const tuttiResult_t result = tuttiCommSetAlgorithm(comms_[comm], kAlgorithms[step.salt]);
      return result == tuttiNotSupported ? tuttiSuccess : result;
    }
    return is_v_form(step.kind) || step.kind == Kind::kTransfer
               ? transfer(step, *part, comms_[comm], stream)
               : collective(step, *part, comms_[comm], stream);
  }

  tuttiResult_t order(const Step& step, tuttiStream_t stream) {
    const tuttiEvent_t event = events_[static_cast<std::size_t>(step.event)];
    const auto ended = [](tuttiResult_t result) {
      return result == tuttiInProgress ? tuttiSuccess : result;
    };
    switch (step.kind) {
      case Kind::kRecord:
        return tuttiEventRecord(event, stream);
      case Kind::kWait:
        return tuttiStreamWaitEvent(stream, event);
      case Kind::kSynchronizeEvent:
        return tuttiEventSynchronize(event);
      case Kind::kSynchronizeStream:
        return tuttiStreamSynchronize(stream);
      default:
        if (const tuttiResult_t result = ended(tuttiEventQuery(event)); result != tuttiSuccess)
          return result;
        return ended(tuttiStreamQuery(stream));
    }
  }

  tuttiResult_t split(const Step& step, const Part* part) {
    const auto made = static_cast<std::size_t>(step.made);
    const auto division = static_cast<Division>(step.peer);
    const Parts parent = parts_[static_cast<std::size_t>(step.comm)];
    if (parts_.size() <= made) parts_.resize(made + 1);
    if (comms_.size() <= made) comms_.resize(made + 1);
    parts_[made] = divide(parent, division);
    if (part == nullptr) return tuttiSuccess;
    const int me = place_in(*part, rank_);
    const int color = part_of(parts_[made], rank_) == nullptr ? TUTTI_SPLIT_NOCOLOR
                      : division == kOddEven                  ? me % 2
                                                              : 0;
    const int key = division == kReversed ? -me : me;
    return tuttiCommSplit(comms_[static_cast<std::size_t>(step.comm)], color, key, &comms_[made],
                          nullptr);
  }

  std::byte* at(const Span& span) {
    const auto buffer = static_cast<std::size_t>(span.buffer);
    return buffers_[buffer].data() + span.first * bytes_of(program_.buffers[buffer]);
  }

  tuttiResult_t collective(const Step& step, const Part& part, tuttiComm_t comm,
                           tuttiStream_t stream) {
    const Places places = places_of(program_, step, &part, rank_);
    const void* const in = places.reads ? at(places.input) : nullptr;
    void* const out = places.writes ? at(places.output) : nullptr;
    const int root = step.root % static_cast<int>(part.size());
    const tuttiDataType_t type = program_.buffers[static_cast<std::size_t>(step.out)];
    switch (step.kind) {
      case Kind::kAllReduce:
        return tuttiAllReduce(in, out, step.count, type, step.op, comm, stream);
      case Kind::kReduce:
        return tuttiReduce(in, out, step.count, type, step.op, root, comm, stream);
      case Kind::kBroadcast:
        return tuttiBroadcast(in, out, step.count, type, root, comm, stream);
      case Kind::kBcast:
        return tuttiBcast(out, step.count, type, root, comm, stream);
      case Kind::kAllGather:
        return tuttiAllGather(in, out, step.count, type, comm, stream);
      case Kind::kReduceScatter:
        return tuttiReduceScatter(in, out, step.count, type, step.op, comm, stream);
      case Kind::kAllToAll:
        return tuttiAlltoAll(in, out, step.count, type, comm, stream);
      case Kind::kGather:
        return tuttiGather(in, out, step.count, type, root, comm, stream);
      case Kind::kScatter:
        return tuttiScatter(in, out, step.count, type, root, comm, stream);
      default:
        return tuttiBarrier(comm, stream);
    }
  }

  tuttiResult_t transfer(const Step& step, const Part& part, tuttiComm_t comm,
                         tuttiStream_t stream) {
    const Places places = places_of(program_, step, &part, rank_);
    std::byte* const in = places.reads ? at(places.input) : nullptr;
    std::byte* const out = places.writes ? at(places.output) : nullptr;
    const int size = static_cast<int>(part.size()), me = place_in(part, rank_);
    const int root = step.root % size, peer = step.peer % size;
    const tuttiDataType_t type = program_.buffers[static_cast<std::size_t>(step.out)];
    if (step.kind == Kind::kTransfer) {
      tuttiResult_t result = tuttiSuccess;
      const bool to_itself = places.reads && places.writes;
      if (to_itself) result = tuttiGroupStart();
      if (result == tuttiSuccess && places.reads)
        result = tuttiSend(in, step.count, type, peer, comm, stream);
      if (result == tuttiSuccess && places.writes)
        result = tuttiRecv(out, step.count, type, root, comm, stream);
      if (!to_itself) return result;
      const tuttiResult_t ended = tuttiGroupEnd();
      return result == tuttiSuccess ? ended : result;
    }
    std::vector<std::size_t> sent, received, displacements;
    for (int other = 0; other < size; ++other) {
      sent.push_back(step.kind == Kind::kReduceScatterV ? v_count(step, other, me)
                                                        : v_count(step, me, other));
      received.push_back(v_count(step, other, me));
      displacements.push_back(v_displacement(step, other, size));
    }
    if (step.kind == Kind::kAllToAllV)
      return tuttiAlltoAllv(in, sent.data(), displacements.data(), out, received.data(),
                            displacements.data(), type, comm, stream);
    if (step.kind == Kind::kAllGatherV)
      return tuttiAllGatherv(in, v_count(step, me, me), out, received.data(), displacements.data(),
                             type, comm, stream);
    if (step.kind == Kind::kReduceScatterV)
      return tuttiReduceScatterv(in, sent.data(), displacements.data(), out, v_count(step, me, me),
                                 type, step.op, comm, stream);
    if (step.kind == Kind::kGatherV)
      return tuttiGatherv(in, v_count(step, me, root), out, received.data(), displacements.data(),
                          type, root, comm, stream);
    return tuttiScatterv(in, sent.data(), displacements.data(), out, v_count(step, root, me), type,
                         root, comm, stream);
  }

  // Frees everything. A rank that failed ends the others' calls.
  void end(bool well) {
    for (const tuttiStream_t stream : streams_)
      if (well) well = told(tuttiStreamSynchronize(stream), "synchronizes a stream at the end");
    for (const tuttiComm_t comm : comms_)
      well ? static_cast<void>(well = told(tuttiCommDestroy(comm), "destroys"))
           : static_cast<void>(tuttiCommAbort(comm));
    for (const tuttiStream_t stream : streams_) static_cast<void>(tuttiStreamDestroy(stream));
    for (const tuttiEvent_t event : events_) static_cast<void>(tuttiEventDestroy(event));
  }

  const Program& program_;
  const ExecuteOptions& options_;
  const int rank_;
  Failure& failure_;
  std::vector<Bytes> buffers_;
  // By step, and so that no stream's thread looks where another thread adds: never resized.
  std::vector<std::optional<Bytes>> snapshots_;
  std::vector<Parts> parts_;
  std::vector<tuttiComm_t> comms_;
  std::vector<tuttiStream_t> streams_;
  std::vector<tuttiEvent_t> events_;
  std::deque<Function> functions_;
};

}  // namespace

std::string check(const Program& program, const ExecuteOptions& options) {
  tuttiUniqueId id;
  if (tuttiGetUniqueId(&id) != tuttiSuccess) return tuttiGetLastError(nullptr);
  Failure failure;
  std::deque<Rank> ranks;
  for (int rank = 0; rank < program.ranks; ++rank)
    ranks.emplace_back(program, options, rank, failure);
  std::barrier<> joined(program.ranks);
  std::vector<std::thread> threads;
  for (Rank& rank : ranks) threads.emplace_back([&] { rank.run(id, joined); });
  for (std::thread& thread : threads) thread.join();
  if (std::string text = failure.text(); !text.empty()) return text;
  const Contents wanted = model(program);
  for (const Rank& rank : ranks)
    if (std::string text = rank.compare(wanted); !text.empty()) return text;
  return {};
}

}  // namespace tutti::programs
