// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

#include "zero/checkpoint.hpp"
#include "zero/checkpoint_index.hpp"
#include "zero/file.hpp"

namespace tutti::zero {
namespace {

namespace fs = std::filesystem;

using Shape = std::vector<std::int64_t>;
using Tensors = std::map<std::string, const SavedTensor*>;

std::string text_of_shape(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

// The tensors by name, if they are those of the model.
Tensors matched(const CheckpointIndex& index, std::span<const Unit> units,
                const std::string& path) {
  Tensors tensors;
  for (const SavedTensor& tensor : index.tensors) tensors.emplace(tensor.name, &tensor);
  std::size_t parameters = 0;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters) {
      ++parameters;
      const auto found = tensors.find(parameter.name);
      if (found == tensors.end())
        throw std::runtime_error("the checkpoint " + path + " has no parameter '" + parameter.name +
                                 "'");
      if (found->second->shape != parameter.shape)
        throw std::runtime_error("the checkpoint " + path + " has '" + parameter.name +
                                 "' in the shape " + text_of_shape(found->second->shape) +
                                 ", the model in " + text_of_shape(parameter.shape));
    }
  if (parameters != index.tensors.size())
    throw std::runtime_error("the checkpoint " + path + " has " +
                             std::to_string(index.tensors.size()) + " parameters, the model " +
                             std::to_string(parameters));
  return tensors;
}

class ShardReader {
 public:
  ShardReader(const Kept& kept, fs::path folder, const Tensors& tensors)
      : kept_(kept), folder_(std::move(folder)), tensors_(tensors) {}

  // Reads and checks all that overlaps what is kept; `takes`: and writes it there.
  void read(bool takes) {
    for (int unit = 0; unit < kept_.layout.units(); ++unit) {
      const UnitArrays arrays = kept_.state.arrays(unit);
      for (const Piece& piece : kept_.state.pieces(unit))
        read(unit, piece, takes ? &arrays : nullptr);
    }
  }

 private:
  void read(int unit, const Piece& piece, const UnitArrays* into) {
    const Unit& of = kept_.units[static_cast<std::size_t>(unit)];
    const Parameter& parameter = of.parameters[static_cast<std::size_t>(piece.parameter)];
    const SavedTensor& tensor = *tensors_.at(parameter.name);
    const std::uint64_t end = piece.first + piece.elements;
    // The last piece that begins at or before the first element: pieces cover the tensor.
    auto saved = std::ranges::upper_bound(tensor.pieces, piece.first, {}, &SavedPiece::first) - 1;
    for (; saved != tensor.pieces.end() && saved->first < end; ++saved) {
      load(*saved, parameter.name);
      if (into != nullptr) take(*saved, piece, *into);
    }
  }

  void load(const SavedPiece& saved, const std::string& name) {
    buffer_.resize(static_cast<std::size_t>(saved.elements) * kPieceArrays);
    const auto bytes = std::as_writable_bytes(std::span(buffer_));
    file(saved.file).read(bytes, saved.offset_bytes);
    if (checksum_of(bytes.data(), bytes.size()) != saved.checksum)
      throw std::runtime_error(
          "the checkpoint is damaged: elements " + std::to_string(saved.first) + " to " +
          std::to_string(saved.first + saved.elements - 1) + " of '" + name + "' in " +
          (folder_ / shard_file(saved.file)).string() + " do not have their checksum");
  }

  void take(const SavedPiece& saved, const Piece& piece, const UnitArrays& into) {
    const std::uint64_t begin = std::max(saved.first, piece.first);
    const std::uint64_t end = std::min(saved.first + saved.elements, piece.first + piece.elements);
    const std::array<float*, kPieceArrays> arrays{into.parameters, into.first_moments,
                                                  into.second_moments};
    for (std::size_t i = 0; i < arrays.size(); ++i)
      std::memcpy(arrays[i] + piece.offset + (begin - piece.first),
                  buffer_.data() + i * saved.elements + (begin - saved.first),
                  (end - begin) * sizeof(float));
  }

  // One is open at a time: a checkpoint may have more files than a process descriptors.
  File& file(int number) {
    if (!file_ || number_ != number) {
      file_.reset();
      file_.emplace(File::open(folder_ / shard_file(number)));
      number_ = number;
    }
    return *file_;
  }

  const Kept& kept_;
  fs::path folder_;
  const Tensors& tensors_;
  std::optional<File> file_;
  int number_ = 0;  // of file_
  std::vector<float> buffer_;
};

// Of a save that was killed between two names, the old one (publish_folder).
fs::path present(const fs::path& path) {
  const fs::path old = path.string() + ".old";
  return !fs::exists(path) && fs::exists(old / kIndexFile) ? old : path;
}

}  // namespace

bool is_checkpoint(const fs::path& path) { return fs::exists(present(path) / kIndexFile); }

std::string load_checkpoint(const Kept& kept, const fs::path& given, Progress& progress) {
  const fs::path path = present(given);
  CheckpointIndex index;
  Tensors tensors;
  kept.links.agree(error_of([&] {
    index = parse_index(read_file(path / kIndexFile));
    tensors = matched(index, kept.units, path.string());
  }));
  ShardReader reader(kept, path, tensors);
  kept.links.agree(error_of([&] { reader.read(false); }));
  try {
    kept.links.agree(error_of([&] { reader.read(true); }));
  } catch (const Refused& error) {
    throw Agreed(error.what());  // some of it is taken
  }
  progress = index.progress;
  return index.note;
}

}  // namespace tutti::zero
