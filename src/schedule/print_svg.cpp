// SPDX-License-Identifier: Apache-2.0
// The picture: ranks side by side, time downwards, an arrow a message, coloured by tag.
//
// A box is a step and shows its chunks. Its fill says what happens to the value: white is sent off
// or kept as it is, tinted is a partial sum, solid is the step that completes it, grey is a copy of
// what came. Hovering a box shows the step as the text form prints it. A row is a unit of
// space_time.hpp; rows at which no message arrives are low.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "schedule/print.hpp"
#include "schedule/space_time.hpp"
#include "schedule/step_text.hpp"

namespace tutti {
namespace {

struct Colour {
  const char* line;
  const char* tint;
};
// Okabe and Ito's set, told apart by colour-blind eyes too; tags beyond it repeat.
constexpr std::array<Colour, 7> kColours{{{"#0072b2", "#d3e6f2"},
                                          {"#d55e00", "#fbe3d2"},
                                          {"#009e73", "#d2efe6"},
                                          {"#b0528a", "#f4dfeb"},
                                          {"#b07c00", "#f7ebcf"},
                                          {"#3a8fc4", "#dcedf8"},
                                          {"#5b5b5b", "#e4e4e4"}}};

constexpr double kLeft = 58, kTop = 102, kBottom = 64;
constexpr double kBoxWidth = 34, kBoxHeight = 20, kLaneGap = 46, kColumnPad = 34;
constexpr double kRight = 20, kMinWidth = 640, kMaxSpread = 140;
constexpr double kMinRow = 52, kMaxRow = 110, kLowRow = 32;
constexpr double kLegendWidth = 506, kTagWidth = 62;
constexpr std::size_t kLongLabel = 6;  // characters that a box holds

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters are not legal in XML, not even escaped.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  return out;
}

class Picture {
 public:
  explicit Picture(const Schedule& schedule) : schedule_(schedule), run_(space_time(schedule)) {
    for (const RankProgram& program : schedule.ranks)
      lanes_ = std::max<std::size_t>(
          lanes_, static_cast<std::size_t>(std::ranges::count(program.lanes, 0U, &Lane::replica)));
    const auto lanes = static_cast<double>(lanes_);
    const auto ranks = static_cast<double>(schedule.ranks.size());
    // Few ranks share the width that the legend takes anyway.
    column_ = std::max((lanes - 1) * kLaneGap + kBoxWidth + kColumnPad,
                       std::min((kMinWidth - kLeft - kRight) / ranks, kMaxSpread));
    width_ = std::max({kLeft + column_ * ranks + kRight, kMinWidth,
                       kLegendWidth + kTagWidth * static_cast<double>(legend_tags())});
    row_ = row_height();
    place_rows();
    height_ = y_of(run_.depth) + kBoxHeight / 2 + kBottom;
  }

  std::string draw() {
    open();
    columns();
    rows();
    for (const Message& message : run_.messages) arrow(message);
    for (const Event& event : run_.events) box(event);
    legend();
    add("</svg>\n");
    return std::move(svg_);
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }

  // Lanes of replica 0 that come before this one: its place in the rank's column.
  [[nodiscard]] std::size_t lane_place(std::size_t rank, std::uint32_t lane) const {
    const std::vector<Lane>& lanes = schedule_.ranks[rank].lanes;
    return static_cast<std::size_t>(
        std::count_if(lanes.begin(), lanes.begin() + lane,
                      [](const Lane& before) { return before.replica == 0; }));
  }
  [[nodiscard]] const Lane& lane_of(const Event& event) const {
    return schedule_.ranks[static_cast<std::size_t>(event.rank)].lanes[event.lane];
  }
  [[nodiscard]] double lane_x(std::size_t rank, std::size_t place) const {
    const double middle = kLeft + column_ * (static_cast<double>(rank) + 0.5);
    return middle +
           kLaneGap * (static_cast<double>(place) - 0.5 * (static_cast<double>(lanes_) - 1));
  }
  [[nodiscard]] double x_of(const Event& event) const {
    const auto rank = static_cast<std::size_t>(event.rank);
    return lane_x(rank, lane_place(rank, event.lane));
  }
  [[nodiscard]] double y_of(std::uint32_t time) const {
    return kTop + kBoxHeight / 2 + rows_[time];
  }

  void place_rows() {
    rows_.assign(run_.depth + 1, 0);
    std::vector<bool> arrives(rows_.size(), false);
    for (const Message& message : run_.messages) arrives[run_.events[message.receiver].time] = true;
    for (std::size_t time = 1; time < rows_.size(); ++time)
      rows_[time] = rows_[time - 1] + (arrives[time] ? row_ : kLowRow);
  }

