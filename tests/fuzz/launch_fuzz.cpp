// SPDX-License-Identifier: Apache-2.0
// Any bytes as what a launcher leaves for a process to find: its environment (NAME=VALUE, ended by
// zero bytes), the address of the root, and the value that a key-value store gives back. The first
// byte says which.
#include <algorithm>
#include <map>
#include <string>

#include "base/tcp_address.hpp"
#include "control/unique_id.hpp"
#include "launch/address.hpp"
#include "launch/launch.hpp"
#include "tests/fuzz/target.hpp"

namespace tutti::fuzz {
namespace {

using namespace launch;

void require_one_line(const Error& error) {
  require(!error.message.empty(), "an error says something");
  require(
      std::ranges::all_of(error.message, [](unsigned char c) { return c >= 0x20 && c != 0x7f; }),
      "an error is one line and nothing for the terminal to obey");
}

void read_root(const std::string& text) {
  const auto root = parse_root(text);
  if (!root) return require_one_line(root.error());
  require(root->port != 0 && !root->host.empty(), "an address has a host and a port");
  const auto id = unique_id_at(root->host, root->port, Bytes(32, std::byte{1}), "job");
  if (!id) return require_one_line(id.error());
  const auto content = control::decode_id(*id);
  require(content.has_value(), "an id made of an address is one");
  const auto place = split_tcp(content->tcp);
  require(place && place->port == root->port, "and leads there");
}

void read_environment(std::string_view text) {
  std::map<std::string, std::string, std::less<>> variables;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const std::size_t equal = word.find('=');
    if (equal != std::string_view::npos)
      variables.emplace(word.substr(0, equal), word.substr(equal + 1));
  }
  const Getenv getenv = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const auto config = load_config(getenv);
  if (!config) return require_one_line(config.error());
  const auto place = find_place(*config, {getenv, [](int fd) { return fd == 3; }});
  if (!place) return require_one_line(place.error());
  require(check_place(*place).has_value(), "a place is possible");
  require(place->ranks == kUnknown || (place->rank >= 0 && place->rank < place->ranks),
          "a rank is one of the job");
  require(place->ranks <= static_cast<std::int32_t>(kMostRanks), "ranks have a bound");
  if (place->store == Store::kAddress) read_root(place->root);
}

void read_value(const std::string& text) {
  const auto id = decode_value(text);
  if (!id) return require_one_line(id.error());
  const auto again = decode_value(encode_value(*id));
  require(again && again->bytes == id->bytes, "an id survives encoding");
}

}  // namespace

void run_one(std::span<const std::byte> input) {
  if (input.empty()) return;
  const std::string text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  switch (static_cast<unsigned>(input[0]) % 3) {
    case 0:
      return read_environment(text);
    case 1:
      return read_root(text);
    default:
      return read_value(text);
  }
}

std::vector<Bytes> seeds() {
  const auto environment = [](std::initializer_list<std::string> variables) {
    std::string text;
    for (const std::string& variable : variables) text += variable + '\0';
    return marked(0, text);
  };
  UniqueId id;
  id.bytes.fill(std::byte{0xa5});
  return {
      environment({"TUTTI_RANK=1", "TUTTI_RANKS=4", "TUTTI_ROOT=node0:7000"}),
      environment({"TORCHELASTIC_RUN_ID=a", "TORCHELASTIC_RESTART_COUNT=0", "RANK=1",
                   "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=fd00::1",
                   "MASTER_PORT=29500"}),
      environment(
          {"PMI_FD=3", "PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4"}),
      environment({"PMIX_RANK=1", "PMIX_NAMESPACE=slurm.pmix.7.0", "SLURM_STEP_NUM_TASKS=4",
                   "SLURM_NODEID=1", "SLURM_LOCALID=0", "SLURM_STEP_TASKS_PER_NODE=2(x1),1(x2)"}),
      environment({"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_JOB_ID=7",
                   "TUTTI_OP_TIMEOUT_S=2"}),
      marked(1, "node0:7000"),
      marked(1, "[fd00::1]:7000"),
      marked(2, encode_value(id)),
      marked(2, encode_value(make_error(Code::kSystemError, "no interface eth7"))),
  };
}

}  // namespace tutti::fuzz
