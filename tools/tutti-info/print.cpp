// SPDX-License-Identifier: Apache-2.0
// Facts as a table for people and as JSON for programs.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "facts.hpp"

namespace tutti::info {
namespace {

using Json = nlohmann::ordered_json;

std::string section(const char* title, const std::vector<Fact>& facts) {
  std::string text = fmt::format("{}\n", title);
  for (const Fact& fact : facts) text += fmt::format("  {:<20} {}\n", fact.name, fact.value);
  return text + "\n";
}

Json object_of(const std::vector<Fact>& facts) {
  Json json = Json::object();
  for (const Fact& fact : facts) json[fact.name] = fact.value;
  return json;
}

}  // namespace

std::string to_text(const Facts& facts) {
  std::string text =
      section("Build", facts.build) + section("Machine", facts.machine) +
      section("Launcher of this process", facts.launcher) +
      section("Transports (TUTTI_TRANSPORT, TUTTI_IFNAME, TUTTI_IB_HCA)", facts.ways);
  text += "Algorithms (--algo, TUTTI_ALGO; tutti-plan draws and proves them)\n";
  for (const AlgorithmRow& row : facts.algorithms) {
    text += fmt::format("  {:<20} {}\n  {:<20} {}\n", row.name, row.summary, "", row.source);
    if (!row.parameters.empty())
      text += fmt::format("  {:<20} parameters: {}\n", "", row.parameters);
  }
  text += "\nVariables (* set in the environment)\n";
  std::size_t widest = 0;
  for (const VariableRow& row : facts.variables) widest = std::max(widest, row.name.size());
  for (const VariableRow& row : facts.variables)
    text += fmt::format("{} {:<{}}  {:<12}  default {:<8}  {}\n{:{}}  {}\n", row.set ? '*' : ' ',
                        row.name, widest, row.value.empty() ? "-" : row.value,
                        row.default_value.empty() ? "-" : row.default_value, row.allowed, "",
                        widest + 2, row.help);
  for (const std::string& warning : facts.warnings) text += fmt::format("\nwarning: {}\n", warning);
  return text;
}

std::string to_json(const Facts& facts) {
  Json json{{"version", facts.version}};
  json["build"] = object_of(facts.build);
  json["machine"] = object_of(facts.machine);
  json["launcher"] = object_of(facts.launcher);
  json["ways"] = object_of(facts.ways);
  json["algorithms"] = Json::array();
  for (const AlgorithmRow& row : facts.algorithms)
    json["algorithms"].push_back({{"name", row.name},
                                  {"summary", row.summary},
                                  {"source", row.source},
                                  {"parameters", row.parameters}});
  json["variables"] = Json::array();
  for (const VariableRow& row : facts.variables)
    json["variables"].push_back({{"name", row.name},
                                 {"value", row.value},
                                 {"default", row.default_value},
                                 {"allowed", row.allowed},
                                 {"set", row.set},
                                 {"help", row.help}});
  json["warnings"] = facts.warnings;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::info