  // Steep enough to follow the arrows: by how far the average one goes sideways.
  [[nodiscard]] double row_height() const {
    double sideways = 0;
    for (const Message& m : run_.messages)
      sideways += std::abs(x_of(run_.events[m.sender]) - x_of(run_.events[m.receiver]));
    if (!run_.messages.empty()) sideways /= static_cast<double>(run_.messages.size());
    return std::clamp(sideways / 2, kMinRow, kMaxRow);
  }

  void open() {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Inter, Helvetica, Arial, sans-serif\">\n",
        width_, height_);
    add("<defs>\n");
    for (std::size_t i = 0; i < kColours.size(); ++i)
      add("<marker id=\"tip{}\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" markerWidth=\"6\" "
          "markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0.5 L8 4 L0 7.5 Z\" fill=\"{}\"/>"
          "</marker>\n",
          i, kColours[i].line);
    add("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    const ScheduleShape& shape = schedule_.shape;
    add("<text x=\"{}\" y=\"28\" font-size=\"17\" font-weight=\"600\" fill=\"#1c2733\">{} {}, {} "
        "rank{}</text>\n",
        kLeft - 34, escaped(shape.algorithm), name_of(shape.collective), shape.ranks,
        shape.ranks == 1 ? "" : "s");
    add("<text x=\"{}\" y=\"47\" font-size=\"12\" fill=\"#5c6b7a\">{} chunk{}, {} messages, "
        "done at time {} (a message takes 1, and so does a lane's next step)</text>\n",
        kLeft - 34, shape.chunks, shape.chunks == 1 ? "" : "s", run_.messages.size(), run_.depth);
  }

  void columns() {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const double left = kLeft + column_ * static_cast<double>(rank);
      add("<rect x=\"{:.1f}\" y=\"58\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"6\" "
          "fill=\"{}\"/>\n",
          left + 2, column_ - 4, height_ - 58 - kBottom + 14,
          rank % 2 == 0 ? "#f5f7f9" : "#fafbfc");
      add("<text x=\"{:.1f}\" y=\"73\" font-size=\"12\" font-weight=\"600\" fill=\"#1c2733\" "
          "text-anchor=\"middle\">{}{}</text>\n",
          left + column_ / 2, column_ > 60 ? "rank " : "", rank);
      for (std::uint32_t lane = 0; lanes_ > 1 && lane < schedule_.ranks[rank].lanes.size(); ++lane)
        if (schedule_.ranks[rank].lanes[lane].replica == 0) lane_name(rank, lane);
    }
  }

  // The name of a composition's part above the lane's own.
  void lane_name(std::size_t rank, std::uint32_t lane) {
    const std::string& name = schedule_.ranks[rank].lanes[lane].name;
    const std::size_t blank = std::min(name.find(' '), name.size());
    double y = 86;
    for (const std::string_view line :
         {std::string_view(name).substr(0, blank),
          std::string_view(name).substr(std::min(blank + 1, name.size()))}) {
      if (!line.empty())
        add("<text x=\"{:.1f}\" y=\"{}\" font-size=\"9\" fill=\"#8795a3\" "
            "text-anchor=\"middle\">{}</text>\n",
            lane_x(rank, lane_place(rank, lane)), y, escaped(line));
      y += 10;
    }
  }

  void rows() {
    for (std::uint32_t time = 0; time <= run_.depth; ++time) {
      const double right = kLeft + column_ * static_cast<double>(schedule_.ranks.size());
      add("<path d=\"M{} {:.1f} H{:.1f}\" stroke=\"#dde3e9\" stroke-dasharray=\"2 4\"/>\n",
          kLeft - 8, y_of(time), right);
      add("<text x=\"{}\" y=\"{:.1f}\" font-size=\"11\" fill=\"#8795a3\" "
          "text-anchor=\"end\">{}</text>\n",
          kLeft - 14, y_of(time) + 4, time);
    }
  }

  // Leaves and arrives vertically, so that the direction of time is plain at both ends.
  void arrow(const Message& message) {
    const Event &from = run_.events[message.sender], &to = run_.events[message.receiver];
    const double x1 = x_of(from), y1 = y_of(from.time) + kBoxHeight / 2;
    const double x2 = x_of(to), y2 = y_of(to.time) - kBoxHeight / 2;
    const double bend = std::min((y2 - y1) * 0.55, row_ * 0.8);
    const bool far = std::abs(x2 - x1) > 2.5 * column_;
    const std::size_t colour = message.tag % kColours.size();
    add("<path d=\"M{0:.1f} {1:.1f} C{0:.1f} {2:.1f} {3:.1f} {4:.1f} {3:.1f} {5:.1f}\" "
        "fill=\"none\" stroke=\"{6}\" stroke-width=\"1.5\" stroke-opacity=\"{7}\" "
        "marker-end=\"url(#tip{8})\"/>\n",
        x1, y1, y1 + bend, x2, y2 - bend, y2, kColours[colour].line, far ? "0.45" : "0.85", colour);
  }

