// SPDX-License-Identifier: Apache-2.0
// The picture: boxes inside boxes as devices hold one another, NVLink and xGMI as grey bands, rings
// as coloured arrows, trees as dashed lines. Hovering a box shows what it is.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "topo.hpp"

namespace tutti::info {

using topology::Device;
using topology::DeviceId;
using topology::DeviceKind;
using topology::Graph;
using topology::kNoDevice;
using topology::LinkKind;

namespace {

// Okabe and Ito's set, as the pictures of schedules have it.
constexpr std::array<const char*, 6> kColours{"#0072b2", "#d55e00", "#009e73",
                                              "#b0528a", "#b07c00", "#3a8fc4"};
constexpr double kGap = 14, kTitle = 18, kLeafHeight = 26, kCharacter = 6.6, kMargin = 24;
constexpr double kLegendRow = 20, kHeader = 54;

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  [[nodiscard]] double middle_x() const { return x + width / 2; }
  [[nodiscard]] double middle_y() const { return y + height / 2; }
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("<>&\"").find(c) != std::string_view::npos)
      out += fmt::format("&#{};", static_cast<int>(c));
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

const char* fill_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kGpu:
      return "#d2efe6";
    case DeviceKind::kNic:
    case DeviceKind::kSwitch:
      return "#fbe3d2";
    case DeviceKind::kNvSwitch:
      return "#e4e4e4";
    case DeviceKind::kCore:
      return "#ffffff";
    case DeviceKind::kPciRoot:
    case DeviceKind::kPciSwitch:
      return "#fbf6e8";
    case DeviceKind::kNuma:
      return "#eef5fb";
    default:
      return "#f8f8f8";
  }
}

class Picture {
 public:
  explicit Picture(const Topo& topo) : topo_(topo), graph_(topo.graph) {
    children_.resize(graph_.devices().size());
    boxes_.resize(graph_.devices().size());
    for (DeviceId id = 0; id < graph_.devices().size(); ++id) {
      const DeviceId parent = graph_.device(id).parent;
      if (parent != kNoDevice) children_[parent].push_back(id);
    }
  }

  std::string draw() {
    place_all();
    std::string body;
    for (DeviceId id = 0; id < graph_.devices().size(); ++id) body += box(id);
    for (const topology::Link& link : graph_.links()) body += band(link);
    for (std::size_t i = 0; i < topo_.drawn.size(); ++i) body += order(i);
    body += legend();
    return frame(body);
  }

 private:
  [[nodiscard]] double title_width(DeviceId id) const {
    return static_cast<double>(graph_.device(id).name.size()) * kCharacter + 2 * kGap;
  }

  // Sizes from the leaves up: children in rows, about as wide as twice their height.
  void measure(DeviceId id) {
    Box& mine = boxes_[id];
    if (children_[id].empty()) {
      mine.width = std::max(34.0, title_width(id));
      mine.height = kLeafHeight;
      return;
    }
    double area = 0, widest = 0;
    for (const DeviceId child : children_[id]) {
      measure(child);
      area += (boxes_[child].width + kGap) * (boxes_[child].height + kGap);
      widest = std::max(widest, boxes_[child].width);
    }
    const double most = std::max({widest, title_width(id), std::sqrt(2 * area)});
    double x = kGap, y = kTitle + 4, row = 0;
    for (const DeviceId child : children_[id]) {
      Box& box = boxes_[child];
      if (x > kGap && x + box.width > most + 2 * kGap) {
        x = kGap;
        y += row + kGap;
        row = 0;
      }
      box.x = x;
      box.y = y;
      x += box.width + kGap;
      row = std::max(row, box.height);
      mine.width = std::max(mine.width, x);
    }
    mine.width = std::max(mine.width, title_width(id));
    mine.height = y + row + kGap;
  }

