// SPDX-License-Identifier: Apache-2.0
#include "device/executor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/signature.hpp"

namespace tutti::device {
namespace {

// Collects arrays, one behind the other, that go to device memory in one piece.
class Image {
 public:
  // Returns the offset of the copy of `values` from the image's start.
  template <typename T>
  std::uint64_t add(std::span<const T> values) {
    const std::uint64_t at = room(values.size_bytes());
    if (!values.empty())
      std::memcpy(bytes_.data() + at, static_cast<const void*>(values.data()), values.size_bytes());
    return at;
  }
  // Zeroes.
  std::uint64_t room(std::uint64_t size) {
    const std::uint64_t at = (bytes_.size() + kAligned - 1) / kAligned * kAligned;
    bytes_.resize(at + size);
    return at;
  }
  template <typename T>
  void put(std::uint64_t at, const T& value) {
    std::memcpy(bytes_.data() + at, static_cast<const void*>(&value), sizeof value);
  }
  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }
  [[nodiscard]] const std::byte* data() const { return bytes_.data(); }

 private:
  static constexpr std::uint64_t kAligned = 64;
  std::vector<std::byte> bytes_;
};

// Packets order their own payload alone: all that a replica does is one block's then, whose
// barriers order the rest (packets.hpp).
std::uint32_t blocks_for(const Plan& plan, Messages messages, std::uint32_t blocks_each) {
  const auto lanes = static_cast<std::uint32_t>(plan.lanes.size());
  if (in_packets(messages) && lanes > plan.options.replicas) return 1;
  return std::clamp(lanes, 1U, blocks_each);
}

}  // namespace

Executor::Executor(std::shared_ptr<Job> job, Rank rank, std::uint64_t timeout_ns)
    : job_(std::move(job)),
      rank_(rank),
      timeout_ns_(timeout_ns),
      choice_({.ranks = job_->ranks(),
               .blocks_each = job_->blocks_each(),
               .arena_bytes = job_->arena_bytes(),
               .whole_lines = job_->whole_lines(),
               .one_device = job_->one_device()}) {}

Status Executor::place(Bound& bound, const Program& program) {
  const Plan& plan = bound.plan;
  std::vector<Connection> sends, recvs;
  for (const ConnectionSpec& spec : plan.sends) {
    TUTTI_TRY_ASSIGN(const Connection connection, job_->open(spec, bound.messages, true));
    sends.push_back(connection);
  }
  for (const ConnectionSpec& spec : plan.recvs) {
    TUTTI_TRY_ASSIGN(const Connection connection, job_->open(spec, bound.messages, false));
    recvs.push_back(connection);
  }
  std::vector<RankWords*> remotes;
  std::vector<Rank> send_peers, recv_peers;
  for (const ConnectionSpec& spec : plan.sends) send_peers.push_back(spec.destination);
  for (const ConnectionSpec& spec : plan.recvs) recv_peers.push_back(spec.source);
  for (const Rank peer : plan.remotes) remotes.push_back(job_->words_of(peer));

  Image image;
  const ProgramView from = program.view();
  const std::uint64_t lanes = image.add(std::span(program.lanes));
  const std::uint64_t loops = image.add(std::span(program.loops));
  const std::uint64_t steps = image.add(std::span(program.steps));
  const std::uint64_t operands = image.add(std::span(program.operands));
  const std::uint64_t waits = image.add(std::span(program.waits));
  const std::uint64_t sends_at = image.add(std::span<const Connection>(sends));
  const std::uint64_t recvs_at = image.add(std::span<const Connection>(recvs));
  const std::uint64_t remotes_at = image.add(std::span<RankWords* const>(remotes));
  const std::uint64_t send_peers_at = image.add(std::span<const Rank>(send_peers));
  const std::uint64_t recv_peers_at = image.add(std::span<const Rank>(recv_peers));
  const std::uint64_t states = image.room(program.lanes.size() * sizeof(LaneState));
  const std::uint64_t fired = image.room(program.lanes.size() * sizeof(Word));
  const std::uint64_t task_at = image.room(sizeof(Task));
  const std::uint64_t uploaded = image.size();
  // A room holds a chunk of a slice, which is at most a message.
  const std::uint64_t rooms = std::uint64_t{from.scratch_rooms} * from.scratch_versions;
  const std::uint64_t scratch = image.room(0);
  const std::uint64_t all =
      scratch + (rooms == 0 ? 0 : rooms * plan.message_bytes / plan.shape.max_message_chunks);
  const int device = job_->device_of(rank_);
  TUTTI_TRY_ASSIGN(std::byte* const memory, job_->room_for_plan(rank_, all));
  const auto at = [&]<typename T>(std::uint64_t offset, T*& pointer) {
    pointer = reinterpret_cast<T*>(memory + offset);
  };
  Task& task = bound.task;
  task.program = from;
  at(lanes, task.program.lanes);
  at(loops, task.program.loops);
  at(steps, task.program.steps);
  at(operands, task.program.operands);
  at(waits, task.program.waits);
  at(sends_at, task.sends);
  at(recvs_at, task.recvs);
  at(remotes_at, task.remotes);
  at(send_peers_at, task.send_peers);
  at(recv_peers_at, task.recv_peers);
  at(states, task.lanes);
  at(fired, task.fired);
  at(scratch, task.scratch);
  at(task_at, task.bound);
  image.put(task_at, task);
  return job_->platform().upload(device, memory, image.data(), uploaded);
}

