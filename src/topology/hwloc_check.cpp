// SPDX-License-Identifier: Apache-2.0
#include "topology/hwloc_check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <set>
#include <vector>

#include "base/text.hpp"

namespace tutti::topology {
namespace {

constexpr auto kCpuTypes = std::to_array<std::string_view>(
    {"Machine", "System", "Package", "Die", "Group", "L5Cache", "L4Cache", "L3Cache", "L2Cache",
     "L1Cache", "L3iCache", "L2iCache", "L1iCache", "Core", "PU"});
constexpr auto kMemoryTypes = std::to_array<std::string_view>({"NUMANode", "MemCache"});
constexpr auto kIoTypes = std::to_array<std::string_view>({"Bridge", "PCIDev", "OSDev"});
constexpr auto kElements = std::to_array<std::string_view>(
    {"object", "info", "distances2", "distances2hetero", "support", "memattr", "cpukind",
     "page_type", "userdata", "indexes", "u64values", "memattr_value"});
// Attributes that are whole numbers wherever they stand.
constexpr auto kNumbers = std::to_array<std::string_view>(
    {"os_index", "gp_index", "depth", "cache_size", "cache_linesize", "cache_type", "osdev_type",
     "local_memory", "nbobjs", "kind", "subkind", "target_obj_gp_index", "initiator_obj_gp_index",
     "ranking", "forced_efficiency", "dont_merge", "size", "count"});

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_number(std::string_view text, bool sign) {
  if (sign && text.starts_with('-')) text.remove_prefix(1);
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() && !text.empty();
}

// A set of bits as hwloc writes one: words of 32 bits, the highest first, empty for zero. The
// endless sets that begin with 0xf...f are no machine's.
class Bits {
 public:
  static std::optional<Bits> parse(std::string_view text) {
    constexpr std::size_t kMostWords = 4096;
    Bits bits;
    while (true) {
      const std::size_t comma = text.find(',');
      std::string_view word = text.substr(0, comma);
      // In the middle alone: hwloc asserts that nothing begins with a comma.
      const bool empty = word.empty() && comma != std::string_view::npos && !bits.words_.empty();
      if (word.starts_with("0x")) word.remove_prefix(2);
      std::uint32_t value = 0;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
      if (!empty && (error != std::errc() || stop != word.data() + word.size()))
        return std::nullopt;
      bits.words_.insert(bits.words_.begin(), value);
      if (bits.words_.size() > kMostWords) return std::nullopt;
      if (comma == std::string_view::npos) return bits;
      text.remove_prefix(comma + 1);
    }
  }
  [[nodiscard]] bool inside(const Bits& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if ((words_[i] & ~other.word(i)) != 0) return false;
    return true;
  }
  [[nodiscard]] bool meets(const Bits& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if ((words_[i] & other.word(i)) != 0) return true;
    return false;
  }
  [[nodiscard]] int count() const {
    int bits = 0;
    for (const std::uint32_t each : words_) bits += std::popcount(each);
    return bits;
  }
  // The least bit; what has none stands last.
  [[nodiscard]] std::size_t first() const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if (words_[i] != 0) return i * 32 + static_cast<std::size_t>(std::countr_zero(words_[i]));
    return words_.size() * 32;
  }
  void add(const Bits& other) {
    words_.resize(std::max(words_.size(), other.words_.size()));
    for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }

 private:
  [[nodiscard]] std::uint32_t word(std::size_t i) const {
    return i < words_.size() ? words_[i] : 0;
  }
  std::vector<std::uint32_t> words_;  // the lowest first
};

struct Sets {
  Bits cpus, all_cpus, memories, all_memories;
};

class Check {
 public:
  explicit Check(const XmlFile& file) : file_(file) {}

