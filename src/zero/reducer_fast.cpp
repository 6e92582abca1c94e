// SPDX-License-Identifier: Apache-2.0
#include "zero/blocks.hpp"
#include "zero/gatherer.hpp"
#include "zero/reducer.hpp"

namespace tutti::zero {
namespace {

class FastReducer final : public Reducer {
 public:
  FastReducer(Links& links, const Plan& plan) : links_(links), plan_(plan) {}

  void reduce(const Reduction& reduction) override {
    if (reduction.padded_elements == 0) return;
    if (is_one_call(reduction)) return all_reduce(reduction);
    const tuttiStream_t stream = links_.reduce_stream.get();
    const tuttiDataType_t type = data_type(number());
    void* const wire = plan_.narrow_reduce() ? reduction.wire : reduction.sum;
    if (plan_.narrow_reduce()) narrow(wire, number(), reduction.sum, reduction.padded_elements);
    const std::uint64_t shard = reduction.padded_elements / shard_ranks();
    const auto place = static_cast<std::uint64_t>(links_.shard()) * shard;
    std::byte* const own = static_cast<std::byte*>(wire) + place * bytes_of(number());
    if (shard_ranks() > 1)
      check(tuttiReduceScatter(wire, own, shard, type, tuttiSum, links_.reductions.get(), stream),
            links_.reductions.get());
    if (plan_.groups > 1)
      check(tuttiAllReduce(own, own, shard, type, tuttiSum, links_.replicas.get(), stream),
            links_.replicas.get());
    links_.reduce_stream.launch(
        [reduction, own, shard, number = number()] { deliver(reduction, own, number, shard); });
    if (reduction.whole && shard_ranks() > 1)
      check(tuttiAllGather(reduction.sum + place, reduction.sum, shard, tuttiFloat32,
                           links_.reductions.get(), stream),
            links_.reductions.get());
  }

  // Where the library takes more steps with fewer messages, it sends more.
  [[nodiscard]] std::uint64_t bytes_sent(const Reduction& reduction) const override {
    const std::uint64_t shard = reduction.padded_elements / shard_ranks();
    const auto groups = static_cast<std::uint64_t>(plan_.groups);
    return shard * (shard_ranks() - 1) *
               (bytes_of(number()) + (reduction.whole ? sizeof(float) : 0)) +
           2 * plan_.part_elements(shard) * (groups - 1) * bytes_of(number());
  }

  [[nodiscard]] std::uint64_t memory_bytes() const override { return 0; }

 private:
  [[nodiscard]] Number number() const { return plan_.config.reduce; }
  [[nodiscard]] std::uint64_t shard_ranks() const {
    return static_cast<std::uint64_t>(plan_.shard_ranks);
  }
  [[nodiscard]] bool is_one_call(const Reduction& reduction) const {
    return reduction.whole && !plan_.narrow_reduce() && plan_.groups == 1;
  }
  void all_reduce(const Reduction& reduction) {
    check(tuttiAllReduce(reduction.sum, reduction.sum, reduction.padded_elements, tuttiFloat32,
                         tuttiSum, links_.reductions.get(), links_.reduce_stream.get()),
          links_.reductions.get());
  }

  Links& links_;
  const Plan& plan_;
};

}  // namespace

std::unique_ptr<Reducer> make_fast_reducer(Links& links, const Plan& plan) {
  return std::make_unique<FastReducer>(links, plan);
}

}  // namespace tutti::zero
