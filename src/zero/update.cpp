// SPDX-License-Identifier: Apache-2.0
#include "zero/update.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "zero/blocks.hpp"
#include "zero/kernels.hpp"
#include "zero/norm.hpp"
#include "zero/optimizer.hpp"
#include "zero/settings.hpp"

namespace tutti::zero {

Update::Update(const Plan& plan, const Layout& layout, std::span<const Unit> units, State& state,
               Links& links)
    : plan_(plan),
      layout_(layout),
      units_(units),
      state_(state),
      links_(links),
      gathered_(static_cast<std::size_t>(layout.units())) {
  if (plan.whole_parameters && !plan.whole_state && plan.shard_ranks > 1)
    gatherer_ = make_plain_gatherer(links, plan.config.compute);
  begin_anew();
}

void Update::begin_anew() {
  progress = {};
  const float initial = plan_.config.loss_scaling.initial;
  if (initial != 0) progress.loss_scale = initial;
}

Progress Update::saved() const {
  Progress saved = progress;
  if (plan_.config.loss_scaling.initial == 0) saved.loss_scale = 0;
  return saved;
}

void Update::restore(const Progress& from) {
  begin_anew();
  progress.steps = from.steps;
  if (plan_.config.loss_scaling.initial == 0 || from.loss_scale == 0) return;
  progress.loss_scale = from.loss_scale;
  progress.good_steps = from.good_steps;
}

std::span<const float> Update::shard_gradients(int unit) {
  const Range own = state_.own_part(unit);
  return {state_.kept_gradients(unit) + own.begin, static_cast<std::size_t>(own.elements())};
}

double Update::norm(std::uint64_t terms) {
  std::uint64_t greatest = 0;
  for (int unit = 0; unit < layout_.units(); ++unit)
    greatest = std::max<std::uint64_t>(greatest, greatest_magnitude_bits(shard_gradients(unit)));
  const std::array own_words{greatest, terms};
  const std::vector<std::uint64_t> of_ranks = links_.collect(own_words);
  for (std::size_t i = 0; i < of_ranks.size(); i += own_words.size()) {
    greatest = std::max(greatest, of_ranks[i]);
    if (of_ranks[i + 1] != of_ranks[1])
      throw Agreed("step() of rank " + std::to_string(links_.rank_of(i / own_words.size())) +
                   " has another optimizer, or other coefficients, than that of rank " +
                   std::to_string(links_.rank_of(0)) + "; all ranks must give the same");
  }
  const auto bits = static_cast<std::uint32_t>(greatest);
  if (bits == 0) return 0;
  if (!is_finite(bits)) return std::numeric_limits<double>::infinity();
  Limbs own{};
  for (int unit = 0; unit < layout_.units(); ++unit)
    add_limbs(own, scaled_squares(shard_gradients(unit), bits));
  const std::vector<std::uint64_t> limbs = links_.collect(own);
  Limbs sum{};
  for (std::size_t rank = 0; rank < limbs.size() / own.size(); ++rank)
    for (std::size_t i = 0; i < own.size(); ++i) sum[i] += limbs[rank * own.size() + i];
  return norm_of(sum, bits) / progress.loss_scale;
}

void Update::leave_out(double norm) {
  if (plan_.config.loss_scaling.initial == 0)
    throw Agreed("gradients of step " + std::to_string(progress.steps + 1) +
                 " are not finite (norm " + std::to_string(norm) +
                 "): lower the learning rate, or set Config::loss_scaling if they "
                 "overflow on their way");
  progress.loss_scale = std::max(progress.loss_scale / 2, std::numeric_limits<float>::min());
  progress.good_steps = 0;
  ++links_.usage.skipped_steps;
}

void Update::grow_scale() {
  const LossScaling& scaling = plan_.config.loss_scaling;
  if (scaling.initial == 0 || ++progress.good_steps < scaling.growth_steps) return;
  progress.good_steps = 0;
  const float doubled = progress.loss_scale * 2;
  if (std::isfinite(doubled)) progress.loss_scale = doubled;
}

template <typename Optimizer>
float Update::step(const Optimizer& optimizer) {
  const double length = norm(digest_of(settings_of(optimizer)));
  if (!std::isfinite(static_cast<float>(length))) {
    leave_out(length);
    return static_cast<float>(length);
  }
  const double limit = plan_.config.clip_norm;
  const double clip = limit > 0 && length > limit ? limit / length : 1;
  const auto terms = terms_of(optimizer, progress.steps + 1, clip / progress.loss_scale);
  for (int unit = 0; unit < layout_.units(); ++unit) {
    run(terms, unit);
    gather(unit);
  }
  ++progress.steps;
  grow_scale();
  return static_cast<float>(length);
}

template float Update::step(const AdamW& optimizer);
template float Update::step(const Sgd& optimizer);

template <typename Terms>
void Update::run_pieces(const Terms& terms, int unit,
                        void (*loop)(const Terms&, const StepOperands&, std::size_t)) {
  const bool narrow = plan_.narrow_compute();
  const UnitArrays arrays = state_.arrays(unit);
  if (unit + 1 < layout_.units()) state_.prefetch(unit + 1);
  for (const Piece& piece : state_.pieces(unit)) {
    const Unit& owner = units_[static_cast<std::size_t>(unit)];
    Terms own = terms;
    if (!owner.parameters[static_cast<std::size_t>(piece.parameter)].decays) own.weight_decay = 0;
    auto* const copy = reinterpret_cast<std::uint16_t*>(state_.kept_parameters(unit));
    loop(own,
         {arrays.parameters + piece.offset, arrays.first_moments + piece.offset,
          arrays.second_moments + piece.offset, state_.kept_gradients(unit) + piece.offset,
          narrow ? copy + piece.offset : nullptr, plan_.config.compute},
         static_cast<std::size_t>(piece.elements));
  }
}

void Update::run(const AdamWTerms& terms, int unit) { run_pieces(terms, unit, kernels().adamw); }
void Update::run(const SgdTerms& terms, int unit) { run_pieces(terms, unit, kernels().sgd); }

void Update::gather(int unit) {
  const std::uint64_t padded = layout_.padded_elements(unit);
  if (gatherer_ == nullptr || padded == 0) return;
  const Event& done = gathered_[static_cast<std::size_t>(unit)];
  gatherer_->gather(state_.shard_parameters(unit), state_.whole_parameters(unit), padded);
  links_.gather_stream.record(done);
  links_.usage.update_gather_bytes += gatherer_->bytes_sent(padded);
  if (!plan_.config.overlap) links_.wait(done);
}

void Update::refresh() {
  for (int unit = 0; unit < layout_.units(); ++unit) {
    if (plan_.narrow_compute())
      narrow(state_.kept_parameters(unit), plan_.config.compute, state_.arrays(unit).parameters,
             static_cast<std::size_t>(state_.kept(unit).elements()));
    gather(unit);
  }
}

void Update::wait(int unit) {
  if (gatherer_ != nullptr) links_.wait(gathered_[static_cast<std::size_t>(unit)]);
}

void Update::wait_all() {
  for (int unit = 0; unit < layout_.units(); ++unit) wait(unit);
}

}  // namespace tutti::zero
