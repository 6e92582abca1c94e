// SPDX-License-Identifier: Apache-2.0
// Values as hash-consed ordered reduction trees: equal trees have equal numbers, so "the same bits
// on every rank" is a comparison of integers.
//
// A tree is a leaf (one rank's input chunk, raw), a reduction of trees in order (partial, one
// rounding), or a finished tree (final). Each tree carries the set of ranks that contribute to it,
// made once when the tree is first seen. Trees of one chunk only are ever reduced together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schedule/verify/rules.hpp"

namespace tutti::proof {

using TreeId = std::uint32_t;
inline constexpr TreeId kNoTree = 0;

// Gives equal sequences of words equal numbers, from 1 on in the order of their first appearance.
class Interner {
 public:
  Interner();
  // The sequence's number, and whether it is new.
  std::pair<std::uint32_t, bool> intern(std::span<const std::uint32_t> words);
  [[nodiscard]] std::optional<std::uint32_t> find(std::span<const std::uint32_t> words) const;
  [[nodiscard]] std::span<const std::uint32_t> words_of(std::uint32_t number) const;

 private:
  [[nodiscard]] std::size_t slot_of(std::span<const std::uint32_t> words) const;
  void grow();

  std::vector<std::uint32_t> pool_;
  std::vector<std::uint64_t> ends_;   // of sequence n in the pool; [0] is 0
  std::vector<std::uint32_t> table_;  // open addressing, 0: free
};

enum class TreeKind : std::uint32_t { kLeaf, kReduce, kFinish };

struct TreeFacts {
  TreeKind kind = TreeKind::kLeaf;
  std::uint32_t chunk = 0;
  std::uint32_t shape = 0;      // number of the tree with its chunk left out
  std::uint32_t roundings = 0;  // most reductions above a leaf
  Rank first = 0, last = 0;     // leftmost and rightmost leaf
  bool rank_order = true;       // leaves from left to right are in ascending rank order
};

struct TreeFault {
  Rule rule;
  std::string text;
};

class Trees {
 public:
  explicit Trees(std::int32_t ranks);

  [[nodiscard]] TreeId leaf(Rank rank, std::uint32_t chunk);
  // Takes at least two trees. Falls where they overlap, mix chunks or are finished.
  [[nodiscard]] tl::expected<TreeId, TreeFault> reduce(std::span<const TreeId> children);
  [[nodiscard]] tl::expected<TreeId, TreeFault> finish(TreeId child);

  [[nodiscard]] const TreeFacts& facts(TreeId tree) const { return facts_[tree]; }
  // The lowest rank that does not contribute, or kNoRank.
  [[nodiscard]] Rank first_missing(TreeId tree) const;
  // "finish(reduce(r0, reduce(r2, r1)))", cut after `limit` characters.
  [[nodiscard]] std::string to_text(TreeId tree, std::size_t limit = 120) const;

 private:
  [[nodiscard]] std::optional<TreeFault> check_reduce(std::span<const TreeId> children);
  TreeId add(std::span<const std::uint32_t> words, const TreeFacts& facts);
  void append_text(TreeId tree, std::size_t limit, std::string& text) const;
  [[nodiscard]] std::span<std::uint64_t> members(TreeId tree) {
    return std::span(members_).subspan(tree * words_, words_);
  }
  [[nodiscard]] std::span<const std::uint64_t> members(TreeId tree) const {
    return std::span(members_).subspan(tree * words_, words_);
  }

  std::int32_t ranks_;
  std::size_t words_;  // of one member set
  Interner trees_, shapes_;
  std::vector<TreeFacts> facts_;        // by tree; [0] is no tree
  std::vector<std::uint64_t> members_;  // bit r: rank r contributes
  std::vector<std::uint64_t> joined_;   // working memory of reduce
  std::vector<std::uint32_t> key_;      // working memory of all
};

}  // namespace tutti::proof
