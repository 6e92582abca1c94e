// SPDX-License-Identifier: Apache-2.0
// The index of a checkpoint, and its text. It says nothing of stages or units: a tensor is a name,
// a shape and pieces that cover it, so any number of ranks can write and read it. What is read from
// a file is checked, never believed. Pure.
//
// A checkpoint is a folder: index.json, and rank-N.bin for each rank that wrote. A piece of a
// tensor lies in one of these as three runs of fp32 (little-endian): parameters, first moments,
// second moments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/update.hpp"

namespace tutti::zero {

inline constexpr int kCheckpointVersion = 1;
inline constexpr int kPieceArrays = 3;
// The most elements of a piece: what is read and checked to take one of them.
inline constexpr std::uint64_t kPieceElements = std::uint64_t{1} << 16;

struct SavedPiece {
  std::uint64_t first = 0, elements = 0;  // of the tensor
  int file = 0;                           // N of rank-N.bin
  std::uint64_t offset_bytes = 0;
  std::string checksum;  // BLAKE2b-256 of the piece's bytes, in hex
};
struct SavedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<SavedPiece> pieces;  // in the order of their elements
};
struct CheckpointIndex {
  Progress progress;
  std::string note;
  std::vector<SavedTensor> tensors;
};

// The pieces that one rank wrote, as it sends them to the one that writes the index.
[[nodiscard]] std::string text_of(const std::vector<SavedTensor>& tensors);
// Adds them to the tensors of the same name. Throws std::runtime_error for a text that is none.
void add_pieces(std::vector<SavedTensor>& tensors, const std::string& text);

// Throws std::invalid_argument if the note is not UTF-8.
[[nodiscard]] std::string text_of(const CheckpointIndex& index);
// Throws std::runtime_error for a text that is damaged, or of another version.
[[nodiscard]] CheckpointIndex parse_index(const std::string& text);

[[nodiscard]] std::string checksum_of(const void* data, std::size_t bytes);

}  // namespace tutti::zero
