// SPDX-License-Identifier: Apache-2.0
// Prices by the event graph against the closed forms of the families, and against cases with
// contention counted by hand.
#include "lab/event_price.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>

#include "networks.hpp"

namespace tutti {
namespace {

using networks::Nodes;
using networks::Shape;

PlanPrice price(std::string_view name, const Shape& shape, const Costs& costs,
                const PriceRequest& request, std::uint32_t replicas = 1) {
  const Nodes network(shape);
  const Result<PlanModel> model = PlanModel::make(
      *find_algorithm(name).value(), {.collective = Collective::kAllReduce, .ranks = shape.ranks},
      network, replicas);
  EXPECT_TRUE(model) << model.error().message;
  const Result<PlanPrice> priced = model->price(costs, request);
  EXPECT_TRUE(priced) << priced.error().message;
  return *priced;
}

// The costs by which the closed forms are written: a = alpha + latency, b = bytes on the way,
// o = a step, g = an operand's byte.
struct Terms {
  double a, b, o, g;
};

struct ClosedForm {
  const char* name;
  bool any_count;  // of ranks; else powers of two
  std::function<double(std::int32_t p, double n, const Terms&)> time_ns;
};

int log2_of(std::int32_t p) { return static_cast<int>(std::lround(std::log2(p))); }

double ring_ns(std::int32_t p, double n, const Terms& t) {
  const double c = n / p;
  return 2 * (p - 1) * (t.a + c * t.b) + (2 * p - 1) * t.o + (6 * p - 4) * c * t.g;
}

double butterfly_ns(std::int32_t p, double n, const Terms& t) {
  const int rounds = log2_of(p);
  return rounds * (t.a + n * t.b) + (rounds + 1) * t.o + (4 * rounds + 1) * n * t.g;
}

// Round k gives n / 2^(k+1) away and adds as much; backwards it passes on and stores as much.
double rabenseifner_ns(std::int32_t p, double n, const Terms& t) {
  const int rounds = log2_of(p);
  double time = 0;
  for (int k = 0; k < rounds; ++k) {
    const double m = n / std::exp2(k + 1);
    const bool last = k + 1 == rounds;  // its sum is sent by the step that completes it
    time += 2 * (t.a + m * t.b);
    time += (last ? 3 : 4) * t.o + (last ? 2 + 4 + 2 : 2 + 3 + 2 + 2) * m * t.g;
  }
  return time;
}

double circulant_ns(std::int32_t p, double n, const Terms& t) {
  double time = 0;
  for (std::int32_t before = p; before > 1; before = (before + 1) / 2) {
    const double m = (before - (before + 1) / 2) * n / p;
    const bool last = before == 2;
    time += 2 * (t.a + m * t.b);
    time += (last ? 3 : 4) * t.o + (last ? 2 + 4 + 2 : 2 + 3 + 2 + 2) * m * t.g;
  }
  return time;
}

double tree_ns(std::int32_t p, double n, const Terms& t) {
  const int levels = log2_of(p);
  const double half = n / 2;
  return 2 * levels * (t.a + half * t.b) + (2 * levels + 1) * t.o + 8 * levels * half * t.g;
}

double one_shot_ns(std::int32_t p, double n, const Terms& t) {
  return t.a + n * t.b + 2 * t.o + (2 * p + 1) * n * t.g;
}

double two_shot_ns(std::int32_t p, double n, const Terms& t) {
  const double c = n / p;
  return 2 * (t.a + c * t.b) + (2 * p - 1) * t.o + (6 * p - 4) * c * t.g;
}

const ClosedForm kClosedForms[] = {
    {"ring", true, ring_ns},
    {"butterfly", false, butterfly_ns},
    {"rabenseifner", false, rabenseifner_ns},
    {"circulant", true, circulant_ns},
    {"tree", false, tree_ns},
    {"one_shot", true, one_shot_ns},
    {"two_shot", true, two_shot_ns},
};

TEST(ClosedForms, AreThePricesWhereNothingIsShared) {
  const Costs costs = networks::costs();
  for (const ClosedForm& form : kClosedForms)
    for (const std::int32_t p : {2, 3, 4, 5, 8, 13, 16, 33, 64}) {
      if (!form.any_count && !std::has_single_bit(static_cast<std::uint32_t>(p))) continue;
      for (const std::uint64_t bytes : {0U, 64U, 65536U, 1U << 20}) {
        const Shape shape{.ranks = p};
        const Terms terms{shape.between_ns + costs.hops[2].alpha_ns,
                          shape.between_ns_per_byte / costs.hops[2].efficiency, costs.step_ns,
                          costs.operand_ns_per_byte};
        const double expected = costs.start_ns + form.time_ns(p, static_cast<double>(bytes), terms);
        EXPECT_NEAR(price(form.name, shape, costs, {.bytes = bytes}).time_ns, expected,
                    1e-9 * expected)
            << form.name << ", " << p << " ranks, " << bytes << " bytes";
      }
    }
}

// Ports of their own change nothing for those that send one message at a time.
TEST(ClosedForms, HoldWithPortsForOneMessageAtATime) {
  const Costs costs = networks::costs();
  for (const ClosedForm& form : kClosedForms) {
    const std::string_view name = form.name;
    if (name != "ring" && name != "butterfly" && name != "rabenseifner" && name != "circulant")
      continue;
    const Shape none{.ranks = 16}, ports{.ranks = 16, .adapters = 1};
    EXPECT_EQ(price(name, ports, costs, {.bytes = 1 << 20}).time_ns,
              price(name, none, costs, {.bytes = 1 << 20}).time_ns)
        << name;
  }
}

// One step sends to all, nearest first, so that no port takes two messages at once: they queue at
// the sender.
TEST(Contention, OneShotQueuesAtItsPort) {
  const Costs costs = networks::costs();
  const std::int32_t p = 8;
  const double n = 65536;
  const Shape shape{.ranks = p, .adapters = 1};
  const double b = shape.between_ns_per_byte / costs.hops[2].efficiency;
  const double alone = one_shot_ns(
      p, n,
      {shape.between_ns + costs.hops[2].alpha_ns, b, costs.step_ns, costs.operand_ns_per_byte});
  const PlanPrice priced = price("one_shot", shape, costs, {.bytes = 65536});
  const double queue = (p - 2) * (n * b + costs.gap_ns);
  EXPECT_NEAR(priced.time_ns, costs.start_ns + alone + queue, 1e-6);
  EXPECT_NEAR(priced.terms.queue_ns, queue, 1e-6);
}

// Two nodes of four ranks with one adapter: all four send at once to the other node.
TEST(Contention, RanksOfANodeQueueAtTheirAdapter) {
  const Costs costs = networks::costs();
  const Shape shape{.ranks = 8, .node = 4, .adapters = 1};
  const double n = 1 << 20;
  const double inside = n * shape.inside_ns_per_byte + shape.inside_ns + costs.hops[0].alpha_ns;
  const double adapter = n * shape.between_ns_per_byte / costs.hops[2].efficiency;
  const double between = 4 * adapter + 3 * costs.gap_ns + shape.between_ns + costs.hops[2].alpha_ns;
  const double steps = 4 * costs.step_ns + 13 * n * costs.operand_ns_per_byte;
  EXPECT_NEAR(price("butterfly", shape, costs, {.bytes = 1 << 20}).time_ns,
              costs.start_ns + 2 * inside + between + steps, 1e-6);
}

// Four ranks on one core: every step pays the switch, and steps that are ready queue for it.
TEST(Contention, RanksShareACore) {
  Costs costs = networks::costs();
  const Shape one_core{.ranks = 4, .node = 4, .workers = 1};
  const Shape own_cores{.ranks = 4, .node = 4};
  const PlanPrice shared = price("ring", one_core, costs, {.bytes = 4096});
  const PlanPrice alone = price("ring", own_cores, costs, {.bytes = 4096});
  const double work = 4 * (7 * costs.step_ns + 20 * 1024 * costs.operand_ns_per_byte);
  EXPECT_NEAR(shared.time_ns, costs.start_ns + work + 4 * 7 * costs.switch_ns, 1e-6);
  EXPECT_LT(alone.time_ns, shared.time_ns);
  costs.switch_ns = 0;
  EXPECT_LT(price("ring", one_core, costs, {.bytes = 4096}).time_ns, shared.time_ns);
}

TEST(Credits, OfOneSlotDoNotLetARingGo) {
  const Nodes network({.ranks = 4});
  const PlanModel model =
      PlanModel::make(*find_algorithm("ring").value(),
                      {.collective = Collective::kAllReduce, .ranks = 4}, network)
          .value();
  const auto priced = model.price(networks::costs(), {.bytes = 64, .slots = 1});
  ASSERT_FALSE(priced);
  EXPECT_EQ(priced.error().code, Code::kInternalError);
  EXPECT_NE(priced.error().message.find("stuck with 1 slots: rank"), std::string::npos);
  EXPECT_TRUE(model.price(networks::costs(), {.bytes = 64, .slots = 2}));
}

TEST(Terms, SumToTheTime) {
  const Costs costs = networks::costs();
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::uint32_t slices : {1U, 3U, 64U})
      for (const Shape& shape : {Shape{.ranks = 12, .node = 4, .adapters = 1}, Shape{.ranks = 7},
                                 Shape{.ranks = 8, .node = 8, .workers = 3}}) {
        const PlanPrice priced =
            price(algorithm->name, shape, costs, {.bytes = 300000, .slices = slices}, 2);
        const PriceTerms& terms = priced.terms;
        const auto sum = [](const auto& list) {
          return std::accumulate(list.begin(), list.end(), 0.0);
        };
        EXPECT_NEAR(terms.start_ns + sum(terms.latency_ns) + sum(terms.transfer_ns) +
                        terms.queue_ns + terms.steps_ns + terms.operands_ns,
                    priced.time_ns, 1e-9 * priced.time_ns)
            << algorithm->name << ", " << shape.ranks << " ranks, " << slices << " slices";
        EXPECT_GE(terms.queue_ns, 0) << algorithm->name << " " << slices;
      }
}

TEST(PathCounts, TimesCostsAreThePriceWhereNothingQueues) {
  const Costs costs = networks::costs();
  for (const char* name : {"ring", "butterfly", "circulant", "two_shot", "pat"}) {
    const Shape shape{.ranks = 16};
    const PlanPrice priced = price(name, shape, costs, {.bytes = 1 << 16});
    const double time =
        costs.start_ns +
        static_cast<double>(priced.path.messages[2]) * (costs.hops[2].alpha_ns + shape.between_ns) +
        priced.path.link_byte_ns[2] / costs.hops[2].efficiency +
        static_cast<double>(priced.path.steps) * costs.step_ns +
        priced.path.operand_bytes * costs.operand_ns_per_byte;
    EXPECT_NEAR(priced.time_ns, time, 1e-9 * time) << name;
  }
}

// Reads of peers' memory cost the worker; the signals are messages.
TEST(Direct, RemoteOperandsCostTheReader) {
  Costs costs = networks::costs();
  const Shape shape{.ranks = 4, .node = 4};
  const PlanPrice dear = price("two_shot:access=remote", shape, costs, {.bytes = 40000});
  costs.remote_ns = costs.remote_ns_per_byte = 0;
  const PlanPrice cheap = price("two_shot:access=remote", shape, costs, {.bytes = 40000});
  EXPECT_NEAR(dear.time_ns - cheap.time_ns, 6 * (90 + 10000 * 0.015), 1e-6);
}

TEST(Price, RefusesWhatIsNone) {
  const Nodes network({.ranks = 4});
  const Algorithm& ring = *find_algorithm("ring").value();
  EXPECT_EQ(PlanModel::make(ring, {.collective = Collective::kAllReduce, .ranks = 5}, network)
                .error()
                .code,
            Code::kInvalidArgument);
  EXPECT_EQ(PlanModel::make(ring, {.collective = Collective::kAllReduce, .ranks = 0}, network)
                .error()
                .code,
            Code::kInvalidArgument);
  EXPECT_EQ(PlanModel::make(ring, {.collective = Collective::kAllReduce, .ranks = 4}, network, 0)
                .error()
                .code,
            Code::kInvalidArgument);
  const PlanModel model =
      PlanModel::make(ring, {.collective = Collective::kAllReduce, .ranks = 4}, network).value();
  EXPECT_EQ(model.price({}, {.slices = 0}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(model.price({}, {.slots = 0}).error().code, Code::kInvalidArgument);
  Costs costs;
  costs.hops[1].efficiency = 0;
  EXPECT_EQ(model.price(costs, {}).error().code, Code::kInvalidArgument);
}

TEST(Price, OfOneRankIsItsCopy) {
  const Costs costs = networks::costs();
  EXPECT_NEAR(price("ring", {.ranks = 1}, costs, {.bytes = 1000}).time_ns,
              costs.start_ns + costs.step_ns + 2000 * costs.operand_ns_per_byte, 1e-6);
}

}  // namespace
}  // namespace tutti