  Status whole() {
    const pugi::xml_node root = file_.root();
    const std::string_view version = root.attribute("version").value();
    if (!version.starts_with("2."))
      return file_.complain(root, fmt::format("the file has version \"{}\" of the format, but only "
                                              "2.x can be read; convert it with lstopo of hwloc 2",
                                              printable(version, 32)));
    const pugi::xml_node machine = root.child("object");
    if (!machine)
      return file_.complain(
          root, "contains no <object>, and so no machine; check that the file is complete");
    if (type_of(machine) != "Machine" && type_of(machine) != "System")
      return file_.complain(machine, fmt::format("the first object is of type \"{}\" and must be a "
                                                 "Machine",
                                                 printable(type_of(machine), 32)));
    if (machine.next_sibling("object"))
      return file_.complain(machine.next_sibling("object"), "the file contains a second machine");
    TUTTI_TRY(elements(root));
    TUTTI_TRY(object(machine, nullptr));
    TUTTI_TRY(allowed(machine, "allowed_cpuset", "cpuset"));
    TUTTI_TRY(allowed(machine, "allowed_nodeset", "nodeset"));
    if (nodes_ == 0 || units_ == 0)
      return file_.complain(
          machine,
          fmt::format("contains no {}, which every export has; check that the file is complete",
                      nodes_ == 0 ? "NUMANode" : "PU"));
    for (const pugi::xml_node each : root.children("distances2")) TUTTI_TRY(distances(each));
    for (const pugi::xml_node each : root.children("distances2hetero")) TUTTI_TRY(distances(each));
    return {};
  }

 private:
  static std::string_view type_of(pugi::xml_node node) { return node.attribute("type").value(); }

  Status elements(pugi::xml_node parent) {
    for (const pugi::xml_node node : parent.children()) {
      if (node.type() != pugi::node_element) continue;
      if (!is_one_of(node.name(), kElements))
        return file_.complain(node, fmt::format("<{}> is not known", printable(node.name(), 32)));
      for (const pugi::xml_attribute attribute : node.attributes())
        TUTTI_TRY(attribute_of(node, attribute));
      TUTTI_TRY(elements(node));
    }
    return {};
  }

  // hwloc's own parser leaves out all that follow a name of other letters, and of two the last
  // one holds.
  Status attribute_of(pugi::xml_node node, pugi::xml_attribute attribute) {
    const std::string_view name = attribute.name();
    if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != std::string_view::npos)
      return file_.complain(node,
                            fmt::format("the attribute \"{}\" is not known", printable(name, 32)));
    if (node.attribute(attribute.name()) != attribute)
      return file_.complain(node, fmt::format("{} is there twice", name));
    if (is_one_of(name, kNumbers) && !is_number(attribute.value(), name == "depth"))
      return file_.complain(node, fmt::format("{}=\"{}\" must be a whole number", name,
                                              printable(attribute.value(), 64)));
    return {};
  }

  Result<Bits> set(pugi::xml_node node, const char* name) {
    const pugi::xml_attribute attribute = node.attribute(name);
    const auto bits = Bits::parse(attribute.value());
    if (!attribute || !bits)
      return file_.complain(
          node,
          fmt::format("{}=\"{}\" of a {} must be words of hexadecimal digits separated by commas",
                      name, printable(attribute.value(), 64), printable(type_of(node), 32)));
    return *bits;
  }

  Result<Sets> sets(pugi::xml_node node) {
    Sets sets;
    TUTTI_TRY_ASSIGN(sets.cpus, set(node, "cpuset"));
    TUTTI_TRY_ASSIGN(sets.all_cpus, set(node, "complete_cpuset"));
    TUTTI_TRY_ASSIGN(sets.memories, set(node, "nodeset"));
    TUTTI_TRY_ASSIGN(sets.all_memories, set(node, "complete_nodeset"));
    if (!sets.cpus.inside(sets.all_cpus) || !sets.memories.inside(sets.all_memories))
      return file_.complain(node, "its cpuset or nodeset is not inside the complete one");
    return sets;
  }

