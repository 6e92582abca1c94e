// SPDX-License-Identifier: Apache-2.0
// The JSON form, version 1, and its reader.
//
//   {"tutti_schedule": 1, "algorithm": "ring", "collective": "all_reduce", "ranks": 2, ...,
//    "programs": [{"lanes": [{"name": "ring", "replica": 0, "steps": [
//      {"to": [{"send": 1, "tag": 0, "span": [0, 1, 0, 1]}],
//       "from": [{"local": "input", "span": [0, 1, 0, 1]}],
//       "after": [[lane, step, back], ...], "finish": true}]}]}]}
//
// "after", "finish" and the shape's "apart" stand only where they say something. A span is [first,
// run, stride, repetitions]. The reader takes any bytes: what it returns has every count within the
// bounds below and every index inside what it points into, so that printers and passes need no
// checks.
#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.hpp"
#include "schedule/print.hpp"

namespace tutti {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kVersion = 1;
// Bounds of what is read, far above any schedule that is worth writing to a file.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 28;
constexpr std::uint32_t kMaxRanks = 1U << 20;
constexpr std::uint32_t kMaxChunks = 1U << 20;
constexpr std::uint32_t kMaxTags = 1U << 16;
constexpr std::uint32_t kMaxCount = 1U << 30;  // of anything else that the shape declares
constexpr std::uint64_t kMaxRankChunks = std::uint64_t{1} << 26;  // ranks * chunks or rooms
constexpr std::size_t kMaxNameBytes = 256;

constexpr std::array<std::string_view, 3> kBuffers{"input", "output", "scratch"};

// ---- Writing

ordered_json json_of(const Span& span) {
  return ordered_json::array({span.first, span.run, span.stride, span.repetitions});
}

ordered_json json_of(const Operand& operand) {
  const std::string_view buffer = kBuffers[static_cast<std::size_t>(operand.buffer)];
  ordered_json out;
  switch (operand.kind) {
    case OperandKind::kLocal:
      out["local"] = buffer;
      break;
    case OperandKind::kSend:
      out["send"] = operand.peer;
      out["tag"] = operand.tag;
      break;
    case OperandKind::kRecv:
      out["recv"] = operand.peer;
      out["tag"] = operand.tag;
      break;
    case OperandKind::kRemote:
      out["remote"] = operand.peer;
      out["buffer"] = buffer;
      break;
  }
  out["span"] = json_of(operand.span);
  return out;
}

ordered_json json_of(const Step& step) {
  ordered_json out;
  out["to"] = ordered_json::array();
  for (const Operand& operand : step.destinations) out["to"].push_back(json_of(operand));
  out["from"] = ordered_json::array();
  for (const Operand& operand : step.sources) out["from"].push_back(json_of(operand));
  for (const Wait& wait : step.waits)
    out["after"].push_back(ordered_json::array({wait.lane, wait.step, wait.back}));
  if (step.finish) out["finish"] = true;
  return out;
}

ordered_json json_of(const RankProgram& program) {
  ordered_json lanes = ordered_json::array();
  for (const Lane& lane : program.lanes) {
    ordered_json steps = ordered_json::array();
    for (const Step& step : lane.steps) steps.push_back(json_of(step));
    lanes.push_back({{"name", lane.name}, {"replica", lane.replica}, {"steps", std::move(steps)}});
  }
  return {{"lanes", std::move(lanes)}};
}

// The shape's counts, once for writer and reader: name, member, bounds.
struct Field {
  const char* name;
  std::uint32_t ScheduleShape::*member;
  std::uint32_t least;
  std::uint32_t most;
};
constexpr std::array<Field, 8> kFields{{
    {"chunks", &ScheduleShape::chunks, 1, kMaxChunks},
    {"scratch_chunks", &ScheduleShape::scratch_chunks, 0, kMaxChunks},
    {"scratch_versions", &ScheduleShape::scratch_versions, 1, kMaxChunks},
    {"replicas", &ScheduleShape::replicas, 1, kMaxTags},
    {"tags", &ScheduleShape::tags, 1, kMaxTags},
    {"max_incoming", &ScheduleShape::max_incoming, 0, kMaxCount},
    {"max_per_pair", &ScheduleShape::max_per_pair, 0, kMaxTags},
    {"max_message_chunks", &ScheduleShape::max_message_chunks, 0, kMaxChunks},
}};

// ---- Reading

// Thrown inside this file only; from_json turns it into the error it carries.
struct Invalid {
  std::string message;
};

const json& member(const json& object, const char* name, const std::string& where) {
  if (!object.is_object()) throw Invalid{fmt::format("{} is not an object", where)};
  const auto it = object.find(name);
  if (it == object.end()) throw Invalid{fmt::format("{} has no \"{}\"", where, name)};
  return *it;
}

const json& array_member(const json& object, const char* name, const std::string& where) {
  const json& value = member(object, name, where);
  if (!value.is_array()) throw Invalid{fmt::format("{}: \"{}\" is not an array", where, name)};
  return value;
}

bool boolean(const json& value, const std::string& where) {
  if (!value.is_boolean()) throw Invalid{fmt::format("{} is not a boolean", where)};
  return value.get<bool>();
}

std::uint32_t number(const json& value, std::uint64_t least, std::uint64_t most,
                     const std::string& where) {
  const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() >= least &&
                    value.get<std::uint64_t>() <= most;
  if (!fits) throw Invalid{fmt::format("{} is not a number from {} to {}", where, least, most)};
  return static_cast<std::uint32_t>(value.get<std::uint64_t>());
}

std::string name_in(const json& value, const std::string& where) {
  if (!value.is_string() || value.get_ref<const std::string&>().size() > kMaxNameBytes)
    throw Invalid{fmt::format("{} is not a string of at most {} bytes", where, kMaxNameBytes)};
  const auto name = value.get<std::string>();
  // Names stand in messages, which are one line.
  if (printable(name, kMaxNameBytes) != name)
    throw Invalid{fmt::format("{} has control characters", where)};
  return name;
}

// "rank 3, lane 1, step 7"
struct Place {
  std::size_t rank = 0, lane = 0, step = 0;
  [[nodiscard]] std::string text(const char* what = nullptr) const {
    return fmt::format("rank {}, lane {}, step {}{}{}", rank, lane, step, what ? ": " : "",
                       what ? what : "");
  }
};

class Reader {
 public:
  Schedule schedule(const json& top) {
    number(member(top, "tutti_schedule", "the file"), kVersion, kVersion,
           "the version \"tutti_schedule\"");
    read_shape(top);
    Schedule schedule{shape_, {}};
    const json& programs = array_member(top, "programs", "the file");
    if (programs.size() != static_cast<std::size_t>(shape_.ranks))
      throw Invalid{
          fmt::format("there are {} programs for {} ranks", programs.size(), shape_.ranks)};
    for (place_.rank = 0; place_.rank < programs.size(); ++place_.rank)
      schedule.ranks.push_back(program(programs[place_.rank]));
    return schedule;
  }

