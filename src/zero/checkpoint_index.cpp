// SPDX-License-Identifier: Apache-2.0
#include "zero/checkpoint_index.hpp"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tutti::zero {
namespace {

using Json = nlohmann::json;

[[noreturn]] void damaged(const std::string& why) {
  throw std::runtime_error("the checkpoint's index is damaged: " + why);
}

Json json_of(const std::vector<SavedTensor>& tensors) {
  Json list = Json::array();
  for (const SavedTensor& tensor : tensors) {
    Json pieces = Json::array();
    for (const SavedPiece& piece : tensor.pieces)
      pieces.push_back({{"first", piece.first},
                        {"elements", piece.elements},
                        {"file", piece.file},
                        {"offset_bytes", piece.offset_bytes},
                        {"blake2b", piece.checksum}});
    list.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"pieces", pieces}});
  }
  return list;
}

// A number that is not negative: get() alone would wrap around.
std::uint64_t natural(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_unsigned()) damaged(std::string(key) + " is not a natural number");
  return value.get<std::uint64_t>();
}

std::vector<SavedTensor> tensors_of(const Json& list) {
  std::vector<SavedTensor> tensors;
  for (const Json& json : list) {
    SavedTensor tensor{
        json.at("name").get<std::string>(), json.at("shape").get<std::vector<std::int64_t>>(), {}};
    for (const Json& piece : json.at("pieces"))
      tensor.pieces.push_back({natural(piece, "first"), natural(piece, "elements"),
                               static_cast<int>(natural(piece, "file") & 0x7FFFFFFF),
                               natural(piece, "offset_bytes"),
                               piece.at("blake2b").get<std::string>()});
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Pieces that cover the tensor without a gap or an overlap.
void check_pieces(SavedTensor& tensor) {
  std::ranges::sort(tensor.pieces, {}, &SavedPiece::first);
  std::uint64_t next = 0;
  for (const SavedPiece& piece : tensor.pieces) {
    if (piece.first != next || piece.elements == 0 || piece.elements > kPieceElements)
      damaged("the pieces of '" + tensor.name + "' do not cover it");
    next += piece.elements;
  }
  if (next != Parameter{tensor.name, tensor.shape}.elements())
    damaged("the pieces of '" + tensor.name + "' do not cover it");
}

CheckpointIndex index_of(const Json& content) {
  CheckpointIndex index;
  const std::uint64_t version = natural(content, "version");
  if (version != kCheckpointVersion)
    throw std::runtime_error("the checkpoint has version " + std::to_string(version) +
                             "; this library reads version " + std::to_string(kCheckpointVersion));
  index.progress.steps = natural(content, "steps");
  index.progress.loss_scale =
      std::bit_cast<float>(static_cast<std::uint32_t>(natural(content, "loss_scale_bits")));
  index.progress.good_steps = static_cast<int>(natural(content, "good_steps") & 0x7FFFFFFF);
  index.note = content.at("note").get<std::string>();
  index.tensors = tensors_of(content.at("tensors"));
  for (SavedTensor& tensor : index.tensors) check_pieces(tensor);
  return index;
}

}  // namespace

std::string checksum_of(const void* data, std::size_t bytes) {
  std::array<unsigned char, crypto_generichash_BYTES> digest{};
  crypto_generichash(digest.data(), digest.size(), static_cast<const unsigned char*>(data), bytes,
                     nullptr, 0);
  std::array<char, 2 * crypto_generichash_BYTES + 1> hex{};
  return sodium_bin2hex(hex.data(), hex.size(), digest.data(), digest.size());
}

std::string text_of(const std::vector<SavedTensor>& tensors) { return json_of(tensors).dump(); }

void add_pieces(std::vector<SavedTensor>& tensors, const std::string& text) {
  std::map<std::string_view, SavedTensor*> by_name;
  for (SavedTensor& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  try {
    for (SavedTensor& more : tensors_of(Json::parse(text))) {
      const auto found = by_name.find(more.name);
      if (found == by_name.end()) damaged("a rank wrote the unknown tensor '" + more.name + "'");
      auto& pieces = found->second->pieces;
      pieces.insert(pieces.end(), more.pieces.begin(), more.pieces.end());
    }
  } catch (const Json::exception& error) {
    damaged(error.what());
  }
}

std::string text_of(const CheckpointIndex& index) {
  const Json content{{"version", kCheckpointVersion},
                     {"steps", index.progress.steps},
                     {"loss_scale_bits", std::bit_cast<std::uint32_t>(index.progress.loss_scale)},
                     {"good_steps", index.progress.good_steps},
                     {"note", index.note},
                     {"tensors", json_of(index.tensors)}};
  try {
    const std::string text = content.dump();
    return Json{{"blake2b", checksum_of(text.data(), text.size())}, {"content", content}}.dump(1);
  } catch (const Json::type_error&) {
    throw std::invalid_argument("the checkpoint's note, or the name of a parameter, is not UTF-8");
  }
}

CheckpointIndex parse_index(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    const Json& content = json.at("content");
    const std::string dumped = content.dump();
    if (json.at("blake2b").get<std::string>() != checksum_of(dumped.data(), dumped.size()))
      damaged("its checksum is wrong");
    return index_of(content);
  } catch (const Json::exception& error) {
    damaged(error.what());
  } catch (const std::invalid_argument& error) {
    damaged(error.what());
  }
}

}  // namespace tutti::zero
