// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "zero/checkpoint.hpp"
#include "zero/checkpoint_index.hpp"
#include "zero/file.hpp"

namespace tutti::zero {
namespace {

namespace fs = std::filesystem;

void remove_leftovers(const fs::path& path) {
  const std::string prefix = path.filename().string() + ".partial-";
  for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path()))
    if (entry.path().filename().string().starts_with(prefix)) fs::remove_all(entry.path());
}

class ShardWriter {
 public:
  ShardWriter(const Kept& kept, const fs::path& folder)
      : kept_(kept), file_(File::create(folder / shard_file(kept.links.shard()))) {}

  std::vector<SavedTensor> write() {
    for (int unit = 0; unit < kept_.layout.units(); ++unit) {
      const UnitArrays arrays = kept_.state.arrays(unit);
      for (const Piece& piece : kept_.state.pieces(unit)) write(unit, piece, arrays);
    }
    file_.sync();
    return std::move(tensors_);
  }

 private:
  void write(int unit, const Piece& piece, const UnitArrays& arrays) {
    const Range range = kept_.state.own_part(unit);
    const std::uint64_t begin = std::max(piece.offset, range.begin);
    const std::uint64_t end = std::min(piece.offset + piece.elements, range.end);
    const Unit& of = kept_.units[static_cast<std::size_t>(unit)];
    SavedTensor tensor{of.parameters[static_cast<std::size_t>(piece.parameter)].name, {}, {}};
    for (std::uint64_t at = begin; at < end; at += kPieceElements)
      tensor.pieces.push_back(
          write(arrays, at, std::min(kPieceElements, end - at), piece.first + (at - piece.offset)));
    tensors_.push_back(std::move(tensor));
  }

  SavedPiece write(const UnitArrays& of_unit, std::uint64_t at, std::uint64_t elements,
                   std::uint64_t first) {
    const std::array<const float*, kPieceArrays> arrays{of_unit.parameters, of_unit.first_moments,
                                                        of_unit.second_moments};
    const auto count = static_cast<std::size_t>(elements);
    buffer_.resize(count * kPieceArrays);
    for (std::size_t i = 0; i < arrays.size(); ++i)
      std::memcpy(buffer_.data() + i * count, arrays[i] + at, count * sizeof(float));
    const auto bytes = std::as_bytes(std::span(buffer_));
    file_.write(bytes);
    SavedPiece saved{first, elements, kept_.links.shard(), offset_bytes_,
                     checksum_of(bytes.data(), bytes.size())};
    offset_bytes_ += bytes.size();
    return saved;
  }

  const Kept& kept_;
  File file_;
  std::uint64_t offset_bytes_ = 0;
  std::vector<SavedTensor> tensors_;
  std::vector<float> buffer_;
};

// The texts of all ranks of the group, at its first.
std::vector<std::string> texts_at_first(Links& links, const std::string& own) {
  if (links.shard_ranks() == 1) return {own};
  const std::uint64_t length = own.size();
  const std::vector<std::uint64_t> lengths = links.collect(std::span(&length, 1));
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::vector<std::size_t> begins;
  std::size_t total = 0;
  for (const std::size_t count : counts) {
    begins.push_back(total);
    total += count;
  }
  const bool first = links.shard() == 0;
  std::string all(first ? total : 0, '\0');
  const tuttiComm_t comm = links.reductions.get();
  check(tuttiGatherv(own.data(), own.size(), first ? all.data() : nullptr, counts.data(),
                     begins.data(), tuttiUint8, 0, comm, nullptr),
        comm);
  if (!first) links.usage.other_bytes += own.size();
  std::vector<std::string> texts;
  for (std::size_t rank = 0; first && rank < counts.size(); ++rank)
    texts.push_back(all.substr(begins[rank], counts[rank]));
  return texts;
}

std::string index_text(const Kept& kept, const std::vector<std::string>& texts,
                       const Progress& progress, const std::string& note) {
  CheckpointIndex index{progress, note, {}};
  for (const Unit& unit : kept.units)
    for (const Parameter& parameter : unit.parameters)
      index.tensors.push_back({parameter.name, parameter.shape, {}});
  for (const std::string& text : texts) add_pieces(index.tensors, text);
  for (SavedTensor& tensor : index.tensors)
    std::ranges::sort(tensor.pieces, {}, &SavedPiece::first);
  return text_of(index);
}

}  // namespace

void save_checkpoint(const Kept& kept, const fs::path& given, const Progress& progress,
                     const std::string& note) {
  Links& links = kept.links;
  const bool leads = links.rank() == 0;
  const fs::path path = plain_path(given);
  const std::uint64_t number = links.from_first(leads ? std::random_device{}() : 0);
  const fs::path partial = path.string() + ".partial-" + std::to_string(number);
  try {
    links.agree(error_of([&] {
      if (!leads) return;
      check_checkpoint_path(path);
      remove_leftovers(path);
      std::error_code cause;
      if (!fs::create_directory(partial, cause))
        throw std::runtime_error("cannot create the folder " + partial.string() + ": " +
                                 (cause ? cause.message() : "it is there already"));
    }));
    std::string own;
    links.agree(error_of([&] {
      if (links.group() == 0) own = text_of(ShardWriter(kept, partial).write());
    }));
    std::vector<std::string> texts;
    if (links.group() == 0) texts = texts_at_first(links, own);
    links.agree(error_of([&] {
      if (!leads) return;
      write_file(partial / kIndexFile, index_text(kept, texts, progress, note));
      sync_folder(partial);
      publish_folder(partial, path);
    }));
  } catch (...) {
    std::error_code ignored;
    if (leads) fs::remove_all(partial, ignored);
    throw;
  }
}

}  // namespace tutti::zero