Result<Executor::Bound*> Executor::bind(const Problem& problem, const Candidate& candidate) {
  const auto messages = static_cast<std::uint64_t>(candidate.messages);
  const std::uint64_t key =
      plan_id(*candidate.algorithm, problem, candidate.options) * 8 + messages;
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  auto bound = std::make_unique<Bound>();
  TUTTI_TRY_ASSIGN(bound->plan,
                   compile_plan(*candidate.algorithm, problem, candidate.options, rank_));
  TUTTI_TRY_ASSIGN(const Program program, encode_program(bound->plan));
  bound->messages = candidate.messages;
  bound->blocks = blocks_for(bound->plan, candidate.messages, job_->blocks_each());
  Task& task = bound->task;
  task.ranks = job_->words_on(rank_);
  task.rank = static_cast<std::uint32_t>(rank_);
  task.rank_count = static_cast<std::uint32_t>(job_->ranks());
  task.messages = candidate.messages;
  task.carve = bound->plan.carve * 8 + messages + 1;
  task.timeout_ns = timeout_ns_;
  task.host = job_->host_words_of(rank_);
  TUTTI_TRY(place(*bound, program));
  return (plans_[key] = std::move(bound)).get();
}

Result<Executor::Bound*> Executor::choose(const Forced& forced, const Problem& problem,
                                          std::uint64_t bytes) {
  auto key = std::tuple(forced.name, problem.collective, problem.root, bytes);
  const auto found = chosen_.find(key);
  if (found != chosen_.end()) {
    found->second.last_call = ++calls_;
    return found->second.bound;
  }
  TUTTI_TRY_ASSIGN(const Candidate candidate, choice_.choose(forced, problem, bytes));
  TUTTI_TRY_ASSIGN(Bound* const bound, bind(problem, candidate));
  if (chosen_.size() >= kMostChosen)
    chosen_.erase(std::ranges::min_element(
        chosen_, {}, [](const auto& entry) { return entry.second.last_call; }));
  chosen_[std::move(key)] = {bound, ++calls_};
  return bound;
}

Result<Issue> Executor::prepare(const Call& call, const Forced& forced) {
  const std::uint64_t bytes_each = element_bytes(call.type);
  const std::uint64_t bytes = call.data_bytes(job_->ranks());
  const Problem problem = problem_of(call);
  TUTTI_TRY_ASSIGN(Bound* const known, choose(forced, problem, bytes));
  last_ = &known->plan;
  TUTTI_TRY_ASSIGN(const std::uint64_t capture,
                   job_->platform().capture_of(job_->device_of(rank_), call.stream));
  const Plan& plan = known->plan;
  const std::uint64_t slices = plan.slices_for(call.count, bytes_each);
  Task task = known->task;
  task.input = reinterpret_cast<const std::byte*>(call.input_base(rank_));
  task.output = reinterpret_cast<std::byte*>(call.output_base(rank_));
  task.cut = plan.cut_of(call.count, bytes_each, slices);
  task.element_bytes = static_cast<std::uint32_t>(bytes_each);
  const bool average = call.info().reduces() && call.op == ReduceOp::kAvg;
  task.average_over = average ? static_cast<std::uint32_t>(job_->ranks()) : 0;
  task.room_bytes = task.cut.max_slice_count() * bytes_each;
  // Without the operation's number, which a graph replays: epochs hold that.
  task.signature = OperationSignature{.collective = call.collective,
                                      .type = call.type,
                                      .op = call.op,
                                      .root = call.root,
                                      .count = call.count,
                                      .plan = plan.id}
                       .hash();
  return Issue{.rank = rank_,
               .collective = call.collective,
               .stream = call.stream,
               .type = call.type,
               .op = call.op,
               .blocks = known->blocks,
               .plan = plan.id,
               .capture = capture,
               .task = task};
}

// Nothing is allocated: the plan is compiled once more, to be looked at.
Result<Explanation> Executor::explain(const Call& call, const Forced& forced) {
  const Problem problem = problem_of(call);
  const std::uint64_t bytes = call.data_bytes(job_->ranks());
  TUTTI_TRY_ASSIGN(const Candidate running, choice_.choose(forced, problem, bytes));
  Result<std::vector<Candidate>> all = choice_.price({}, problem, bytes);
  if (!all) all = std::vector<Candidate>();
  const auto runs = [&running](const Candidate& one) { return one.name() == running.name(); };
  if (std::ranges::none_of(*all, runs)) all->push_back(running);
  std::ranges::stable_sort(*all, {}, [](const Candidate& one) { return one.cost.time_ns; });
  TUTTI_TRY_ASSIGN(const Plan plan,
                   compile_plan(*running.algorithm, problem, running.options, rank_));
  Explanation explanation{
      .collective = call.collective,
      .bytes = bytes,
      .ranks = job_->ranks(),
      .where =
          fmt::format("device {}, {} blocks a rank", job_->device_of(rank_), job_->blocks_each()),
      .forced = forced.name,
      .source = std::string(kPriceSource),
      .note =
          fmt::format("runs {} in {} blocks, {} lanes", running.name(),
                      blocks_for(plan, running.messages, job_->blocks_each()), plan.lanes.size()),
      .candidates = {}};
  for (const Candidate& one : *all)
    explanation.candidates.push_back(
        {.name = one.name(), .slices = one.slices, .cost = one.cost, .runs = runs(one)});
  return explanation;
}

}  // namespace tutti::device
