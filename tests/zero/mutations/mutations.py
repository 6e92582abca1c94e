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
    # What is counted and planned.
    Mutation("bytes_without_padding", "the bytes sent are not those of the formula",
             "gatherer.cpp", "return padded_elements / ranks() * (ranks() - 1)",
             "return (padded_elements / ranks() - 1) * (ranks() - 1)", ENGINE, "ZeroUsage.*"),
    Mutation("unplanned_buffer", "one buffer more than planned is allocated", "sums.cpp",
             "buffers_(static_cast<std::uint64_t>(plan.sum_buffers) *",
             "buffers_(static_cast<std::uint64_t>(plan.sum_buffers + 1) *",
             ENGINE, "ZeroUsage.*:ZeroEngine.*"),
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
