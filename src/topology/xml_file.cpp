// SPDX-License-Identifier: Apache-2.0
#include "topology/xml_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fd.hpp"
#include "base/text.hpp"

namespace tutti::topology {
namespace {

tl::unexpected<Error> refuse(const std::string& place, std::string_view what) {
  return make_error(Code::kInvalidArgument, fmt::format("{}: {}", printable(place), what));
}

// Recursion in readers is bounded by this.
pugi::xml_node too_deep(pugi::xml_node root, int most) {
  struct Walker : pugi::xml_tree_walker {
    int most = 0;
    pugi::xml_node found;
    bool for_each(pugi::xml_node& node) override {
      if (depth() > most) found = node;
      return !found;
    }
  } walker;
  walker.most = most;
  root.traverse(walker);
  return walker.found;
}

}  // namespace

Result<std::string> read_text(const std::string& path, std::size_t most_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0)
    return refuse(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return refuse(path, "is not a file; give the path of one");
  std::string text;
  std::string buffer(1 << 16, '\0');
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    if (got == 0) return text;
    text.append(buffer, 0, static_cast<std::size_t>(got));
    if (text.size() > most_bytes)
      return refuse(path, fmt::format("is larger than {} MiB, which no machine description is",
                                      most_bytes >> 20));
  }
}

Result<XmlFile> XmlFile::load(const std::string& path, std::string_view root) {
  TUTTI_TRY_ASSIGN(std::string text, read_text(path, kMostBytes));
  return parse(std::move(text), path, root);
}

Result<XmlFile> XmlFile::parse(std::string text, std::string name, std::string_view root) {
  XmlFile file(std::move(text), std::move(name));
  const pugi::xml_parse_result parsed =
      file.document_.load_buffer(file.text_.data(), file.text_.size());
  if (!parsed)
    return refuse(file.place(parsed.offset),
                  fmt::format("is not well-formed XML: {}; check that the file is complete",
                              parsed.description()));
  if (file.root().name() != root)
    return file.complain(
        file.root(),
        fmt::format("the first element is <{}>, but a file of this kind begins with <{}>",
                    printable(file.root().name(), 64), root));
  if (const pugi::xml_node deep = too_deep(file.root(), kMostDepth))
    return file.complain(deep,
                         fmt::format("elements are nested deeper than {} levels", kMostDepth));
  return file;
}

std::string XmlFile::plain() const {
  struct Writer : pugi::xml_writer {
    std::string text;
    void write(const void* data, std::size_t bytes) override {
      text.append(static_cast<const char*>(data), bytes);
    }
  } writer;
  root().print(writer, "", pugi::format_raw, pugi::encoding_utf8);
  return std::move(writer.text);
}

std::string XmlFile::place(std::ptrdiff_t offset) const {
  const auto end =
      static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(offset, 0, std::ssize(text_)));
  const std::string_view before = std::string_view(text_).substr(0, end);
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? end + 1 : end - newline;
  return fmt::format("{}:{}:{}", name_, line, column);
}

std::string XmlFile::place(pugi::xml_node where) const { return place(where.offset_debug()); }

tl::unexpected<Error> XmlFile::complain(pugi::xml_node where, std::string_view what) const {
  return refuse(place(where), what);
}

}  // namespace tutti::topology
