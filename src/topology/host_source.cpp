// SPDX-License-Identifier: Apache-2.0
#include "topology/host_source.hpp"

#include <fmt/core.h>

#include <fstream>
#include <map>
#include <mutex>

#include "base/text.hpp"
#include "topology/hwloc_reader.hpp"
#include "topology/nccl_reader.hpp"
#include "topology/xml_file.hpp"

namespace tutti::topology {
namespace {

std::string value_of(const Getenv& get, const char* name) {
  const char* const value = get(name);
  return value != nullptr ? value : "";
}

// Of a file of one line; "": there is none.
std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "0-1", "0,2": more than one node is online. Or there is a processor outside of the first one's
// level 3 cache.
bool has_several_parts(const std::string& sys) {
  if (line_of(sys + "/devices/system/node/online").find_first_of(",-") != std::string::npos)
    return true;
  const std::string processors = sys + "/devices/system/cpu/";
  const std::string sharing = line_of(processors + "cpu0/cache/index3/shared_cpu_list");
  return !sharing.empty() && sharing != line_of(processors + "online");
}

struct Named {
  std::string name;
  std::function<Result<Graph>()> read;
};

Named source_of(const std::string& setting, const Getenv& get) {
  if (setting != "auto")
    return {printable(setting), [setting] { return read_topology_file(setting); }};
  const std::string file = value_of(get, "HWLOC_XMLFILE");
  const std::string synthetic = value_of(get, "HWLOC_SYNTHETIC");
  Named named{"this machine", [get] { return read_host(get); }};
  if (!synthetic.empty()) named.name = fmt::format("HWLOC_SYNTHETIC \"{}\"", printable(synthetic));
  if (!file.empty()) named.name = "HWLOC_XMLFILE " + printable(file);
  return named;
}

}  // namespace

Interest interest_in_topology(const std::string& setting, const Getenv& get,
                              const std::string& sys) {
  if (setting == "off") return Interest::kOff;
  if (setting != "auto") return Interest::kAlways;
  const bool described =
      !value_of(get, "HWLOC_XMLFILE").empty() || !value_of(get, "HWLOC_SYNTHETIC").empty();
  return described || has_several_parts(sys) ? Interest::kIfSeated : Interest::kNone;
}

Result<Graph> read_topology_file(const std::string& path) {
  TUTTI_TRY_ASSIGN(std::string text, read_text(path, XmlFile::kMostBytes));
  // Whichever of the two stands first; a file that has neither is for hwloc's reader to refuse.
  const std::size_t nccl = text.find("<system"), hwloc = text.find("<topology");
  return nccl < hwloc ? read_nccl_text(std::move(text), path)
                      : read_hwloc_text(std::move(text), path);
}

Result<HostSource> read_host_source(const std::string& setting, const Getenv& get) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::string, HostSource>;  // guarded by mutex
  const Named source = source_of(setting, get);
  const std::lock_guard lock(mutex);
  if (const auto found = known->find(source.name); found != known->end()) return found->second;
  TUTTI_TRY_ASSIGN(Graph graph, source.read());
  return known->emplace(source.name, HostSource{std::move(graph), source.name}).first->second;
}

}  // namespace tutti::topology