 private:
  void read_shape(const json& top) {
    shape_.algorithm = name_in(member(top, "algorithm", "the file"), "\"algorithm\"");
    const std::string collective = name_in(member(top, "collective", "the file"), "\"collective\"");
    const std::optional<Collective> known = parse_collective(collective);
    if (!known) throw Invalid{"\"collective\" is not a known collective"};
    shape_.collective = *known;
    shape_.ranks =
        static_cast<Rank>(number(member(top, "ranks", "the file"), 1, kMaxRanks, "\"ranks\""));
    const auto ranks = static_cast<std::uint64_t>(shape_.ranks);
    shape_.root =
        static_cast<Rank>(number(member(top, "root", "the file"), 0, ranks - 1, "\"root\""));
    for (const Field& field : kFields)
      shape_.*field.member = number(member(top, field.name, "the file"), field.least, field.most,
                                    fmt::format("\"{}\"", field.name));
    if (top.contains("apart")) shape_.apart = boolean(top["apart"], "\"apart\"");
    read_blocks(top, ranks);
    all_tags_ = std::uint64_t{shape_.tags} * shape_.replicas;
    if (all_tags_ > kMaxTags)
      throw Invalid{fmt::format("\"tags\" times \"replicas\" is more than {}", kMaxTags)};
    // Each factor is below 2^21, so the first product cannot overflow.
    rooms_ = std::uint64_t{shape_.scratch_chunks} * shape_.replicas;
    if (ranks * shape_.chunks > kMaxRankChunks || rooms_ > kMaxRankChunks ||
        rooms_ * shape_.scratch_versions > kMaxRankChunks ||
        ranks * rooms_ * shape_.scratch_versions > kMaxRankChunks)
      throw Invalid{
          fmt::format("chunks or scratch over all ranks are more than {}", kMaxRankChunks)};
  }

