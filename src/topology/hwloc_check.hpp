// SPDX-License-Identifier: Apache-2.0
// Whether an hwloc export holds together, before hwloc reads it: hwloc trusts what it reads (2.9
// follows null pointers where a set is missing or objects do not lie inside one another), and says
// neither where nor why it refuses. Knows XML alone, not hwloc.
#pragma once

#include <string>

#include "topology/xml_file.hpp"

namespace tutti::topology {

// The rules of the form, version 2: known objects; sets of processors and memories that parse, lie
// inside the parent's and apart from the siblings'; numbers where numbers must be; distances of as
// many values as they announce. kInvalidArgument, "FILE:LINE:COLUMN: what".
[[nodiscard]] Status check_hwloc_export(const XmlFile& file);

// Checks whether a synthetic description ("package:2 core:4 pu:2") is small enough to build: hwloc
// takes a time that grows with the cube of a level's objects. kInvalidArgument otherwise.
[[nodiscard]] Status check_synthetic(const std::string& description);

}  // namespace tutti::topology
