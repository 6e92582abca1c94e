// SPDX-License-Identifier: Apache-2.0
// Measured tables and the manifest that says of which cluster and algorithm each is.
//
// A table is CSV with a header: `size_bytes` and `time_us`, and `algorithm` where one file holds
// several; other columns are read over. Files are others' data: any bytes give tables or one line
// with file and line. README.md of this folder describes both formats.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/collective.hpp"
#include "base/result.hpp"
#include "schedule/schedule.hpp"
#include "topology/cluster.hpp"

namespace tutti::sim {

struct Point {
  double size_bytes = 0, time_us = 0;
};

// Of the rows of one name of the column `algorithm`; of all rows where there is no such column.
struct Series {
  std::string label;          // as in reports: "ring", "tree/LL128"
  std::string algorithm;      // of the profile
  std::string protocol;       // forced; empty: the implementation's choice
  std::vector<Point> points;  // by size, each once
};

// Holds what was measured together: one cluster, one number of nodes, one implementation.
struct Group {
  std::string name;
  std::string cluster_name;
  Cluster cluster;
  Collective collective = Collective::kNone;
  std::vector<Series> series;
};

enum class LeaveOut {
  kNothing,  // the profile as it is, scored on everything
  kNodes,    // fitted on all but one number of nodes, scored on that
  kCluster,  // fitted on all but one cluster, scored on that
  kSizes,    // fitted on every second size, scored on the others
};

struct Study {
  std::string name, profile;
  LeaveOut leave_out = LeaveOut::kNothing;
  std::vector<Group> groups;
};

struct Measurements {
  std::vector<Study> studies;
  std::vector<std::string> skipped;  // "file: why", one line each
};

// Rows by the column `algorithm`, or under "" without one. kInvalidArgument: "file:line: what".
[[nodiscard]] Result<std::map<std::string, std::vector<Point>>> parse_table(
    const std::string& text, const std::string& file);

// The tables below `folder` that its manifest.json, or else `manifest_text`, names. A file that the
// manifest does not name is skipped; a named one that is missing is, too; a broken one is an error.
[[nodiscard]] Result<Measurements> read_measurements(const std::string& folder,
                                                     const std::string& manifest_text);

}  // namespace tutti::sim