  // Only of ranks that stand in an order of their own.
  void read_blocks(const json& top, std::uint64_t ranks) {
    if (!top.contains("block_ranks")) return;
    const json& blocks = array_member(top, "block_ranks", "the file");
    if (blocks.size() != ranks * shape_.replicas)
      throw Invalid{
          fmt::format("\"block_ranks\" has {} entries, but needs one for each rank and replica",
                      blocks.size())};
    for (const json& rank : blocks)
      shape_.block_ranks.push_back(
          static_cast<Rank>(number(rank, 0, ranks - 1, "a rank of \"block_ranks\"")));
  }

  RankProgram program(const json& value) {
    place_.lane = place_.step = 0;
    const json& lanes = array_member(value, "lanes", fmt::format("rank {}", place_.rank));
    RankProgram program;
    for (; place_.lane < lanes.size(); ++place_.lane)
      program.lanes.push_back(lane(lanes[place_.lane]));
    check_waits(program);
    return program;
  }

  Lane lane(const json& value) {
    const std::string where = fmt::format("rank {}, lane {}", place_.rank, place_.lane);
    Lane lane;
    lane.name = name_in(member(value, "name", where), where + ": \"name\"");
    lane.replica =
        number(member(value, "replica", where), 0, shape_.replicas - 1, where + ": \"replica\"");
    const json& steps = array_member(value, "steps", where);
    for (place_.step = 0; place_.step < steps.size(); ++place_.step)
      lane.steps.push_back(step(steps[place_.step]));
    return lane;
  }

  Step step(const json& value) {
    Step step;
    const std::string where = place_.text();
    for (const json& entry : array_member(value, "to", where))
      step.destinations.push_back(operand(entry, true));
    for (const json& entry : array_member(value, "from", where))
      step.sources.push_back(operand(entry, false));
    if (step.destinations.empty() || step.sources.empty())
      throw Invalid{where + ": a step needs a source and a destination"};
    if (value.contains("after"))
      for (const json& entry : array_member(value, "after", where))
        step.waits.push_back(wait(entry));
    if (value.contains("finish")) step.finish = boolean(value["finish"], place_.text("\"finish\""));
    return step;
  }

  Operand operand(const json& value, bool destination) {
    Operand operand;
    const std::string where = place_.text("operand");
    const json& span = array_member(value, "span", where);
    if (value.contains("local")) {
      operand.buffer = buffer(value["local"]);
    } else if (value.contains("remote")) {
      operand.kind = OperandKind::kRemote;
      operand.peer = peer(value["remote"]);
      operand.buffer = buffer(member(value, "buffer", where));
    } else {
      const char* kind = destination ? "send" : "recv";
      if (!value.contains(kind))
        throw Invalid{fmt::format("{} is not one of local, remote, {}", where, kind)};
      operand.kind = destination ? OperandKind::kSend : OperandKind::kRecv;
      operand.peer = peer(value[kind]);
      operand.tag = static_cast<Tag>(
          number(member(value, "tag", where), 0, all_tags_ - 1, place_.text("\"tag\"")));
    }
    const bool room = operand.kind != OperandKind::kSend && operand.kind != OperandKind::kRecv &&
                      operand.buffer == BufferKind::kScratch;
    operand.span = room ? room_span(span) : chunk_span(span);
    return operand;
  }

