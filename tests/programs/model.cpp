// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>

#include "values.hpp"

namespace tutti::programs {
namespace {

class Model {
 public:
  explicit Model(const Program& program) : program_(program), parts_{{Part{}}} {
    const std::vector<std::size_t> counts = buffer_counts(program);
    for (int rank = 0; rank < program.ranks; ++rank) {
      parts_[0][0].push_back(rank);
      auto& buffers = contents_.buffers.emplace_back(counts.size());
      for (std::size_t b = 0; b < counts.size(); ++b)
        fill(buffers[b], counts[b], b, static_cast<std::uint32_t>(b), rank);
    }
  }

  Contents run() {
    for (std::size_t i = 0; i < program_.steps.size(); ++i) step(i);
    return std::move(contents_);
  }

 private:
  void fill(Elements& elements, std::size_t count, std::size_t buffer, std::uint32_t salt,
            int rank) {
    elements.resize(count);
    for (std::size_t i = 0; i < count; ++i)
      elements[i] = fill_value(program_.buffers[buffer], salt, rank, i);
  }

  Elements& at(int rank, int buffer) {
    return contents_.buffers[static_cast<std::size_t>(rank)][static_cast<std::size_t>(buffer)];
  }
  Parts& parts(int comm) {
    if (parts_.size() <= static_cast<std::size_t>(comm))
      parts_.resize(static_cast<std::size_t>(comm) + 1);
    return parts_[static_cast<std::size_t>(comm)];
  }

  void step(std::size_t number) {
    const Step& step = program_.steps[number];
    if (step.kind == Kind::kSplit) {
      const Parts made = divide(parts(step.comm), static_cast<Division>(step.peer));
      parts(step.made) = made;
    } else if (is_function(step.kind)) {
      for (int rank = 0; rank < program_.ranks; ++rank) function(number, rank);
    } else if (is_call(step.kind)) {
      for (const Part& part : parts(step.comm)) call(step, part);
    }
  }

  void function(std::size_t number, int rank) {
    const Step& step = program_.steps[number];
    const auto buffer = static_cast<std::size_t>(step.out);
    Elements& elements = at(rank, step.out);
    if (step.kind == Kind::kFill) fill(elements, elements.size(), buffer, step.salt, rank);
    if (step.kind == Kind::kAdd)
      for (std::uint64_t& element : elements) element = plus_one(program_.buffers[buffer], element);
    if (step.kind == Kind::kSnapshot) contents_.snapshots[number].push_back(elements);
  }

  // One call of one communicator. All inputs are read before any output is written.
  void call(const Step& step, const Part& part) {
    const int size = static_cast<int>(part.size());
    std::vector<Places> places;
    std::vector<Elements> inputs;
    for (const int rank : part) {
      places.push_back(places_of(program_, step, &part, rank));
      const Places& own = places.back();
      inputs.emplace_back();
      if (!own.reads) continue;
      const auto first =
          at(rank, own.input.buffer).begin() + static_cast<std::ptrdiff_t>(own.input.first);
      inputs.back().assign(first, first + static_cast<std::ptrdiff_t>(own.input.count));
    }
    for (int me = 0; me < size; ++me) {
      const Places& own = places[static_cast<std::size_t>(me)];
      if (!own.writes) continue;
      std::uint64_t* const output =
          at(part[static_cast<std::size_t>(me)], own.output.buffer).data() + own.output.first;
      if (step.kind == Kind::kReduceScatterV)
        for (std::size_t i = 0; i < v_count(step, me, me); ++i)
          output[i] = reduced(step, inputs, v_displacement(step, me, size) + i);
      else if (is_v_form(step.kind))
        write_v(step, inputs, me, size, output);
      else
        for (std::size_t i = 0; i < own.output.count; ++i) output[i] = element(step, inputs, me, i);
    }
  }

  // Element `i` of the output at place `me`.
  std::uint64_t element(const Step& step, const std::vector<Elements>& inputs, int me,
                        std::size_t i) const {
    const std::size_t size = inputs.size(), count = step.count;
    const auto self = static_cast<std::size_t>(me);
    const std::size_t root = static_cast<std::size_t>(step.root) % size;
    switch (step.kind) {
      case Kind::kAllReduce:
      case Kind::kReduce:
        return reduced(step, inputs, i);
      case Kind::kReduceScatter:
        return reduced(step, inputs, self * count + i);
      case Kind::kBroadcast:
      case Kind::kBcast:
      case Kind::kTransfer:
        return inputs[root][i];
      case Kind::kAllGather:
      case Kind::kGather:
        return inputs[i / count][i % count];
      case Kind::kAllToAll:
        return inputs[i / count][self * count + i % count];
      case Kind::kScatter:
        return inputs[root][self * count + i];
      default:
        return 0;
    }
  }

  std::uint64_t reduced(const Step& step, const std::vector<Elements>& inputs,
                        std::size_t i) const {
    Elements all;
    for (const Elements& input : inputs) all.push_back(input[i]);
    return reduce(program_.buffers[static_cast<std::size_t>(step.out)], step.op, all);
  }

  static void write_v(const Step& step, const std::vector<Elements>& inputs, int me, int size,
                      std::uint64_t* output) {
    const int root = step.root % size;
    const auto move = [&](int from, std::size_t from_first, int to, std::size_t to_first) {
      const std::size_t count = v_count(step, from, to);
      for (std::size_t i = 0; i < count; ++i)
        output[to_first + i] = inputs[static_cast<std::size_t>(from)][from_first + i];
    };
    if (step.kind == Kind::kScatterV) {
      move(root, v_displacement(step, me, size), me, 0);
      return;
    }
    for (int from = 0; from < size; ++from) {
      const bool all = step.kind == Kind::kAllToAllV;
      move(from, all ? v_displacement(step, me, size) : 0, me, v_displacement(step, from, size));
    }
  }

  const Program& program_;
  std::vector<Parts> parts_;  // by communicator
  Contents contents_;
};

}  // namespace

Contents model(const Program& program) { return Model(program).run(); }

}  // namespace tutti::programs
