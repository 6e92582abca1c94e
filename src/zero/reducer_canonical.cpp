// SPDX-License-Identifier: Apache-2.0
#include "zero/blocks.hpp"
#include "zero/gatherer.hpp"
#include "zero/kernels.hpp"
#include "zero/reducer.hpp"

namespace tutti::zero {

void fold(const Reduction& reduction, std::uint64_t elements) {
  std::size_t top = reduction.targets.size() - 1;
  for (int left = reduction.folds; left > 0; --left, --top)
    kernels().add(reduction.targets[top - 1], reduction.targets[top], elements);
}

void deliver(const Reduction& reduction, const void* values, Number number,
             std::uint64_t elements) {
  float* const target = reduction.targets.back();
  sum_blocks(target, {values, 1, 0, number}, elements, reduction.adds);
  fold(reduction, elements);
}

namespace {

class CanonicalReducer final : public Reducer {
 public:
  CanonicalReducer(Links& links, const Plan& plan)
      : links_(links),
        plan_(plan),
        parts_(groups() * plan.largest_part_elements * bytes_of(number())),
        totals_(groups() * plan.largest_part_elements * sizeof(float)) {}

  void reduce(const Reduction& reduction) override {
    if (reduction.padded_elements == 0) return;
    void* const wire = plan_.narrow_reduce() ? reduction.wire : reduction.sum;
    if (plan_.narrow_reduce()) narrow(wire, number(), reduction.sum, reduction.padded_elements);
    const std::uint64_t shard = reduction.padded_elements / shard_ranks();
    if (shard_ranks() > 1) exchange(links_.reductions, wire, shard);
    const Blocks blocks{wire, plan_.shard_ranks, shard, number()};
    if (plan_.groups > 1) {
      sum_groups(reduction, blocks, shard);
    } else {
      links_.reduce_stream.launch([reduction, blocks, shard] {
        sum_blocks(reduction.targets.back(), blocks, shard, reduction.adds);
        fold(reduction, shard);
      });
    }
    if (reduction.whole && shard_ranks() > 1)
      gather(links_.reductions, reduction.sum, shard, links_.shard());
  }

  [[nodiscard]] std::uint64_t bytes_sent(const Reduction& reduction) const override {
    const std::uint64_t shard = reduction.padded_elements / shard_ranks();
    const std::uint64_t part = plan_.part_elements(shard);
    const std::uint64_t within =
        shard * (shard_ranks() - 1) * (bytes_of(number()) + (reduction.whole ? sizeof(float) : 0));
    const std::uint64_t across = part * (groups() - 1) * (bytes_of(number()) + sizeof(float));
    return within + across;
  }

  [[nodiscard]] std::uint64_t memory_bytes() const override {
    return parts_.bytes() + totals_.bytes();
  }

 private:
  [[nodiscard]] Number number() const { return plan_.config.reduce; }
  [[nodiscard]] std::uint64_t shard_ranks() const {
    return static_cast<std::uint64_t>(plan_.shard_ranks);
  }
  [[nodiscard]] std::uint64_t groups() const { return static_cast<std::uint64_t>(plan_.groups); }

  // Block r of this rank's goes to rank r, whose own comes to its place.
  void exchange(Communicator& comm, void* blocks, std::uint64_t elements) {
    check(tuttiAlltoAll(blocks, blocks, elements, data_type(number()), comm.get(),
                        links_.reduce_stream.get()),
          comm.get());
  }

  void gather(Communicator& comm, float* blocks, std::uint64_t elements, int own) {
    check(tuttiAllGather(blocks + static_cast<std::uint64_t>(own) * elements, blocks, elements,
                         tuttiFloat32, comm.get(), links_.reduce_stream.get()),
          comm.get());
  }

  // The groups' sums are cut into parts, of which each group sums one. The last part may be padded
  // with what is left of another unit, which nobody reads. The stream holds one reduction at a time
  // in parts_ and totals_.
  void sum_groups(const Reduction& reduction, const Blocks& blocks, std::uint64_t shard) {
    const std::uint64_t part = plan_.part_elements(shard);
    std::byte* const parts = parts_.data();
    float* const totals = totals_.floats();
    links_.reduce_stream.launch(
        [parts, blocks, shard] { sum_blocks_narrow(parts, blocks, shard); });
    exchange(links_.replicas, parts, part);
    const Blocks of_groups{parts, plan_.groups, part, number()};
    float* const own = totals + static_cast<std::uint64_t>(links_.group()) * part;
    links_.reduce_stream.launch(
        [own, of_groups, part] { sum_blocks(own, of_groups, part, false); });
    gather(links_.replicas, totals, part, links_.group());
    links_.reduce_stream.launch(
        [reduction, totals, shard] { deliver(reduction, totals, Number::kFloat32, shard); });
  }

  Links& links_;
  const Plan& plan_;
  Block parts_, totals_;
};

}  // namespace

std::unique_ptr<Reducer> make_canonical_reducer(Links& links, const Plan& plan) {
  return std::make_unique<CanonicalReducer>(links, plan);
}

}  // namespace tutti::zero
