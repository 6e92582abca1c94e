// SPDX-License-Identifier: Apache-2.0
// An XML file that somebody else wrote: read, parsed, and every complaint with file and line.
#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace tutti::topology {

class XmlFile {
 public:
  static constexpr std::size_t kMostBytes = 64u << 20;
  static constexpr int kMostDepth = 200;

  // kInvalidArgument, "FILE:LINE:COLUMN: what": cannot be read, is not XML, is larger or deeper
  // than any machine's, or its first element is not `root`.
  [[nodiscard]] static Result<XmlFile> load(const std::string& path, std::string_view root);
  // The same of text that is there already; `name` stands for the file in messages.
  [[nodiscard]] static Result<XmlFile> parse(std::string text, std::string name,
                                             std::string_view root);

  [[nodiscard]] pugi::xml_node root() const { return document_.document_element(); }
  // The elements anew, in the plainest form: for another parser, which thus reads what this one
  // read. Without the declaration: the encoding that it names is not what was read.
  [[nodiscard]] std::string plain() const;
  // kInvalidArgument, "FILE:LINE:COLUMN: what", at a node of this file.
  [[nodiscard]] tl::unexpected<Error> complain(pugi::xml_node where, std::string_view what) const;
  [[nodiscard]] std::string place(pugi::xml_node where) const;

 private:
  XmlFile(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {}
  [[nodiscard]] std::string place(std::ptrdiff_t offset) const;

  std::string text_;
  std::string name_;
  pugi::xml_document document_;
};

// The bytes of a file. kInvalidArgument: it cannot be read, or is larger than `most_bytes`.
[[nodiscard]] Result<std::string> read_text(const std::string& path, std::size_t most_bytes);

}  // namespace tutti::topology
