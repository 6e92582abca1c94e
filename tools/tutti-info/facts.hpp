// SPDX-License-Identifier: Apache-2.0
// What tutti-info knows, as data: this build, this machine, its launcher, the algorithms, the
// configuration.
// Gathering probes the machine and reads the environment; it changes nothing. One thread.
#pragma once

#include <string>
#include <vector>

namespace tutti::info {

// One line of a section: a short name and a text for people.
struct Fact {
  std::string name;
  std::string value;
};

struct AlgorithmRow {
  std::string name, summary, source, parameters;
};

struct VariableRow {
  std::string name, value, default_value, allowed, help;
  bool set = false;  // by the environment, to something else than the default
};

struct Facts {
  std::string version;
  std::vector<Fact> build;
  std::vector<Fact> machine;
  std::vector<Fact> launcher;  // what started this process
  std::vector<Fact> ways;      // by which transport messages would travel, and why
  std::vector<AlgorithmRow> algorithms;
  std::vector<VariableRow> variables;
  std::vector<std::string> warnings;  // bad values, unknown TUTTI_* names
  bool config_ok = true;              // false: the library refuses a value of the environment
};

// `environment` as environ: "NAME=value", ends with nullptr.
[[nodiscard]] Facts gather(const char* const* environment);

// The table for people, ends with a newline.
[[nodiscard]] std::string to_text(const Facts& facts);
[[nodiscard]] std::string to_json(const Facts& facts);

}  // namespace tutti::info