  Status unique(pugi::xml_node node) {
    const std::string index = node.attribute("gp_index").value();
    if (index.empty() || !indexes_.insert(index).second)
      return file_.complain(node,
                            fmt::format("gp_index=\"{}\" must be present and unique in the file",
                                        printable(index, 32)));
    return {};
  }

  // `parent`: null for the machine.
  Status object(pugi::xml_node node, const Sets* parent) {
    const std::string_view type = type_of(node);
    TUTTI_TRY(unique(node));
    const bool memory = is_one_of(type, kMemoryTypes);
    if (!memory && !is_one_of(type, kCpuTypes))
      return file_.complain(
          node, fmt::format("an object of type \"{}\" is not known here", printable(type, 32)));
    TUTTI_TRY_ASSIGN(const Sets mine, sets(node));
    if (parent != nullptr &&
        (!mine.all_cpus.inside(parent->all_cpus) || !mine.cpus.inside(parent->cpus) ||
         (memory && !mine.all_memories.inside(parent->all_memories))))
      return file_.complain(node, "its sets are not inside those of the object around it");
    if (!memory && mine.all_cpus.count() == 0)
      return file_.complain(node, "its complete_cpuset is empty");
    TUTTI_TRY(leaf(node, mine));
    return children(node, mine, memory);
  }

  // Where it is said, what the process may use is some of what there is.
  Status allowed(pugi::xml_node machine, const char* name, const char* whole_name) {
    if (!machine.attribute(name)) return {};
    TUTTI_TRY_ASSIGN(const Bits some, set(machine, name));
    TUTTI_TRY_ASSIGN(const Bits whole, set(machine, whole_name));
    if (some.meets(whole)) return {};
    return file_.complain(machine, fmt::format("{} contains nothing of {}", name, whole_name));
  }

  Status leaf(pugi::xml_node node, const Sets& mine) {
    const bool unit = type_of(node) == "PU";
    const bool memory = type_of(node) == "NUMANode";
    units_ += unit;
    nodes_ += memory;
    const Bits& one = unit ? mine.all_cpus : mine.all_memories;
    if ((unit || memory) &&
        (one.count() != 1 || node.attribute("os_index").as_ullong(~0ULL) != one.first()))
      return file_.complain(node, "os_index and the only bit of its set must be the same");
    return {};
  }

  Status children(pugi::xml_node node, const Sets& mine, bool in_memory) {
    Bits taken;
    std::size_t before = 0;
    for (const pugi::xml_node child : node.children("object")) {
      const std::string_view type = type_of(child);
      if (is_one_of(type, kIoTypes)) {
        TUTTI_TRY(io(child));
        continue;
      }
      if (type == "Misc") return file_.complain(child, "objects of type Misc are not read here");
      TUTTI_TRY(object(child, &mine));
      if (is_one_of(type, kMemoryTypes)) continue;
      if (in_memory) return file_.complain(child, "a memory object contains processors");
      TUTTI_TRY_ASSIGN(const Bits cpus, set(child, "complete_cpuset"));
      if (cpus.meets(taken) || cpus.first() < before)
        return file_.complain(child,
                              "its processors belong to another object too, or are out of order");
      before = cpus.first();
      taken.add(cpus);
    }
    return {};
  }

  Status io(pugi::xml_node node) {
    TUTTI_TRY(unique(node));
    const std::string_view type = type_of(node);
    if (!is_one_of(type, kIoTypes))
      return file_.complain(
          node, fmt::format("an object of type \"{}\" is below a bus", printable(type, 32)));
    const std::string_view bridge = node.attribute("bridge_type").value();
    if (type == "Bridge" && bridge != "0-1" && bridge != "1-1")
      return file_.complain(node, "bridge_type must be \"0-1\" or \"1-1\"");
    const bool pci = type == "PCIDev" || bridge == "1-1";
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    if (pci && std::sscanf(node.attribute("pci_busid").value(), "%x:%x:%x.%x", &domain, &bus,
                           &device, &function) != 4)
      return file_.complain(node, "pci_busid must have the form \"0000:43:00.0\"");
    for (const pugi::xml_node child : node.children("object")) TUTTI_TRY(io(child));
    return {};
  }

