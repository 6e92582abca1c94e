// SPDX-License-Identifier: Apache-2.0
// Composition: the program of a rank put together from programs of other algorithms, its parts.
//
// The whole's chunks form a grid of rows and columns (chunk = row * columns + column). A part works
// on some columns or some rows of it, among some of the ranks, in buffers that the whole chooses.
// Parts keep their lanes, so that one slice may be in one part while the next is in another; where
// a step of a part touches what steps of an earlier part of the same rank touch, it waits for them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti {

struct Grid {
  std::uint32_t rows = 1, columns = 1;
};

// How a part lies in the whole. Its spans must be runs; along rows they may also be strided.
struct Placement {
  enum class Axis : std::uint8_t {
    kColumns,  // the part's chunk k is the k-th of `chunks` nearly equal groups of columns, all
               // rows
    kRows,     // it is row k of `width` columns from `first_column` on
  };
  Axis axis = Axis::kColumns;
  std::uint32_t chunks = 1;        // of the part
  std::uint32_t first_column = 0;  // kRows
  std::uint32_t width = 1;         // kRows
  std::function<Rank(Rank)> rank_of;
  BufferKind input =
      BufferKind::kInput;  // where the part finds its input; its output is the whole's
  Tag first_tag = 0;
  bool finish = false;  // do its finished values stay finished?
  std::string name;     // before its lanes' names
};

class Composition {
 public:
  explicit Composition(Grid grid) : grid_(grid), uses_(std::size_t{grid.rows} * grid.columns) {}

  // Appends a part. Its scratch becomes output of the whole, so it has one room for a chunk at
  // most. Parts run in the order of their dependencies, not of the calls.
  void add(const RankProgram& part, const Placement& placement);
  [[nodiscard]] RankProgram take() { return std::move(program_); }

 private:
  // The last step of a lane that read or wrote a chunk.
  struct Use {
    std::uint32_t lane, step;
    bool write;
  };

  [[nodiscard]] Operand place(const Operand& operand, const Placement& placement) const;
  [[nodiscard]] Span place(const Span& span, const Placement& placement) const;
  [[nodiscard]] Step place(const Step& step, const Placement& placement) const;
  void add_waits(Step& step, std::vector<std::uint32_t>& awaited) const;
  void record_uses(std::uint32_t first_lane);

  Grid grid_;
  RankProgram program_;
  std::vector<std::vector<Use>> uses_;  // by chunk, of the parts added so far
};

}  // namespace tutti