  BufferKind buffer(const json& value) const {
    for (std::size_t i = 0; i < kBuffers.size(); ++i)
      if (value.is_string() && value.get_ref<const std::string&>() == kBuffers[i])
        return static_cast<BufferKind>(i);
    throw Invalid{place_.text("the buffer is not one of input, output, scratch")};
  }

  Rank peer(const json& value) const {
    const auto peer = static_cast<Rank>(
        number(value, 0, static_cast<std::uint64_t>(shape_.ranks) - 1, place_.text("the peer")));
    if (static_cast<std::size_t>(peer) == place_.rank)
      throw Invalid{place_.text("the peer is the rank itself")};
    return peer;
  }

  Span numbers(const json& value, std::uint64_t chunks) const {
    const std::string where = place_.text("a span's number");
    if (value.size() != 4) throw Invalid{place_.text("a span must have four numbers")};
    const Span span{number(value[0], 0, chunks == 0 ? 0 : chunks - 1, where),
                    number(value[1], 0, chunks, where), number(value[2], 0, chunks, where),
                    number(value[3], 0, chunks, where)};
    if (std::uint64_t{span.run} * span.repetitions > chunks)
      throw Invalid{place_.text("a span covers more chunks than there are")};
    return span;
  }

  Span chunk_span(const json& value) const { return numbers(value, shape_.chunks); }

  // Scratch does not wrap: the last room it reaches exists.
  Span room_span(const json& value) const {
    const Span span = numbers(value, rooms_);
    const std::uint64_t end =
        span.count() == 0
            ? 0
            : span.first + std::uint64_t{span.stride} * (span.repetitions - 1) + span.run;
    if (end > rooms_) throw Invalid{place_.text("a span reaches beyond the last scratch slot")};
    return span;
  }

  Wait wait(const json& value) const {
    const std::string where = place_.text("a number of \"after\"");
    if (!value.is_array() || value.size() != 3)
      throw Invalid{place_.text("\"after\" has triples of numbers")};
    return {number(value[0], 0, kMaxCount, where), number(value[1], 0, kMaxCount, where),
            number(value[2], 0, kMaxCount, where)};
  }

  void check_waits(const RankProgram& program) const {
    for (const Lane& lane : program.lanes)
      for (const Step& step : lane.steps)
        for (const Wait& wait : step.waits)
          if (wait.lane >= program.lanes.size() ||
              wait.step >= program.lanes[wait.lane].steps.size() ||
              program.lanes[wait.lane].replica != lane.replica)
            throw Invalid{
                fmt::format("rank {}: no step {} in lane {} of the same replica to wait for",
                            place_.rank, wait.step, wait.lane)};
  }

  ScheduleShape shape_;
  std::uint64_t all_tags_ = 1;
  std::uint64_t rooms_ = 0;  // scratch chunks of all replicas, one version
  Place place_;
};

}  // namespace

std::string to_json(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  ordered_json out;
  out["tutti_schedule"] = kVersion;
  out["algorithm"] = shape.algorithm;
  out["collective"] = name_of(shape.collective);
  out["ranks"] = shape.ranks;
  out["root"] = shape.root;
  for (const Field& field : kFields) out[field.name] = shape.*field.member;
  if (shape.apart) out["apart"] = true;
  if (!shape.block_ranks.empty()) out["block_ranks"] = shape.block_ranks;
  out["programs"] = ordered_json::array();
  for (const RankProgram& program : schedule.ranks) out["programs"].push_back(json_of(program));
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<Schedule> from_json(const std::string& text) {
  const auto invalid = [](const std::string& message) {
    return make_error(Code::kInvalidArgument, "not a Tutti schedule: " + message);
  };
  if (text.size() > kMaxTextBytes)
    return invalid(
        fmt::format("the text has {} bytes, but the limit is {}", text.size(), kMaxTextBytes));
  try {
    return Reader().schedule(json::parse(text));
  } catch (const Invalid& error) {
    return invalid(error.message);
  } catch (const json::parse_error& error) {
    return invalid(fmt::format("JSON syntax error at byte {}", error.byte));
  } catch (const json::exception&) {
    return invalid("the JSON holds a value that cannot be read");
  }
}

}  // namespace tutti