  void shift(DeviceId id, double x, double y) {
    boxes_[id].x += x;
    boxes_[id].y += y;
    for (const DeviceId child : children_[id]) shift(child, boxes_[id].x, boxes_[id].y);
  }

  // Hosts side by side in rows, switches of the network below.
  void place_all() {
    const std::vector<DeviceId> hosts = graph_.of_kind(DeviceKind::kHost);
    const auto columns = static_cast<std::size_t>(
        std::ceil(std::sqrt(static_cast<double>(std::max<std::size_t>(hosts.size(), 1)))));
    double x = kMargin, y = kHeader, row = 0;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      measure(hosts[i]);
      if (i > 0 && i % columns == 0) {
        x = kMargin;
        y += row + 2 * kMargin;
        row = 0;
      }
      shift(hosts[i], x, y);
      x += boxes_[hosts[i]].width + 2 * kMargin;
      row = std::max(row, boxes_[hosts[i]].height);
      width_ = std::max(width_, x);
    }
    y += row + 2 * kMargin;
    x = kMargin;
    for (const DeviceId id : graph_.of_kind(DeviceKind::kSwitch)) {
      measure(id);
      shift(id, x, y);
      x += boxes_[id].width + kMargin;
      width_ = std::max(width_, x);
      height_ = y + kLeafHeight;
    }
    height_ = std::max(height_, y);
    width_ = std::max(width_, 520.0);
  }

  [[nodiscard]] std::string box(DeviceId id) const {
    const Device& device = graph_.device(id);
    const Box& at = boxes_[id];
    const bool leaf = children_[id].empty();
    std::string hint = fmt::format("{} {}", name_of(device.kind), device.name);
    if (!device.bus_id.empty()) hint += ", " + device.bus_id;
    if (!device.model.empty()) hint += ", " + device.model;
    if (!device.cpus.empty()) hint += ", CPUs " + device.cpus;
    if (device.rate_bytes_per_ns > 0) hint += fmt::format(", {:g} GB/s", device.rate_bytes_per_ns);
    return fmt::format(
        "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "rx=\"3\" fill=\"{}\" stroke=\"#777\"/><text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text></g>\n",
        escaped(hint), at.x, at.y, at.width, at.height, fill_of(device.kind),
        leaf ? at.middle_x() : at.x + kGap, leaf ? at.middle_y() + 4 : at.y + 14,
        leaf ? " text-anchor=\"middle\"" : "", escaped(device.name));
  }

  // A curve between the edges of two boxes, bent the more the longer it is; `way` tells several
  // apart.
  [[nodiscard]] std::string curve(DeviceId from, DeviceId to, double way) const {
    const Box& a = boxes_[from];
    const Box& b = boxes_[to];
    const double dx = b.middle_x() - a.middle_x(), dy = b.middle_y() - a.middle_y();
    const double length = std::max(1.0, std::hypot(dx, dy));
    const double bend = (0.08 + 0.05 * way) * length + 4 * way;
    const double x = a.middle_x() + dx / 2 - dy / length * bend;
    const double y = a.middle_y() + dy / 2 + dx / length * bend;
    const auto [ax, ay] = edge(a, x, y);
    const auto [bx, by] = edge(b, x, y);
    return fmt::format("M{:.1f},{:.1f} Q{:.1f},{:.1f} {:.1f},{:.1f}", ax, ay, x, y, bx, by);
  }
  // Returns the point at which the line from a box's middle to a point leaves the box.
  static std::pair<double, double> edge(const Box& box, double x, double y) {
    const double dx = x - box.middle_x(), dy = y - box.middle_y();
    const double part = std::min({1.0, box.width / 2 / std::max(std::abs(dx), 1e-9),
                                  box.height / 2 / std::max(std::abs(dy), 1e-9)});
    return {box.middle_x() + dx * part, box.middle_y() + dy * part};
  }

  [[nodiscard]] std::string band(const topology::Link& link) const {
    const bool fabric = link.kind == LinkKind::kNvlink || link.kind == LinkKind::kXgmi;
    const bool network = link.kind == LinkKind::kNetwork;
    if (!fabric && !network) return {};
    return fmt::format(
        "<path d=\"{}\" class=\"{}\" stroke-width=\"{:.1f}\"><title>{} x{}, {:g} "
        "GB/s</title></path>\n",
        curve(link.a, link.b, 0), network ? "network" : "fabric",
        1 + 1.5 * std::sqrt(static_cast<double>(link.count)), name_of(link.kind), link.count,
        link.bytes_per_ns);
  }

  [[nodiscard]] std::string order(std::size_t index) const {
    const Drawn& drawn = topo_.drawn[index];
    std::string text = fmt::format("<g class=\"{}\" stroke=\"{}\"><title>{}</title>\n",
                                   drawn.closed ? "ring" : "tree",
                                   kColours[index % kColours.size()], escaped(drawn.name));
    for (const auto& [from, to] : drawn.hops)
      text += fmt::format(
          "<path d=\"{}\"{}/>\n", curve(from, to, 1 + static_cast<double>(index)),
          drawn.closed ? fmt::format(" marker-end=\"url(#arrow{})\"", index % kColours.size())
                       : "");
    return text + "</g>\n";
  }

  [[nodiscard]] std::string legend() const {
    std::string text;
    double y = height_ + kMargin;
    for (std::size_t i = 0; i < topo_.drawn.size(); ++i, y += kLegendRow) {
      const Drawn& drawn = topo_.drawn[i];
      text += fmt::format(
          "<g class=\"{}\" stroke=\"{}\"><path d=\"M{:.0f},{:.1f} h36\"/></g><text x=\"{:.0f}\" "
          "y=\"{:.1f}\">{}: slowest hop {:.4g} GB/s, longest {:.4g} ns</text>\n",
          drawn.closed ? "ring" : "tree", kColours[i % kColours.size()], kMargin, y - 4,
          kMargin + 46, y, escaped(drawn.name), drawn.slowest_bytes_per_ns, drawn.longest_ns);
    }
    return text;
  }

  [[nodiscard]] std::string frame(const std::string& body) const {
    const double height =
        height_ + 2 * kMargin + kLegendRow * static_cast<double>(topo_.drawn.size());
    std::string arrows;
    for (std::size_t i = 0; i < kColours.size(); ++i)
      arrows += fmt::format(
          "<marker id=\"arrow{}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
          "markerHeight=\"7\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" "
          "style=\"fill:{};stroke:none\" "
          "/></marker>\n",
          i, kColours[i]);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<style>path{{fill:none}} .fabric{{stroke:#999;opacity:.45}} "
        ".network{{stroke:#d9a27a;opacity:.6}} .ring path{{stroke-width:1.8}} "
        ".tree path{{stroke-width:1.6;stroke-dasharray:5 3}} .ring,.tree{{opacity:.85}}</style>\n"
        "<defs>{2}</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        "<text x=\"{3:.0f}\" y=\"26\" font-size=\"15\">{4}</text>\n"
        "<text x=\"{3:.0f}\" y=\"43\" fill=\"#555\">grey: NVLink, xGMI; arrows: rings; dashed: "
        "trees; hover for more</text>\n{5}</svg>\n",
        width_, height, arrows, kMargin, escaped(title()), body);
  }

  [[nodiscard]] std::string title() const {
    if (graph_.hosts() > 1) return fmt::format("{} hosts", graph_.hosts());
    return graph_.hosts() == 1 ? graph_.device(0).name : "";
  }

  const Topo& topo_;
  const Graph& graph_;
  std::vector<std::vector<DeviceId>> children_;
  std::vector<Box> boxes_;
  double width_ = 0, height_ = 0;
};

}  // namespace

std::string topo_svg(const Topo& topo) { return Picture(topo).draw(); }

}  // namespace tutti::info
