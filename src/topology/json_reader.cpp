// SPDX-License-Identifier: Apache-2.0
#include "topology/json_reader.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/fd.hpp"
#include "base/text.hpp"

namespace tutti {
namespace {

using nlohmann::json;

constexpr std::size_t kMostText = 1000;

// "line:column" of a byte of the text, from 1.
std::string position_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t start = before.rfind('\n');
  return fmt::format("{}:{}", line,
                     before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1);
}

// Refuses what a later key of the same name would hide, and nesting that no file of ours has.
class Guard {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepest)
      problem = fmt::format("the JSON is nested deeper than {} levels", kDeepest);
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end && !keys_.empty()) keys_.pop_back();
    if (event == json::parse_event_t::key && !keys_.empty()) {
      auto& keys = keys_.back();
      const auto& key = parsed.get_ref<const std::string&>();
      if (std::ranges::find(keys, key) != keys.end())
        problem = fmt::format("key \"{}\" appears twice in one object", printable(key, 64));
      if (keys.size() < kMostKeys) keys.push_back(key);
    }
    return true;
  }
  std::string problem;  // the last one found

 private:
  static constexpr int kDeepest = 16;
  static constexpr std::size_t kMostKeys = 256;
  std::vector<std::vector<std::string>> keys_;
};

}  // namespace

JsonWhere JsonWhere::at(std::string_view key) const {
  return {file, fmt::format("{}/{}", path, printable(key, 64))};
}

tl::unexpected<Error> JsonWhere::refuse(std::string_view what) const {
  return make_error(Code::kInvalidArgument,
                    fmt::format("{}: {}: {}", file, path.empty() ? "/" : path, what));
}

std::string shown(const json& value) {
  return printable(value.dump(-1, ' ', true, json::error_handler_t::replace), 60);
}

Result<json> parse_json(std::string_view text, const std::string& file) {
  if (text.size() > kMostJsonBytes)
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: the file is larger than {} bytes", file, kMostJsonBytes));
  try {
    Guard guard;
    json root = json::parse(text, std::ref(guard), true, true);
    if (!guard.problem.empty())
      return make_error(Code::kInvalidArgument, fmt::format("{}: {}", file, guard.problem));
    return root;
  } catch (const json::parse_error& error) {
    const std::string what(error.what());
    const std::size_t reason = what.find(": ");
    const std::size_t byte = error.byte == 0 ? 0 : error.byte - 1;
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{}:{}: invalid JSON: {}", file, position_of(text, byte),
                    printable(reason == std::string::npos ? what : what.substr(reason + 2), 200)));
  } catch (const json::exception& error) {  // a number that no double holds
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: {}", file, printable(error.what(), 200)));
  }
}

Result<std::string> read_json_file(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    return make_error(Code::kSystemError,
                      fmt::format("{} cannot be read: {}", printable(path), why));
  };
  // Without O_NONBLOCK a pipe that nobody writes to is waited for.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse("it is not a file; give the path of one");
  constexpr std::size_t kAtOnce = 64 << 10;
  std::string text;
  std::size_t have_bytes = 0;
  while (have_bytes <= kMostJsonBytes) {
    text.resize(have_bytes + kAtOnce);
    const ssize_t got = ::read(fd.get(), text.data() + have_bytes, kAtOnce);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse(std::strerror(errno));
    if (got == 0) break;
    have_bytes += static_cast<std::size_t>(got);
  }
  text.resize(have_bytes);
  return text;
}

Result<JsonReader> JsonReader::open(const json& value, const JsonWhere& where,
                                    std::initializer_list<std::string_view> keys) {
  if (!value.is_object())
    return where.refuse(fmt::format("{} is not an object {{...}}", shown(value)));
  for (const auto& [key, unused] : value.items()) {
    if (std::ranges::find(keys, key) != keys.end() || key == "comment" || key == "source") continue;
    std::string known;
    for (const std::string_view each : keys)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", each);
    return where.at(key).refuse(fmt::format("unknown key; allowed: {}, comment, source", known));
  }
  return JsonReader(value, where);
}

Status JsonReader::read(std::string_view key, std::int32_t& to, std::int32_t most) const {
  if (!has(key)) return {};
  const json& value = get(key);
  const bool whole = value.is_number_integer() &&
                     (!value.is_number_unsigned() || value.get<std::uint64_t>() <= 1ULL << 40);
  if (!whole || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > most)
    return at(key).refuse(fmt::format("{} is not a whole number from 1 to {}", shown(value), most));
  to = value.get<std::int32_t>();
  return {};
}

Status JsonReader::read(std::string_view key, double& to, double least, double most) const {
  if (!has(key)) return {};
  const json& value = get(key);
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
    return at(key).refuse(
        fmt::format("{} is not a number from {} to {}", shown(value), least, most));
  to = value.get<double>();
  return {};
}

Status JsonReader::read(std::string_view key, bool& to) const {
  if (!has(key)) return {};
  if (!get(key).is_boolean())
    return at(key).refuse(fmt::format("{} is neither true nor false", shown(get(key))));
  to = get(key).get<bool>();
  return {};
}

Status JsonReader::read(std::string_view key, std::string& to) const {
  if (!has(key)) return {};
  const json& value = get(key);
  if (!value.is_string() || value.get_ref<const std::string&>().empty() ||
      value.get_ref<const std::string&>().size() > kMostText)
    return at(key).refuse(
        fmt::format("{} is not a text of 1 to {} bytes", shown(value), kMostText));
  to = printable(value.get_ref<const std::string&>(), kMostText);
  return {};
}

}  // namespace tutti
