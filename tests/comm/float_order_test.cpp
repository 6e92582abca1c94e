// SPDX-License-Identifier: Apache-2.0
// The order of a float sum is the schedule's: every algorithm of every collective that reduces must
// give, through the C API among threads, the very bits that its schedule gives where it is walked
// step by step here, and so the same bits in every run, communicator, protocol and placing. The
// sums are ill-conditioned: another order gives other bits.
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "base/collective.hpp"
#include "job.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

struct Float32 {
  using Bits = std::uint32_t;
  static constexpr tuttiDataType_t kType = tuttiFloat32;
  static float decode(Bits bits) { return std::bit_cast<float>(bits); }
  static Bits encode(float value) { return std::bit_cast<Bits>(value); }
};
// Of finite values alone.
struct Bfloat16 {
  using Bits = std::uint16_t;
  static constexpr tuttiDataType_t kType = tuttiBfloat16;
  static float decode(Bits bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  // The nearest; the even one of two.
  static Bits encode(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<Bits>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

// What a step does to one element: fp32 sums from left to right, rounded to the type once.
template <typename T>
typename T::Bits reduced(const std::vector<typename T::Bits>& sources) {
  if (sources.size() == 1) return sources[0];
  float sum = T::decode(sources[0]);
  for (std::size_t k = 1; k < sources.size(); ++k) sum += T::decode(sources[k]);
  return T::encode(sum);
}

// Walks a schedule of one replica over one slice: a step as soon as it can run, in any order, for
// all orders end alike. It shares no code with the runtime. All chunks have `each` elements.
template <typename T>
class Walk {
 public:
  using Bits = typename T::Bits;
  using Chunk = std::vector<Bits>;

  // `inputs`: the whole data of every rank.
  Walk(const Schedule& schedule, std::size_t each, const std::vector<std::vector<Bits>>& inputs)
      : schedule_(schedule), each_(each) {
    const ScheduleShape& shape = schedule.shape;
    for (const std::vector<Bits>& input : inputs) {
      Memory& rank = ranks_.emplace_back();
      for (std::uint32_t c = 0; c < shape.chunks; ++c) {
        const auto begin = input.begin() + static_cast<std::ptrdiff_t>(c * each);
        rank.input.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(each));
      }
      rank.output.resize(shape.chunks);
      rank.scratch.resize(shape.scratch_chunks);
    }
    for (const RankProgram& program : schedule.ranks) done_.emplace_back(program.lanes.size());
  }

  // False: a lane can go no further.
  [[nodiscard]] bool run() {
    bool moves = true, ended = false;
    while (moves && !ended) {
      moves = false;
      ended = true;
      for (std::size_t rank = 0; rank < done_.size(); ++rank)
        for (std::size_t lane = 0; lane < done_[rank].size(); ++lane) {
          const std::vector<Step>& steps = schedule_.ranks[rank].lanes[lane].steps;
          std::size_t& at = done_[rank][lane];
          for (; at < steps.size() && may_run(rank, steps[at]); ++at) {
            run_step(rank, steps[at]);
            moves = true;
          }
          ended = ended && at == steps.size();
        }
    }
    return ended;
  }

  // Chunk c of this rank's output; empty where it has none.
  [[nodiscard]] const Chunk& output(std::size_t rank, std::size_t c) const {
    return ranks_[rank].output[c];
  }

 private:
  struct Memory {
    std::vector<Chunk> input, output, scratch;
  };
  using Message = std::vector<Chunk>;
  using Connection = std::tuple<std::size_t, std::size_t, Tag>;  // from, to

  [[nodiscard]] bool may_run(std::size_t rank, const Step& step) {
    for (const Wait& wait : step.waits)
      if (wait.back == 0 && done_[rank][wait.lane] <= wait.step) return false;
    std::map<Connection, std::size_t> taken;
    for (const Operand& source : step.sources)
      if (source.kind == OperandKind::kRecv) {
        const Connection from{source.peer, rank, source.tag};
        if (messages_[from].size() < ++taken[from]) return false;
      }
    return true;
  }

  std::vector<Chunk>& memory(std::size_t rank, const Operand& operand) {
    Memory& owner =
        ranks_[operand.kind == OperandKind::kRemote ? static_cast<std::size_t>(operand.peer)
                                                    : rank];
    return operand.buffer == BufferKind::kInput    ? owner.input
           : operand.buffer == BufferKind::kOutput ? owner.output
                                                   : owner.scratch;
  }

  Chunk& chunk(std::size_t rank, const Operand& operand, std::uint32_t k) {
    std::vector<Chunk>& all = memory(rank, operand);
    return all[operand.span.at(k, static_cast<std::uint32_t>(all.size()))];
  }

  void run_step(std::size_t rank, const Step& step) {
    std::vector<Message> sources;
    for (const Operand& source : step.sources) {
      Message& read = sources.emplace_back();
      if (source.kind == OperandKind::kRecv) {
        auto& queue = messages_[{source.peer, rank, source.tag}];
        read = std::move(queue.front());
        queue.pop_front();
      } else {
        for (std::uint32_t k = 0; k < source.span.count(); ++k)
          read.push_back(chunk(rank, source, k));
      }
    }
    Message value;
    for (std::size_t k = 0; k < sources[0].size(); ++k) {
      Chunk& sum = value.emplace_back(each_);
      for (std::size_t i = 0; i < each_; ++i) {
        std::vector<Bits> elements;
        for (const Message& source : sources) elements.push_back(source.at(k).at(i));
        sum[i] = reduced<T>(elements);
      }
    }
    for (const Operand& destination : step.destinations) {
      if (destination.kind == OperandKind::kSend) {
        messages_[{rank, destination.peer, destination.tag}].push_back(value);
        continue;
      }
      for (std::uint32_t k = 0; k < destination.span.count(); ++k)
        chunk(rank, destination, k) = value.at(k);
    }
  }

  const Schedule& schedule_;
  const std::size_t each_;
  std::vector<Memory> ranks_;
  std::vector<std::vector<std::size_t>> done_;  // steps, by rank and lane
  std::map<Connection, std::deque<Message>> messages_;
};

// Of every sum two terms cancel that are so large that fp32 loses of the others what is added
// between them.
template <typename T>
std::vector<std::vector<typename T::Bits>> ill_conditioned(std::size_t ranks, std::size_t count,
                                                           std::mt19937& random) {
  std::vector<std::vector<typename T::Bits>> data(ranks);
  std::uniform_real_distribution<float> mantissa(1, 2);
  for (std::size_t i = 0; i < count; ++i) {
    for (auto& one : data) {
      const float value = std::ldexp(mantissa(random), static_cast<int>(random() % 11));
      one.push_back(T::encode(random() % 2 == 0 ? value : -value));
    }
    if (ranks < 3) continue;
    const float large = std::ldexp(mantissa(random), 27);
    const std::size_t first = random() % ranks, step = 1 + random() % (ranks - 1);
    data[first][i] = T::encode(large);
    data[(first + step) % ranks][i] = T::encode(-large);
  }
  return data;
}

// One plan and size, and what every rank must end with.
template <typename T>
struct Sum {
  std::string plan;
  Collective collective;
  int root;
  std::size_t count;  // of the call
  std::vector<std::vector<typename T::Bits>> inputs, outputs;
};

template <typename T>
tuttiResult_t issue(const Sum<T>& sum, const void* send, void* receive, tuttiComm_t comm) {
  switch (sum.collective) {
    case Collective::kAllReduce:
      return tuttiAllReduce(send, receive, sum.count, T::kType, tuttiSum, comm, nullptr);
    case Collective::kReduce:
      return tuttiReduce(send, receive, sum.count, T::kType, tuttiSum, sum.root, comm, nullptr);
    default:
      return tuttiReduceScatter(send, receive, sum.count, T::kType, tuttiSum, comm, nullptr);
  }
}

// "" or what is wrong with what this rank got.
template <typename T>
std::string check(const Sum<T>& sum, std::size_t rank, bool in_place, tuttiComm_t comm) {
  std::vector<typename T::Bits> data = sum.inputs[rank];
  std::vector<typename T::Bits> apart(sum.count);
  const bool own_block = sum.collective == Collective::kReduceScatter;
  auto* const receive = in_place ? data.data() + (own_block ? rank * sum.count : 0) : apart.data();
  if (issue(sum, data.data(), receive, comm) != tuttiSuccess) return tuttiGetLastError(comm);
  const std::vector<typename T::Bits>& want = sum.outputs[rank];
  for (std::size_t i = 0; i < want.size(); ++i)
    if (receive[i] != want[i])
      return "element " + std::to_string(i) + " of " + std::to_string(want.size()) + " is " +
             std::to_string(T::decode(receive[i])) + ", expected " +
             std::to_string(T::decode(want[i]));
  return {};
}

// Elements whose sum is another from right to left.
template <typename T>
std::size_t order_matters(const std::vector<std::vector<typename T::Bits>>& inputs) {
  std::size_t differ = 0;
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    std::vector<typename T::Bits> forth, back;
    for (const auto& input : inputs) forth.push_back(input[i]);
    back.assign(forth.rbegin(), forth.rend());
    differ += reduced<T>(forth) != reduced<T>(back);
  }
  return differ;
}

template <typename T>
Sum<T> make_sum(const Algorithm& algorithm, const Problem& problem, std::size_t each,
                std::mt19937& random) {
  const Schedule schedule = *build_schedule(algorithm, problem);
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  const std::size_t data = schedule.shape.chunks * each;
  const bool blocks = info_of(problem.collective).blocks;
  Sum<T> sum{.plan = std::string(name_of(problem.collective)) + ":" + std::string(algorithm.name),
             .collective = problem.collective,
             .root = problem.root,
             .count = blocks ? data / ranks : data,
             .inputs = ill_conditioned<T>(ranks, data, random),
             .outputs = {}};
  if (ranks > 2 && data > 100) {
    EXPECT_GT(order_matters<T>(sum.inputs), data / 8);
  }
  Walk<T> walk(schedule, each, sum.inputs);
  EXPECT_TRUE(walk.run()) << sum.plan;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<typename T::Bits>& output = sum.outputs.emplace_back();
    for (std::size_t c = 0; c < schedule.shape.chunks; ++c) {
      const auto& chunk = walk.output(rank, c);
      const bool own = !blocks || c / (schedule.shape.chunks / ranks) == rank;
      if (own) output.insert(output.end(), chunk.begin(), chunk.end());
    }
  }
  return sum;
}

