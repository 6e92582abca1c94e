// SPDX-License-Identifier: Apache-2.0
// Composition: the program of a rank put together from programs of other algorithms, its parts.
//
// The whole's chunks form a grid of rows and columns (chunk = row * columns + column). A part works
// on some columns or some rows of it, among some of the ranks, in buffers that the whole chooses.
// Parts keep their lanes, so that one slice may be in one part while the next is in another; where
// a step of a part touches what steps of an earlier part of the same rank touch, it waits for them.
// Where a rank has no output for what one part leaves to the next, scratch of the whole holds it: a
// tile of the grid. Slices share its versions, so an earlier part waits there for the later parts
// of the slice that had the version before.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti {

struct Grid {
  std::uint32_t rows = 1, columns = 1;
};

// A rectangle of the grid that scratch holds, row by row from slot 0 on.
struct Tile {
  std::uint32_t first_row = 0, first_column = 0, columns = 1;
};

// How a part lies in the whole. Its spans must be runs; along rows they may also be strided. Those
// that lie in a tile, and those of a single row, must not go around the end.
struct Placement {
  enum class Axis : std::uint8_t {
    kColumns,  // the part's chunk k is the k-th of `chunks` nearly equal groups of columns, all
               // rows
    kRows,     // it is row k of `width` columns from `first_column` on
    kRow,      // it is column k of the row `row`
  };
  Axis axis = Axis::kColumns;
  std::uint32_t chunks = 1;        // of the part
  std::uint32_t first_column = 0;  // kRows
  std::uint32_t width = 1;         // kRows
  std::uint32_t row = 0;           // kRow
  std::function<Rank(Rank)> rank_of = {};
  // The whole's buffers in which the part finds its input, leaves its output, and keeps the values
  // of its scratch, as it names their chunks beside them. kScratch is the tile.
  BufferKind input = BufferKind::kInput, output = BufferKind::kOutput, sums = BufferKind::kOutput;
  Tile tile = {};
  // Is its scratch the whole's, slot by slot, each as wide as a chunk of the part, instead of kept
  // by name? Not along kColumns.
  bool own_slots = false;
  Tag first_tag = 0;
  bool finish = false;  // do its finished values stay finished?
  std::string name;     // before its lanes' names
};

class Composition {
 public:
  // `versions` of `scratch` slots, as the shape of the whole has them.
  explicit Composition(Grid grid, std::uint32_t scratch = 0, std::uint32_t versions = 1)
      : grid_(grid), scratch_(scratch), versions_(versions) {}

  // Appends a part. Of values that its scratch has by name it has one for a chunk at most. Parts
  // run in the order of their dependencies, not of the calls.
  void add(const RankProgram& part, const Placement& placement);
  [[nodiscard]] RankProgram take();

 private:
  // The first and the last step of a lane that read or wrote a chunk or a slot.
  struct Use {
    std::uint32_t lane, first, last;
    bool write;
  };

  [[nodiscard]] std::uint32_t chunks() const { return grid_.rows * grid_.columns; }
  [[nodiscard]] Operand place(const Operand& operand, const Step& step,
                              const Placement& placement) const;
  [[nodiscard]] Span place(const Span& span, const Placement& placement) const;
  [[nodiscard]] Span in_tile(const Span& span, const Tile& tile) const;
  [[nodiscard]] Step place(const Step& step, const Placement& placement) const;
  void add_waits(Step& step, std::vector<std::uint32_t>& awaited) const;
  void add_waits_for_slots();
  void record_uses();

  Grid grid_;
  std::uint32_t scratch_, versions_;
  RankProgram program_;
  // By chunk, then by slot, of the lanes recorded so far. A rank that has one part alone, as most
  // have in a gather, needs none of them, and does not pay for all chunks that there are.
  std::vector<std::vector<Use>> uses_;
  std::uint32_t recorded_ = 0;
};

}  // namespace tutti