  // Numbers, or "Type:number", with blanks between; how many.
  std::optional<std::size_t> words(pugi::xml_node list, const char* name, bool typed) {
    std::size_t count = 0;
    for (const pugi::xml_node part : list.children(name)) {
      std::string_view text = part.text().get();
      if (text.size() != part.attribute("length").as_ullong(~0ULL)) return std::nullopt;
      while (!text.empty()) {
        const std::size_t blank = std::min(text.find_first_of(" \n"), text.size());
        std::string_view word = text.substr(0, blank);
        text.remove_prefix(std::min(text.size(), blank + 1));
        if (word.empty()) continue;
        const std::size_t colon = word.find(':');
        if (typed != (colon != std::string_view::npos)) return std::nullopt;
        if (typed) word.remove_prefix(colon + 1);
        if (!is_number(word, false)) return std::nullopt;
        ++count;
      }
    }
    return count;
  }

  Status distances(pugi::xml_node list) {
    const std::uint64_t objects = list.attribute("nbobjs").as_ullong(0);
    const bool typed = list.name() == std::string_view("distances2hetero");
    const auto indexes = words(list, "indexes", typed);
    const auto values = words(list, "u64values", false);
    constexpr std::uint64_t kMostObjects = 4096;
    if (objects == 0 || objects > kMostObjects || indexes != objects || values != objects * objects)
      return file_.complain(list,
                            fmt::format("a matrix of {} objects needs as many indexes and the "
                                        "square of it in values, with the right lengths",
                                        objects));
    const std::string_view indexing = list.attribute("indexing").value();
    if (!typed &&
        ((indexing != "os" && indexing != "gp") ||
         (!is_one_of(type_of(list), kCpuTypes) && !is_one_of(type_of(list), kMemoryTypes))))
      return file_.complain(list, "a matrix needs a type of objects and indexing=\"os\" or \"gp\"");
    return {};
  }

  const XmlFile& file_;
  std::set<std::string> indexes_;
  std::size_t nodes_ = 0;
  std::size_t units_ = 0;
};

}  // namespace

Status check_hwloc_export(const XmlFile& file) { return Check(file).whole(); }

Status check_synthetic(const std::string& description) {
  constexpr double kMostObjects = 4096;  // two seconds of hwloc 2.9
  double objects = 1;                    // of the last level: the product of all numbers
  double memories = 0;                   // beside the levels, "[...]"
  int depth = 0;                         // inside of attributes and memory, "(...)" and "[...]"
  bool in_name = false;                  // of a type, as "l3"
  for (std::size_t at = 0; at < description.size();) {
    const char c = description[at];
    if (c == '[' && depth == 0) memories += objects;
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    const bool number = c == '-' || (c >= '0' && c <= '9');
    // A level is "type:number" or a number alone. hwloc wraps negative ones around.
    if (depth == 0 && number && !in_name) {
      const char* const begin = description.c_str() + at;
      char* end = nullptr;
      const double count = std::strtod(begin, &end);
      objects *= count < 0 ? kMostObjects + 1 : std::max(1.0, count);
      at += static_cast<std::size_t>(std::max<std::ptrdiff_t>(end - begin, 1));
      continue;
    }
    in_name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (in_name && number);
    ++at;
  }
  if (objects <= kMostObjects && memories <= kMostObjects) return {};
  return make_error(Code::kInvalidArgument,
                    fmt::format("\"{}\" has more than {} processors or memories; describe one "
                                "host, for example \"package:2 numa:1 l3:4 core:8 pu:1\"",
                                printable(description), kMostObjects));
}

}  // namespace tutti::topology
