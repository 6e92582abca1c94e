# SPDX-License-Identifier: Apache-2.0
"""The bugs that the tests of ZeRO must find: one change of src/zero each, and the tests that are
expected to fail with it. `text` is in `file` exactly once."""

from typing import NamedTuple


class Mutation(NamedTuple):
    name: str  # for --only
    bug: str
    file: str  # in src/zero
    text: str
    replacement: str
    program: str  # in tests/zero
    filter: str  # of GoogleTest


PARTS = "zero_parts_test"
ENGINE = "zero_engine_test"
EQUALITY = "ZeroEqualityE0.*:ZeroEqualityE1.*"

MUTATIONS = [
    # Gradients and their sums.
    Mutation("skipped_reduction", "one unit's gradients are not reduced", "sums.cpp",
             "  reducer_->reduce(reduction);", "  if (unit != 2) reducer_->reduce(reduction);",
             ENGINE, EQUALITY),
    Mutation("divided_twice", "gradients are divided by the number of ranks twice", "update.cpp",
             "clip / progress.loss_scale)", "clip / progress.loss_scale / plan_.ranks)",
             ENGINE, EQUALITY),
    Mutation("last_microstep_dropped", "only the first microstep's gradients are summed",
             "reducer_canonical.cpp",
             "sum_blocks(reduction.targets.back(), blocks, shard, reduction.adds);",
             "if (!reduction.adds) sum_blocks(reduction.targets.back(), blocks, shard, false);",
             ENGINE, EQUALITY),
    Mutation("sums_not_zeroed", "gradients and padding keep what the buffer held before",
             "sums.cpp", "  std::memset(sums.stack.back().data, 0,",
             "  if (sums.slots == 0) std::memset(sums.stack.back().data, 0,", ENGINE, EQUALITY),
    Mutation("sum_reused_early", "a buffer of gradients is reused before its reduction is complete",
             "sums.cpp", "    wait_for_unit(unit);  //", "    //", ENGINE, EQUALITY),
    Mutation("groups_not_summed", "groups of hybrid sharding do not add their gradients",
             "reducer_canonical.cpp", "const Blocks of_groups{parts, plan_.groups,",
             "const Blocks of_groups{parts, 1,", ENGINE, EQUALITY),
    Mutation("wrong_rank_order", "blocks are summed in the reverse order of ranks", "blocks.cpp",
             "leaf * blocks.stride_elements + begin",
             "(leaves - 1 - leaf) * blocks.stride_elements + begin", PARTS, "OfBlocks/Sums.*"),
    Mutation("wrong_association", "the tree of sums is another", "tree.hpp",
             "leaf + 1 == leaves ? std::popcount(leaf) : std::countr_one(leaf)",
             "leaf + 1 == leaves ? std::popcount(leaf) : static_cast<int>(leaf > 0)",
             PARTS, "OfBlocks/Sums.*"),
    Mutation("wrong_slots", "slots are dealt to ranks as if gradients were sent once per step",
             "slots.cpp", "each_microstep ? std::int64_t{microstep} * ranks + rank", "false ? 0",
             PARTS, "ZeroSlots.*"),
    Mutation("microsteps_replace_sum", "the last microstep's gradients replace the sum",
             "reducer_canonical.cpp",
             "sum_blocks(reduction.targets.back(), blocks, shard, reduction.adds);",
             "sum_blocks(reduction.targets.back(), blocks, shard, false);", ENGINE, EQUALITY),
    Mutation("microsteps_not_folded", "sums of microsteps are not added up along the tree",
             "reducer_canonical.cpp",
             "  for (int left = reduction.folds; left > 0; --left, --top)",
             "  for (int left = 0; left > 0; --left, --top)", ENGINE, EQUALITY),
    Mutation("fast_reduced_twice", "the fast order reduces gradients twice", "reducer_fast.cpp",
             "if (is_one_call(reduction)) return all_reduce(reduction);",
             "if (is_one_call(reduction)) all_reduce(reduction);", ENGINE, "ZeroEqualityE4.*"),
    Mutation("wrong_group_order", "groups gather their parts in the reverse order",
             "reducer_canonical.cpp",
             "gather(links_.replicas, totals, part, links_.group());",
             "gather(links_.replicas, totals, part, plan_.groups - 1 - links_.group());",
             ENGINE, EQUALITY),
    Mutation("padding_not_zeroed", "the padding of gradients keeps what the buffer held before",
             "sums.cpp", "0, layout_.padded_elements(unit) * sizeof(float));",
             "0, layout_.elements(unit) * sizeof(float));", ENGINE, EQUALITY),
    # The update.
    Mutation("norm_of_own_shard", "each rank clips by the norm of its own shard", "update.cpp",
             "links_.collect(own)", "std::vector<std::uint64_t>(own.begin(), own.end())",
             ENGINE, EQUALITY),
    Mutation("greatest_of_own_shard", "the norm's exponent comes from the own shard", "update.cpp",
             "links_.collect(std::span(&greatest, 1))", "std::vector<std::uint64_t>{greatest}",
             ENGINE, EQUALITY),
    Mutation("shard_ends_early", "the last element of a shard is left out", "state.cpp",
             "std::min(range.end, kept.end);", "std::min(range.end, kept.end - 1);",
             ENGINE, EQUALITY),
    Mutation("decay_of_all", "AdamW decays LayerNorm and biases", "update.cpp",
             ".decays) own.weight_decay = 0;", ".decays) own.weight_decay *= 1;",
             ENGINE, "ZeroEngine.DecayIsForThoseThatDecay"),
    Mutation("truncated_copy", "the 16-bit copy is truncated instead of rounded", "element.hpp",
             "(bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16", "bits >> 16", PARTS, "Isa/OnEach.*"),
    Mutation("overflow_counted", "a step left out for overflow still counts", "update.cpp",
             "    leave_out(length);\n    return",
             "    leave_out(length);\n    ++progress.steps;\n    return", ENGINE, "ZeroNarrow.*"),
    Mutation("not_clipped", "gradients are not clipped", "update.cpp",
             "limit > 0 && length > limit ? limit / length : 1",
             "limit < 0 && length > limit ? limit / length : 1",
             ENGINE, "ZeroEngine.GradientsAreClippedToTheirNorm"),
    Mutation("decay_in_moments", "weight decay is part of the moments", "element.hpp",
             "const float scaled = gradient * terms.factor;",
             "const float scaled =\n"
             "      __builtin_fmaf(terms.weight_decay, parameter, gradient * terms.factor);",
             PARTS, "ZeroOptimizer.*"),
    Mutation("bias_of_first_step", "the second moment's bias is corrected as in the first step",
             "optimizer.cpp", "1 / std::sqrt(1 - std::pow(beta2, count))",
             "1 / std::sqrt(1 - std::pow(beta2, 1.0))", PARTS, "ZeroOptimizer.*"),
    Mutation("stale_copy", "the 16-bit copy of a unit's first parameter is not updated",
             "update.cpp", "narrow ? copy + piece.offset : nullptr",
             "narrow && piece.parameter != 0 ? copy + piece.offset : nullptr",
             ENGINE, "ZeroNarrow.*"),
    # Parameters on their way.
    Mutation("wrong_prefetch", "the prefetch hands out another unit", "residency.cpp",
             "const Entry& entry = learnt_[next_ + ahead_.size()];",
             "const std::size_t at = next_ + ahead_.size();\n"
             "    const Entry& entry = learnt_[at > 3 ? at - 1 : at];", ENGINE, EQUALITY),
    Mutation("no_wait_for_gather", "a unit is used before its gather completes", "residency.cpp",
             "    links_.wait(slot(number).gathered);\n  }\n  Slot& place", "  }\n  Slot& place",
             ENGINE, EQUALITY),
    Mutation("no_wait_for_update", "a unit is gathered before its update completes", "engine.cpp",
             "      it_->update.wait(unit);", "      static_cast<void>(unit);", ENGINE, EQUALITY),
    Mutation("not_poisoned", "freed parameters stay readable", "residency.cpp",
             "if (plan_.config.poison) std::memset(place.data", "if (false) std::memset(place.data",
             ENGINE, "ZeroEngine.FreedBuffersArePoisoned"),
    Mutation("wrong_gather_order", "shards are gathered in the reverse order of ranks",
             "links.cpp", "    gathers = comm.split(group_, rank_);",
             "    gathers = comm.split(group_, -rank_);", ENGINE, EQUALITY),
    Mutation("first_shard_for_all", "each rank sends the first shard after the update",
             "state.cpp", "return whole_parameters(unit) + shard(unit).begin *",
             "return whole_parameters(unit) + 0 * shard(unit).begin *", ENGINE, EQUALITY),
    Mutation("unexpected_unit_taken", "a use gets the unit that was gathered ahead for another",
             "residency.cpp", "next_ == learnt_.size() || learnt_[next_].unit != entry.unit",
             "next_ == learnt_.size()", ENGINE, "ZeroEngine.AnotherOrderOfUseIsLearntAnew"),
    Mutation("stale_after_step", "what was gathered ahead or kept survives a step", "engine.cpp",
             "    if (residency) residency->drop();\n    const float norm", "    const float norm",
             ENGINE, "ZeroEngine.*"),
    Mutation("stale_after_initialize", "what was gathered ahead survives initialize()",
             "engine.cpp", "  if (residency) residency->drop();\n  update.refresh();",
             "  update.refresh();", ENGINE, "ZeroEngine.*"),
    # What is counted and planned.
    Mutation("bytes_without_padding", "the bytes sent are not those of the formula",
             "gatherer.cpp", "return padded_elements / ranks() * (ranks() - 1)",
             "return (padded_elements / ranks() - 1) * (ranks() - 1)", ENGINE, "ZeroUsage.*"),
    Mutation("unplanned_buffer", "one buffer more than planned is allocated", "sums.cpp",
             "buffers_(static_cast<std::uint64_t>(plan.sum_buffers) *",
             "buffers_(static_cast<std::uint64_t>(plan.sum_buffers + 1) *",
             ENGINE, "ZeroUsage.*:ZeroEngine.*"),
    Mutation("kept_after_forward", "units stay gathered from forward to backward", "residency.cpp",
             "  if (plan_.config.keep_after_forward && !place.backward) {",
             "  if (!place.backward) {", ENGINE, "ZeroUsage.*"),
    # Checkpoints.
    Mutation("moments_not_loaded", "a load forgets the second moments", "checkpoint_load.cpp",
             "for (std::size_t i = 0; i < arrays.size(); ++i)\n      std::memcpy(arrays",
             "for (std::size_t i = 0; i < 2; ++i)\n      std::memcpy(arrays",
             ENGINE, "ZeroCheckpoint.*"),
    Mutation("steps_not_loaded", "a load forgets the number of steps", "checkpoint_load.cpp",
             "  progress = index.progress;", "  progress.loss_scale = index.progress.loss_scale;",
             ENGINE, "ZeroCheckpoint.*"),
    Mutation("checksum_ignored", "damage in a checkpoint is not found", "checkpoint_load.cpp",
             "!= saved.checksum)", "!= saved.checksum && false)", ENGINE, "ZeroCheckpoint.*"),
    Mutation("loaded_before_checked", "a load changes the state before all ranks have checked",
             "checkpoint_load.cpp", "reader.read(false); }", "reader.read(true); }",
             ENGINE, "ZeroCheckpoint.*"),
    Mutation("published_before_index", "a checkpoint is published before its index is written",
             "checkpoint_save.cpp",
             "      write_file(partial / kIndexFile, index_text(kept, texts, progress, note));\n"
             "      sync_folder(partial);\n"
             "      publish_folder(partial, path);",
             "      publish_folder(partial, path);\n"
             "      write_file(path / kIndexFile, index_text(kept, texts, progress, note));",
             ENGINE, "ZeroCheckpoint.*"),
]