// Every algorithm; elements of a chunk: fewer than a cache line, whole lines, several slices.
template <typename T>
std::vector<Sum<T>> make_sums(int ranks, std::mt19937& random) {
  std::vector<Sum<T>> sums;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter})
    for (const auto& list : {all_algorithms(), direct_algorithms()})
      for (const Algorithm* algorithm : list) {
        const Problem problem{collective, ranks,
                              info_of(collective).rooted ? static_cast<Rank>(ranks / 2) : 0};
        if (!algorithm->supports(problem)) continue;
        for (const std::size_t each : {3, 256, 4096})
          if (each < 1000 || ranks == 3)
            sums.push_back(make_sum<T>(*algorithm, problem, each, random));
      }
  return sums;
}

template <typename T>
void check_sums(int ranks) {
  std::mt19937 random(draw_seed());
  const std::vector<Sum<T>> sums = make_sums<T>(ranks, random);
  for (int communicator = 0; communicator < 2; ++communicator)
    run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
      for (const Sum<T>& sum : sums)
        for (const char* const protocol : {"", "@slots", "@flagged", "@direct"}) {
          const std::string plan = sum.plan + protocol;
          // Not every algorithm runs over every protocol.
          const tuttiResult_t forced = tuttiCommSetAlgorithm(comm, plan.c_str());
          if (forced != tuttiSuccess && *protocol != '\0') continue;
          ASSERT_EQ(forced, tuttiSuccess) << tuttiGetLastError(comm);
          for (const bool in_place : {false, true, false})
            ASSERT_EQ(check(sum, static_cast<std::size_t>(rank), in_place, comm), "")
                << plan << ", " << sum.count << " elements, in place " << in_place << ", rank "
                << rank << ", communicator " << communicator;
        }
    });
}

class FloatOrder : public ::testing::TestWithParam<int> {};

TEST_P(FloatOrder, OfFloatIsTheSchedules) { check_sums<Float32>(GetParam()); }
TEST_P(FloatOrder, OfBfloat16IsTheSchedules) { check_sums<Bfloat16>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Ranks, FloatOrder, ::testing::Values(2, 3, 4, 5, 8));

}  // namespace
}  // namespace tutti::test
