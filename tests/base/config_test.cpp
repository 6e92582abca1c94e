// SPDX-License-Identifier: Apache-2.0
// The table, the struct's defaults and the parser agree; a bad value is one clear line.
#include "base/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Result<Config> load(const std::map<std::string, std::string>& environment) {
  return load_config([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Config, TheTablesDefaultsAreTheStructs) {
  const Config defaults;
  const Result<Config> unset = load({});
  ASSERT_TRUE(unset) << unset.error().message;
  std::map<std::string, std::string> written;
  for (const ConfigVariable& variable : config_table())
    written[std::string(variable.name)] = variable.default_text;
  const Result<Config> set = load(written);
  ASSERT_TRUE(set) << set.error().message;
  for (const ConfigVariable& variable : config_table()) {
    EXPECT_EQ(value_text(defaults, variable), variable.default_text) << variable.name;
    EXPECT_EQ(value_text(*unset, variable), variable.default_text) << variable.name;
    EXPECT_EQ(value_text(*set, variable), variable.default_text) << variable.name;
  }
}

TEST(Config, EveryVariableIsNamedOnceAndExplained) {
  std::set<std::string_view> names;
  for (const ConfigVariable& variable : config_table()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_TRUE(variable.name.starts_with("TUTTI_")) << variable.name;
    EXPECT_FALSE(variable.help.empty()) << variable.name;
    EXPECT_EQ(variable.help.find('\n'), std::string_view::npos) << variable.name;
    EXPECT_FALSE(allowed_text(variable).empty()) << variable.name;
  }
}

TEST(Config, ReadsEveryKindOfValue) {
  const Result<Config> config = load({{"TUTTI_ALGO", "ring"},
                                      {"TUTTI_PROTO", "slots"},
                                      {"TUTTI_REPLICAS", "4"},
                                      {"TUTTI_SLOTS", "2"},
                                      {"TUTTI_SLOT_BYTES", "64KiB"},
                                      {"TUTTI_ARENA_BYTES", "3m"},
                                      {"TUTTI_OP_TIMEOUT_S", "0.25"},
                                      {"TUTTI_DEBUG", "TRACE"},
                                      {"TUTTI_DEBUG_FILE", "/tmp/%h.%p.log"},
                                      {"TUTTI_FLIGHT_DIR", "/var/tmp"},
                                      {"TUTTI_ISA", "avx2"},
                                      {"TUTTI_SPIN", "0"},
                                      {"TUTTI_CMA", "off"},
                                      {"TUTTI_NT_BYTES", "1G"},
                                      {"TUTTI_LAUNCHER", "none"},
                                      {"TUTTI_RANK", "0"},
                                      {"TUTTI_RANKS", "65536"},
                                      {"TUTTI_ROOT", "[fd00::1]:7000"},
                                      {"TUTTI_SECRET_FILE", "/run/secret"},
                                      {"TUTTI_INSECURE", "1"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->algo, "ring");
  EXPECT_EQ(config->protocol, ProtocolChoice::kSlots);
  EXPECT_EQ(config->replicas, 4u);
  EXPECT_EQ(config->slots, 2u);
  EXPECT_EQ(config->slot_bytes, 65536u);
  EXPECT_EQ(config->arena_bytes, 3u << 20);
  EXPECT_EQ(config->op_timeout_ns, 250'000'000);
  EXPECT_EQ(config->log_level, LogLevel::kTrace);
  EXPECT_EQ(config->log_file, "/tmp/%h.%p.log");
  EXPECT_EQ(config->flight_dir, "/var/tmp");
  EXPECT_EQ(config->isa, IsaChoice::kAvx2);
  EXPECT_EQ(config->cma, CmaChoice::kOff);
  EXPECT_EQ(config->spin, 0u);
  EXPECT_EQ(config->nt_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(config->launcher, LauncherChoice::kNone);
  EXPECT_EQ(config->rank, 0u);
  EXPECT_EQ(config->ranks, 65536u);
  EXPECT_EQ(config->root, "[fd00::1]:7000");
  EXPECT_EQ(config->secret_file, "/run/secret");
  EXPECT_TRUE(config->insecure);
}

TEST(Config, EmptyMeansNotSet) {
  const Result<Config> config = load({{"TUTTI_ARENA_BYTES", ""}, {"TUTTI_PROTO", ""}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->arena_bytes, Config{}.arena_bytes);
}

struct BadValue {
  const char* name;
  const char* value;
  const char* allowed;  // must be part of the message
};
class ConfigBadValue : public testing::TestWithParam<BadValue> {};

TEST_P(ConfigBadValue, IsOneLineWithNameValueAndWhatIsAllowed) {
  const auto& [name, value, allowed] = GetParam();
  const Result<Config> config = load({{name, value}});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, Code::kInvalidArgument);
  EXPECT_THAT(config.error().message, AllOf(HasSubstr(std::string(name) + "=" + value),
                                            HasSubstr(allowed), Not(HasSubstr("\n"))));
}

INSTANTIATE_TEST_SUITE_P(
    Values, ConfigBadValue,
    testing::Values(BadValue{"TUTTI_PROTO", "Slots", "auto|flagged|slots"},
                    BadValue{"TUTTI_PROTO", "auto|flagged", "auto|flagged|slots"},
                    BadValue{"TUTTI_SLOTS", "1", "0 (auto) or 2..64"},
                    BadValue{"TUTTI_SLOTS", "65", "0 (auto) or 2..64"},
                    BadValue{"TUTTI_SLOTS", "-1", "2..64"}, BadValue{"TUTTI_SLOTS", "+4", "2..64"},
                    BadValue{"TUTTI_SLOTS", " 4", "2..64"}, BadValue{"TUTTI_SLOTS", "4x", "2..64"},
                    BadValue{"TUTTI_SLOTS", "99999999999999999999", "2..64"},
                    BadValue{"TUTTI_SLOTS", "auto", "2..64"},
                    BadValue{"TUTTI_ARENA_BYTES", "0", "64K..64G bytes"},
                    BadValue{"TUTTI_ARENA_BYTES", "K", "64K..64G bytes"},
                    BadValue{"TUTTI_ARENA_BYTES", "2T", "64K..64G bytes"},
                    BadValue{"TUTTI_ARENA_BYTES", "18446744073709551615G", "64K..64G bytes"},
                    BadValue{"TUTTI_RANK", "65536", "auto or 0..65535"},
                    BadValue{"TUTTI_RANKS", "0", "auto or 1..65536"},
                    BadValue{"TUTTI_INSECURE", "yes", "0|1"},
                    BadValue{"TUTTI_OP_TIMEOUT_S", "0", "seconds"},
                    BadValue{"TUTTI_OP_TIMEOUT_S", "-5", "seconds"},
                    BadValue{"TUTTI_OP_TIMEOUT_S", "nan", "seconds"},
                    BadValue{"TUTTI_OP_TIMEOUT_S", "1e9", "seconds"},
                    BadValue{"TUTTI_OP_TIMEOUT_S", ".", "seconds"},
                    BadValue{"TUTTI_OP_TIMEOUT_S", "999999999999999999", "seconds"},
                    BadValue{"TUTTI_DEBUG", "verbose", "off|error|warn|version|info|trace"},
                    BadValue{"TUTTI_ISA", "sse2", "auto|avx512|avx2|scalar"},
                    BadValue{"TUTTI_SPIN", "many", "auto or 0..10000000"},
                    BadValue{"TUTTI_SPIN", "10000001", "auto or 0..10000000"},
                    BadValue{"TUTTI_REPLICAS", "9", "0 (auto) or 1..8"},
                    BadValue{"TUTTI_SPIN", "4294967295", "auto or 0..10000000"}),
    [](const auto& tested) {
      return std::string(tested.param.name).substr(6) + "_" + std::to_string(tested.index);
    });

TEST(Config, NamesOfAlgorithmsMayBeAsLongAsTheRuntimeTakesThem) {
  const std::string longest(kMaxForcedText - 1, 'x');
  const Result<Config> config = load({{"TUTTI_ALGO", longest.c_str()}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->algo, longest);
  const Result<Config> longer = load({{"TUTTI_ALGO", (longest + "x").c_str()}});
  ASSERT_FALSE(longer);
  EXPECT_THAT(longer.error().message, HasSubstr("a text of 1 to 511 bytes"));
}

TEST(Config, AllowedTextNamesTheRange) {
  const auto allowed = [](std::string_view name) -> std::string {
    for (const ConfigVariable& variable : config_table())
      if (variable.name == name) return allowed_text(variable);
    return "no such variable";
  };
  EXPECT_EQ(allowed("TUTTI_OP_TIMEOUT_S"), "0.001..31536000 seconds");
  EXPECT_EQ(allowed("TUTTI_SPIN"), "auto or 0..10000000");
}

TEST(Config, UnknownVariablesComeWithTheNearestName) {
  const std::pair<const char*, const char*> expected[] = {
      {"TUTTI_ALGOS", "TUTTI_ALGO"},
      {"TUTTI_SLOTBYTES", "TUTTI_SLOT_BYTES"},
      {"TUTTI_RNAK", "TUTTI_RANK"},
      {"TUTTI_PROTOCOL", "TUTTI_PROTO"},
      {"TUTTI_QUUX_MODE", ""},
      {"TUTTI_FOO", ""},            // two edits make TUTTI_ROOT of three letters
      {"TUTTI_TRANSPORTABLE", ""},  // four
      {"TUTTI_", ""}};
  std::vector<const char*> environment{"PATH=/bin", "TUTTI_ALGO=ring"};
  for (const auto& [name, nearest] : expected) environment.push_back(name);
  environment.push_back(nullptr);
  const std::vector<UnknownVariable> unknown = unknown_variables(environment.data());
  ASSERT_EQ(unknown.size(), std::size(expected));
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    EXPECT_EQ(unknown[i].name, expected[i].first);
    EXPECT_EQ(unknown[i].nearest, expected[i].second) << expected[i].first;
  }
  EXPECT_TRUE(unknown_variables(nullptr).empty());
}

}  // namespace
}  // namespace tutti
