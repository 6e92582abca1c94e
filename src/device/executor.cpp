// SPDX-License-Identifier: Apache-2.0
#include "device/executor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/signature.hpp"
#include "device/image.hpp"

namespace tutti::device {

Executor::Executor(std::shared_ptr<Job> job, Rank rank, std::uint64_t timeout_ns, Prices prices)
    : job_(std::move(job)),
      rank_(rank),
      timeout_ns_(timeout_ns),
      price_source_(std::move(prices.source)),
      choice_({.ranks = job_->ranks(),
               .blocks_each = job_->blocks_each(),
               .arena_bytes = job_->arena_bytes(),
               .whole_lines = job_->whole_lines(),
               .one_device = job_->one_device(),
               .costs = prices.costs}) {}

Status Executor::place(Bound& bound, const Program& program) {
  const Plan& plan = bound.plan;
  std::vector<Connection> sends, recvs;
  for (const ConnectionSpec& spec : plan.sends) {
    TUTTI_TRY_ASSIGN(const Connection connection, job_->open(spec, bound.candidate.messages, true));
    sends.push_back(connection);
  }
  for (const ConnectionSpec& spec : plan.recvs) {
    TUTTI_TRY_ASSIGN(const Connection connection,
                     job_->open(spec, bound.candidate.messages, false));
    recvs.push_back(connection);
  }
  std::vector<RankWords*> remotes;
  for (const Rank peer : plan.remotes) remotes.push_back(job_->words_of(peer));
  Image image(plan, program,
              {.messages = bound.candidate.messages,
               .blocks = bound.blocks,
               .most_blocks = job_->blocks_each(),
               .sends = sends,
               .recvs = recvs,
               .remotes = remotes,
               .own = job_->words_of(rank_),
               .ranks = job_->words_on(rank_),
               .host = job_->host_words_of(rank_),
               .timeout_ns = timeout_ns_,
               .one_device = job_->one_device(),
               .one_lane = bound.candidate.one_lane});
  TUTTI_TRY_ASSIGN(std::byte* const memory, job_->room_for_plan(rank_, image.memory_bytes()));
  bound.task = reinterpret_cast<const BoundTask*>(memory);
  return job_->platform().upload(job_->device_of(rank_), memory, image.placed_at(memory).data(),
                                 image.uploaded_bytes());
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
  bound->candidate = candidate;
  bound->blocks = blocks_for(bound->plan, candidate.messages, job_->blocks_each());
  TUTTI_TRY(place(*bound, program));
  return (plans_[key] = std::move(bound)).get();
}

Result<const Executor::Chosen*> Executor::choose(const Forced& forced, const Problem& problem,
                                                 std::uint64_t bytes) {
  auto key = std::tuple(forced.name, problem.collective, problem.root, bytes);
  const auto found = chosen_.find(key);
  if (found != chosen_.end()) {
    found->second.last_call = ++calls_;
    return &found->second;
  }
  TUTTI_TRY_ASSIGN(const Candidate candidate, choice_.choose(forced, problem, bytes));
  TUTTI_TRY_ASSIGN(Bound* const bound, bind(problem, candidate));
  if (chosen_.size() >= kMostChosen)
    chosen_.erase(std::ranges::min_element(
        chosen_, {}, [](const auto& entry) { return entry.second.last_call; }));
  return &(chosen_[std::move(key)] = {bound, candidate.slices, ++calls_});
}

namespace {

using Buffers = Executor::Buffers;

Buffers buffers_of(const Call& call, bool input, bool output) {
  return {input ? call.input : nullptr, output ? call.output : nullptr};
}

Buffers used_by_rank(const Call& call, Rank rank) {
  return buffers_of(call, call.has_input(rank), call.has_output(rank));
}

// In a direct plan: of a rooted call the root's, and where it reduces every input.
Buffers used_by_peers(const Call& call, Rank rank) {
  const CollectiveInfo& info = call.info();
  if (!info.rooted) return used_by_rank(call, rank);
  const bool root = rank == call.root;
  const bool to_root = info.reduces() || call.collective == Collective::kGather;
  return buffers_of(call, info.reduces() || (root && !to_root), root && to_root);
}

}  // namespace

std::optional<Executor::Unreachable> Executor::unreachable(int device, const Buffers& used) const {
  for (const auto& [buffer, name] :
       {std::pair{used.input, "sendbuff"}, {used.output, "recvbuff"}}) {
    if (buffer == nullptr) continue;
    if (std::string found = job_->platform().out_of_reach(device, buffer); !found.empty())
      return Unreachable{name, std::move(found)};
  }
  return std::nullopt;
}

Status Executor::check_reach(const Call& call) const {
  const int device = job_->device_of(rank_);
  const auto found = unreachable(device, used_by_rank(call, rank_));
  if (!found) return {};
  return make_error(Code::kInvalidArgument,
                    fmt::format("{} is {}, and rank {} uses device {}; allocate it there",
                                found->buffer, found->where, rank_, device));
}

Status Executor::check_peers_reach(const Call& call, const Candidate& direct) const {
  const Buffers used = used_by_peers(call, rank_);
  for (Rank peer = 0; peer < job_->ranks(); ++peer) {
    const int device = job_->device_of(peer);
    if (device == job_->device_of(rank_)) continue;
    if (const auto found = unreachable(device, used))
      return make_error(
          Code::kInvalidArgument,
          fmt::format("{} is {}, and rank {} on device {} uses it too in {}; allocate it with "
                      "cudaMalloc, or name no algorithm with access=",
                      found->buffer, found->where, peer, device, direct.name()));
  }
  return {};
}

Result<Issue> Executor::prepare(const Call& call, const Forced& forced) {
  TUTTI_TRY(check_reach(call));
  const std::uint64_t bytes_each = element_bytes(call.type);
  const std::uint64_t bytes = call.data_bytes(job_->ranks());
  const Problem problem = problem_of(call);
  TUTTI_TRY_ASSIGN(const Chosen* const chosen, choose(forced, problem, bytes));
  const Bound* const known = chosen->bound;
  if (known->candidate.options.protocol == Protocol::kDirect && !job_->one_device())
    TUTTI_TRY(check_peers_reach(call, known->candidate));
  last_ = &known->plan;
  TUTTI_TRY_ASSIGN(const std::uint64_t capture,
                   job_->platform().capture_of(job_->device_of(rank_), call.stream));
  const Plan& plan = known->plan;
  const std::uint64_t slices =
      std::max<std::uint64_t>(plan.slices_for(call.count, bytes_each), chosen->slices);
  if (slices > kMaxSlices)
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} of {} bytes is more than {} can cut into slices",
                                  name_of(call.collective), bytes, plan.shape.algorithm));
  const UniformCut cut = plan.cut_of(call.count, bytes_each, slices);
  Common common;
  common.cut = DeviceCut(cut);
  common.element_bytes = static_cast<std::uint32_t>(bytes_each);
  const bool average = call.info().reduces() && call.op == ReduceOp::kAvg;
  common.average_over = average ? static_cast<std::uint32_t>(job_->ranks()) : 0;
  common.room_bytes = cut.max_slice_count() * bytes_each;
  common.credits = !known->candidate.without_credits(slices);
  // Without the operation's number, which a graph replays: epochs hold that.
  common.signature = OperationSignature{.collective = call.collective,
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
               .messages = known->candidate.messages,
               .blocks = known->blocks,
               .plan = plan.id,
               .capture = capture,
               .count = call.count,
               .common = common,
               .task = {known->task, reinterpret_cast<const std::byte*>(call.input_base(rank_)),
                        reinterpret_cast<std::byte*>(call.output_base(rank_))}};
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
      .source = price_source_,
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