  // The logical chunks or rooms that a step works on, or the first of many.
  [[nodiscard]] std::string chunk_label(const Step& step) const {
    const Operand& operand =
        step.destinations.empty() ? step.sources.front() : step.destinations.front();
    const Span& span = operand.span;
    if (span.count() == 0) return "-";
    const ScheduleShape& shape = schedule_.shape;
    const bool message = operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv;
    const bool room = !message && operand.buffer == BufferKind::kScratch;
    const std::uint32_t places = room ? shape.scratch_chunks * shape.replicas : shape.chunks;
    std::string label = fmt::format("{}", span.first);
    for (std::uint32_t k = 1; k < span.count() && label.size() < kLongLabel; ++k)
      label += fmt::format(",{}", span.at(k, places));
    return label.size() < kLongLabel ? label : fmt::format("{}..", span.first);
  }

  void box(const Event& event) {
    const Lane& lane = lane_of(event);
    const Step& step = lane.steps[event.step];
    const Operand* message = nullptr;
    bool receives = false;
    for (const Operand& operand : step.sources)
      if (operand.kind == OperandKind::kRecv) message = &operand, receives = true;
    for (const Operand& operand : step.destinations)
      if (operand.kind == OperandKind::kSend) message = &operand;
    const Colour& colour = kColours[message != nullptr ? message->tag % kColours.size() : 6];
    const char* fill = step.finish               ? colour.line
                       : step.sources.size() > 1 ? colour.tint
                       : receives                ? "#e3e8ed"
                                                 : "#ffffff";
    const std::string label =
        fmt::format("{}{}", step.sources.size() > 1 ? "+" : "", chunk_label(step));
    const double x = x_of(event), y = y_of(event.time);
    add("<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"5\" "
        "fill=\"{}\" stroke=\"{}\" stroke-width=\"1.3\"/>",
        escaped(fmt::format(
            "r{}.{}.{}: {}", event.rank, lane.name, event.step,
            step_text(step, schedule_.ranks[static_cast<std::size_t>(event.rank)].lanes))),
        x - kBoxWidth / 2, y - kBoxHeight / 2, kBoxWidth, kBoxHeight, fill, colour.line);
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\" "
        "text-anchor=\"middle\">{}</text></g>\n",
        x, y + 4, label.size() > 4 ? 9 : 11, step.finish ? "#ffffff" : "#1c2733", label);
  }

  [[nodiscard]] std::size_t legend_tags() const {
    const std::uint32_t tags = schedule_.shape.tags;
    return tags > 1 ? std::min<std::size_t>(tags, kColours.size()) : 0;
  }

  void legend() {
    struct Entry {
      const char* fill;
      const char* text;
      double advance;
    };
    constexpr std::array<Entry, 4> kEntries{{{"#ffffff", "sends what it has", 136},
                                             {"#d3e6f2", "reduces (+)", 108},
                                             {"#0072b2", "completes", 98},
                                             {"#e3e8ed", "keeps what came", 132}}};
    const double y = height_ - 22;
    double x = kLeft - 34;
    for (const Entry& entry : kEntries) {
      add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"20\" height=\"13\" rx=\"3\" fill=\"{}\" "
          "stroke=\"#0072b2\"/><text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" "
          "fill=\"#5c6b7a\">{}</text>\n",
          x, y - 10, entry.fill, x + 26, y + 1, entry.text);
      x += entry.advance;
    }
    for (std::size_t tag = 0; tag < legend_tags(); ++tag) {
      add("<path d=\"M{:.1f} {:.1f} h18\" stroke=\"{}\" stroke-width=\"2\"/><text x=\"{:.1f}\" "
          "y=\"{:.1f}\" font-size=\"11\" fill=\"#5c6b7a\">tag {}</text>\n",
          x, y - 4, kColours[tag].line, x + 23, y + 1, tag);
      x += kTagWidth;
    }
    if (run_.stuck_steps + run_.lost_messages > 0)
      add("<text x=\"{}\" y=\"{:.1f}\" font-size=\"12\" font-weight=\"600\" fill=\"#c0182b\">{} "
          "steps never run, {} messages are never received</text>\n",
          kLeft - 34, y - 20, run_.stuck_steps, run_.lost_messages);
  }

  const Schedule& schedule_;
  SpaceTime run_;
  std::size_t lanes_ = 1;     // places in every column: the most lanes of a rank
  std::vector<double> rows_;  // how far down each time lies
  double column_ = 0, row_ = 0, width_ = 0, height_ = 0;
  std::string svg_;
};

}  // namespace

std::string to_svg(const Schedule& schedule) { return Picture(schedule).draw(); }

}  // namespace tutti
