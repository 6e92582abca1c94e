// SPDX-License-Identifier: Apache-2.0
#include "print.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "values.hpp"

namespace tutti::programs {
namespace {

std::string print(const Step& step) {
  const Step plain;
  std::string text = fmt::format("{{.kind = Kind::{}", name_of(step.kind));
  const auto field = [&](const char* name, auto value, auto ordinary) {
    if (value != ordinary) text += fmt::format(", .{} = {}", name, value);
  };
  field("comm", step.comm, plain.comm);
  field("stream", step.stream, plain.stream);
  field("stagger", step.stagger, plain.stagger);
  field("group", step.group, plain.group);
  field("in", step.in, plain.in);
  field("out", step.out, plain.out);
  field("in_first", step.in_first, plain.in_first);
  field("out_first", step.out_first, plain.out_first);
  field("count", step.count, plain.count);
  if (step.op != plain.op) text += fmt::format(", .op = {}", name_of(step.op));
  field("root", step.root, plain.root);
  field("peer", step.peer, plain.peer);
  field("in_place", step.in_place, plain.in_place);
  field("event", step.event, plain.event);
  field("made", step.made, plain.made);
  field("salt", step.salt, plain.salt);
  field("derived", step.derived, plain.derived);
  return text + "}";
}

}  // namespace

std::string print(const Program& program) {
  std::string text = fmt::format("{{.ranks = {},\n .streams = {},\n .buffers = {{", program.ranks,
                                 program.streams);
  for (std::size_t i = 0; i < program.buffers.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", name_of(program.buffers[i]));
  text += "},\n .steps = {";
  for (std::size_t i = 0; i < program.steps.size(); ++i)
    text += fmt::format("{}\n     {}", i == 0 ? "" : ",", print(program.steps[i]));
  return text + "}}";
}

std::string print_test(const Program& program, const std::string& failure) {
  std::string comment = failure;  // a line
  std::ranges::replace(comment, '\n', ' ');
  return fmt::format(
      "// {}\nTEST(PastedPrograms, NameIt) {{\n  const Program program{};\n"
      "  EXPECT_EQ(check(program), \"\");\n}}\n",
      comment, print(program));
}

}  // namespace tutti::programs
