// SPDX-License-Identifier: Apache-2.0
// zero_memory: memory, communication and time of training by stage, for any model and cluster.
// Parses flags and writes; the other files compute.
//
// Exit status: 0, or 2 for bad usage, bad files or output that cannot be written, with one line
// that says what is wrong.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/output.hpp"
#include "cluster_prices.hpp"
#include "flags.hpp"
#include "memory_picture.hpp"
#include "perf/common/flags.hpp"

namespace {

using namespace tutti;
using namespace tutti::zero_memory;

constexpr int kBadUsage = 2;

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }
void print(const nlohmann::json& json) { print(json.dump(2) + "\n"); }

Status print_articles(bool as_json) {
  const std::vector<Figure> figures = article_figures();
  if (as_json)
    print(to_json(figures));
  else
    print(article_table(figures));
  return {};
}

Status print_advice(const Flags& flags) {
  TUTTI_TRY_ASSIGN(const Cluster cluster, read_cluster(flags.cluster));
  TUTTI_TRY_ASSIGN(const Profile profile,
                   load_profile(flags.profile.empty() ? "tutti" : flags.profile));
  TUTTI_TRY_ASSIGN(AdviseQuestion question,
                   advise_question(flags, static_cast<std::uint64_t>(cluster.ranks()),
                                   static_cast<std::uint64_t>(cluster.ranks_per_node),
                                   cluster.gpu == nullptr ? "" : cluster.gpu->name));
  question.memory_GBps = rank_memory_GBps(cluster);
  TUTTI_TRY_ASSIGN(const std::vector<Advice> advice,
                   advise(question, cluster_prices(cluster, profile)));
  if (flags.json) {
    nlohmann::json object = to_json(question, advice);
    object["cluster"] = cluster.name;
    object["profile"] = profile.name;
    print(object);
    return {};
  }
  print(fmt::format("# cluster {}, hosts: {}; collectives as profile {} prices them\n",
                    cluster.name, cluster.nodes, profile.name));
  print(to_text(question, advice));
  return {};
}

Status write_picture(const Flags& flags, const ReportQuestion& question) {
  std::ofstream file(flags.svg, std::ios::binary);
  file << memory_svg(question.model, question.accounting, question.ranks, question.memory_bytes);
  file.close();
  if (file) return {};
  return errno_error(fmt::format("--svg {}: cannot write", flags.svg), errno);
}

Status print_report(const Flags& flags) {
  TUTTI_TRY_ASSIGN(const ReportQuestion question, report_question(flags));
  if (!flags.svg.empty()) TUTTI_TRY(write_picture(flags, question));
  const Report report = make_report(question);
  if (flags.json)
    print(to_json(report));
  else
    print(to_text(report));
  return {};
}

Status run(const Flags& flags) {
  if (flags.articles) return print_articles(flags.json);
  if (flags.cluster.empty()) return print_report(flags);
  if (flags.svg.empty()) return print_advice(flags);
  return make_error(Code::kInvalidArgument, "--svg draws no --advise; leave one of them out");
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Memory, communication and time of training: DDP and ZeRO-1, 2 and 3.",
               "zero_memory");
  add_flags(app, flags);
  if (const auto status = perf::parse_flags(app, argc, argv)) return *status;
  const Status done = run(flags);
  const Status written = finish_output();
  if (done && written) return 0;
  fmt::print(stderr, "zero_memory: {}\n", (done ? written.error() : done.error()).message);
  return kBadUsage;
}
