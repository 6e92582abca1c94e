// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/trees.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace tutti::proof {

Interner::Interner() : ends_(1), table_(1024) {}

std::span<const std::uint32_t> Interner::words_of(std::uint32_t number) const {
  return std::span(pool_).subspan(ends_[number - 1], ends_[number] - ends_[number - 1]);
}

// The slot that holds `words`, or the free one where they belong.
std::size_t Interner::slot_of(std::span<const std::uint32_t> words) const {
  std::uint64_t hash = 0x9e3779b97f4a7c15;
  for (const std::uint32_t word : words) {
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = hash & mask;
  while (table_[slot] != 0 && !std::ranges::equal(words_of(table_[slot]), words))
    slot = (slot + 1) & mask;
  return slot;
}

std::optional<std::uint32_t> Interner::find(std::span<const std::uint32_t> words) const {
  const std::uint32_t found = table_[slot_of(words)];
  return found == 0 ? std::nullopt : std::optional(found);
}

std::pair<std::uint32_t, bool> Interner::intern(std::span<const std::uint32_t> words) {
  std::size_t slot = slot_of(words);
  if (table_[slot] != 0) return {table_[slot], false};
  if (ends_.size() * 2 > table_.size()) {
    grow();
    slot = slot_of(words);
  }
  pool_.insert(pool_.end(), words.begin(), words.end());
  ends_.push_back(pool_.size());
  table_[slot] = static_cast<std::uint32_t>(ends_.size() - 1);
  return {table_[slot], true};
}

void Interner::grow() {
  table_.assign(table_.size() * 2, 0);
  for (std::uint32_t number = 1; number < ends_.size(); ++number)
    table_[slot_of(words_of(number))] = number;
}

Trees::Trees(std::int32_t ranks)
    : ranks_(ranks),
      words_((static_cast<std::size_t>(ranks) + 63) / 64),
      facts_(1),
      members_(words_),
      joined_(words_) {}

// `words` are new; the caller fills the members.
TreeId Trees::add(std::span<const std::uint32_t> words, const TreeFacts& facts) {
  const TreeId tree = trees_.intern(words).first;
  facts_.push_back(facts);
  members_.resize(members_.size() + words_);
  return tree;
}

TreeId Trees::leaf(Rank rank, std::uint32_t chunk) {
  const auto r = static_cast<std::uint32_t>(rank);
  const std::uint32_t words[] = {static_cast<std::uint32_t>(TreeKind::kLeaf), r, chunk};
  if (const auto known = trees_.find(words)) return *known;
  const std::uint32_t shape = shapes_.intern(std::span(words).first(2)).first;
  const TreeId tree = add(words, {.chunk = chunk, .shape = shape, .first = rank, .last = rank});
  members(tree)[r / 64] = std::uint64_t{1} << (r % 64);
  return tree;
}

std::optional<TreeFault> Trees::check_reduce(std::span<const TreeId> children) {
  std::fill(joined_.begin(), joined_.end(), 0);
  const std::uint32_t chunk = facts_[children.front()].chunk;
  for (const TreeId child : children) {
    const TreeFacts& facts = facts_[child];
    if (facts.kind == TreeKind::kFinish)
      return TreeFault{Rule::kFinish, fmt::format("reduces a finished value, {}", to_text(child))};
    if (facts.chunk != chunk)
      return TreeFault{Rule::kMixedChunks, fmt::format("reduces contributions to chunk {} with "
                                                       "those to chunk {}",
                                                       facts.chunk, chunk)};
    const auto set = members(child);
    for (std::size_t w = 0; w < words_; ++w) {
      if (const std::uint64_t both = joined_[w] & set[w])
        return TreeFault{
            Rule::kDuplicate,
            fmt::format("rank {}'s contribution to chunk {} arrives twice, expected once",
                        w * 64 + static_cast<std::size_t>(std::countr_zero(both)), chunk)};
      joined_[w] |= set[w];
    }
  }
  return std::nullopt;
}

tl::expected<TreeId, TreeFault> Trees::reduce(std::span<const TreeId> children) {
  key_.assign(1, static_cast<std::uint32_t>(TreeKind::kReduce));
  key_.insert(key_.end(), children.begin(), children.end());
  if (const auto known = trees_.find(key_)) return *known;
  if (auto fault = check_reduce(children)) return tl::unexpected(std::move(*fault));
  TreeFacts facts{.kind = TreeKind::kReduce, .chunk = facts_[children.front()].chunk};
  facts.first = facts_[children.front()].first;
  facts.last = facts_[children.back()].last;
  std::vector<std::uint32_t> shape{static_cast<std::uint32_t>(TreeKind::kReduce)};
  Rank before = kNoRank;
  for (const TreeId child : children) {
    const TreeFacts& part = facts_[child];
    shape.push_back(part.shape);
    facts.roundings = std::max(facts.roundings, part.roundings + 1);
    facts.rank_order = facts.rank_order && part.rank_order && before < part.first;
    before = part.last;
  }
  facts.shape = shapes_.intern(shape).first;
  const TreeId tree = add(key_, facts);
  std::ranges::copy(joined_, members(tree).begin());
  return tree;
}

tl::expected<TreeId, TreeFault> Trees::finish(TreeId child) {
  if (facts_[child].kind == TreeKind::kFinish)
    return tl::unexpected(
        TreeFault{Rule::kFinish, fmt::format("finishes a finished value, {}", to_text(child))});
  const std::uint32_t words[] = {static_cast<std::uint32_t>(TreeKind::kFinish), child};
  if (const auto known = trees_.find(words)) return *known;
  TreeFacts facts = facts_[child];
  facts.kind = TreeKind::kFinish;
  const std::uint32_t shape[] = {words[0], facts.shape};
  facts.shape = shapes_.intern(shape).first;
  const TreeId tree = add(words, facts);
  std::ranges::copy(members(child), members(tree).begin());
  return tree;
}

Rank Trees::first_missing(TreeId tree) const {
  const auto set = members(tree);
  for (std::size_t w = 0; w < words_; ++w) {
    if (set[w] == ~std::uint64_t{0}) continue;
    const auto rank = static_cast<Rank>(w * 64) + std::countr_one(set[w]);
    return rank < ranks_ ? rank : kNoRank;
  }
  return kNoRank;
}

void Trees::append_text(TreeId tree, std::size_t limit, std::string& text) const {
  if (text.size() > limit) return;
  if (tree == kNoTree) {
    text += "nothing";
    return;
  }
  const std::span<const std::uint32_t> words = trees_.words_of(tree);
  const TreeKind kind = facts_[tree].kind;
  if (kind == TreeKind::kLeaf) {
    text += fmt::format("r{}", words[1]);
    return;
  }
  text += kind == TreeKind::kFinish ? "finish(" : "reduce(";
  for (std::size_t i = 1; i < words.size() && text.size() <= limit; ++i) {
    if (i > 1) text += ", ";
    append_text(words[i], limit, text);
  }
  text += ")";
}

// Not recursive beyond the limit: each level writes before it descends.
std::string Trees::to_text(TreeId tree, std::size_t limit) const {
  std::string text;
  append_text(tree, limit, text);
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

}  // namespace tutti::proof
