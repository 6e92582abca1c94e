// SPDX-License-Identifier: Apache-2.0
#include "zero/gatherer.hpp"

namespace tutti::zero {
namespace {

class PlainGatherer final : public Gatherer {
 public:
  PlainGatherer(Links& links, Number number) : links_(links), number_(number) {}

  void gather(const std::byte* shard, std::byte* whole, std::uint64_t padded_elements) override {
    if (padded_elements == 0) return;
    const tuttiComm_t comm = links_.gathers.get();
    check(tuttiAllGather(shard, whole, padded_elements / ranks(), data_type(number_), comm,
                         links_.gather_stream.get()),
          comm);
  }

  [[nodiscard]] std::uint64_t bytes_sent(std::uint64_t padded_elements) const override {
    return padded_elements / ranks() * (ranks() - 1) * bytes_of(number_);
  }

 private:
  [[nodiscard]] std::uint64_t ranks() const {
    return static_cast<std::uint64_t>(links_.shard_ranks());
  }

  Links& links_;
  Number number_;
};

}  // namespace

tuttiDataType_t data_type(Number number) {
  switch (number) {
    case Number::kBfloat16:
      return tuttiBfloat16;
    case Number::kFloat16:
      return tuttiFloat16;
    case Number::kFloat32:
      break;
  }
  return tuttiFloat32;
}

std::unique_ptr<Gatherer> make_plain_gatherer(Links& links, Number number) {
  return std::make_unique<PlainGatherer>(links, number);
}

}  // namespace tutti::zero
