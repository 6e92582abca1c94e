// SPDX-License-Identifier: Apache-2.0
// JSON that others wrote, read so that every mistake gives one line: file, path of the value (or
// line and column where the text is no JSON), what is there, what was expected.
//
//   TUTTI_TRY_ASSIGN(const json root, parse_json(text, file));
//   TUTTI_TRY_ASSIGN(const JsonReader top, JsonReader::open(root, {file, ""}, {"name", "nodes"}));
//   TUTTI_TRY(top.read("nodes", cluster.nodes, 1024));     // as it was where the key is missing
//
// Any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti {

// Names a place in a file for messages: its name and the path of keys to a value.
struct JsonWhere {
  std::string_view file;
  std::string path;

  [[nodiscard]] JsonWhere at(std::string_view key) const;
  // kInvalidArgument: "file: /path: what".
  [[nodiscard]] tl::unexpected<Error> refuse(std::string_view what) const;
};

// A value on one short line, for messages.
[[nodiscard]] std::string shown(const nlohmann::json& value);

inline constexpr std::size_t kMostJsonBytes = 4 << 20;
// At most kMostJsonBytes, nested at most 16 deep, no key twice in an object; comments are read
// over.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, const std::string& file);
// The text of a file, at most kMostJsonBytes. kSystemError where it cannot be read.
[[nodiscard]] Result<std::string> read_json_file(const std::string& path);

// An object whose keys are known: each is asked for by name, others are refused. `value` and the
// name of the file outlive it.
class JsonReader {
 public:
  // kInvalidArgument where `value` is no object or has a key that is none of `keys`; "comment" and
  // "source" may stand everywhere.
  [[nodiscard]] static Result<JsonReader> open(const nlohmann::json& value, const JsonWhere& where,
                                               std::initializer_list<std::string_view> keys);

  [[nodiscard]] bool has(std::string_view key) const { return value_->contains(key); }
  [[nodiscard]] const nlohmann::json& get(std::string_view key) const {
    return value_->at(std::string(key));
  }
  [[nodiscard]] JsonWhere at(std::string_view key) const { return where_.at(key); }
  [[nodiscard]] const JsonWhere& where() const { return where_; }

  // Each leaves `to` as it is where the key is missing.
  [[nodiscard]] Status read(std::string_view key, std::int32_t& to, std::int32_t most) const;
  [[nodiscard]] Status read(std::string_view key, double& to, double least, double most) const;
  [[nodiscard]] Status read(std::string_view key, bool& to) const;
  [[nodiscard]] Status read(std::string_view key, std::string& to) const;

 private:
  JsonReader(const nlohmann::json& value, JsonWhere where)
      : value_(&value), where_(std::move(where)) {}
  const nlohmann::json* value_;
  JsonWhere where_;
};

}  // namespace tutti
