// SPDX-License-Identifier: Apache-2.0
#include "api/config.hpp"

#include <fmt/core.h>

#include <climits>

namespace tutti {

tl::unexpected<Error> bad_argument(const char* function, std::string_view what) {
  return make_error(Code::kInvalidArgument, fmt::format("{}: {}", function, what));
}

Error in_call(const char* function, Error error) {
  error.message = fmt::format("{}: {}", function, error.message);
  return error;
}

Result<DataType> check_type(const char* function, int type) {
  if (type < 0 || type >= kDataTypeCount)
    return bad_argument(function, fmt::format("{} is not a valid tuttiDataType_t", type));
  return static_cast<DataType>(type);
}

Status check_root(const char* function, int root, std::int32_t ranks) {
  if (root >= 0 && root < ranks) return {};
  return bad_argument(
      function, fmt::format("root {} is out of range: the communicator has {} ranks", root, ranks));
}

namespace {

// Fields that have no effect on host communicators are checked too: a program that is wrong should
// hear of it before it runs on a device.
Status check_ranges(const tuttiConfig_t& config, const char* function) {
  struct Field {
    const char* name;
    int value, least, most;
  };
  const Field fields[] = {
      {"blocking", config.blocking, 0, 1},
      {"cgaClusterSize", config.cgaClusterSize, 0, 8},
      {"minCTAs", config.minCTAs, 1, INT_MAX},
      {"maxCTAs", config.maxCTAs, 1, INT_MAX},
      {"splitShare", config.splitShare, 0, 1},
      {"trafficClass", config.trafficClass, 0, INT_MAX},
      {"collnetEnable", config.collnetEnable, 0, 1},
      {"CTAPolicy", config.CTAPolicy, 0, TUTTI_CTA_POLICY_EFFICIENCY | TUTTI_CTA_POLICY_ZERO},
      {"shrinkShare", config.shrinkShare, 0, 1},
      {"nvlsCTAs", config.nvlsCTAs, 1, INT_MAX},
      {"nChannelsPerNetPeer", config.nChannelsPerNetPeer, 1, INT_MAX},
      {"nvlinkCentricSched", config.nvlinkCentricSched, 0, 1},
      {"opTimeoutMs", config.opTimeoutMs, 1, INT_MAX},
      {"initTimeoutMs", config.initTimeoutMs, 1, INT_MAX},
      {"fp32Partials", config.fp32Partials, 0, 1},
  };
  for (const auto& [name, value, least, most] : fields) {
    if (value == TUTTI_CONFIG_UNDEF_INT || (value >= least && value <= most)) continue;
    return bad_argument(function,
                        fmt::format("{} is {}; use {}", name, value,
                                    most == INT_MAX ? fmt::format(">= {}", least)
                                                    : fmt::format("{} to {}", least, most)));
  }
  if (config.minCTAs != TUTTI_CONFIG_UNDEF_INT && config.maxCTAs != TUTTI_CONFIG_UNDEF_INT &&
      config.minCTAs > config.maxCTAs)
    return bad_argument(function,
                        fmt::format("minCTAs is {} and maxCTAs {}; use minCTAs <= maxCTAs",
                                    config.minCTAs, config.maxCTAs));
  return {};
}

}  // namespace

Result<CommunicatorOptions> make_options(const Config& base, const tuttiConfig_t* config,
                                         const char* function) {
  CommunicatorOptions options{.config = base, .cancel = {}, .device = {}};
  if (config == nullptr) return options;
  if (config->size != sizeof(tuttiConfig_t) || config->magic != TUTTI_CONFIG_MAGIC)
    return bad_argument(
        function, "the configuration was not initialized; start from TUTTI_CONFIG_INITIALIZER");
  TUTTI_TRY(check_ranges(*config, function));
  options.blocking = config->blocking != 0;
  const auto milliseconds = [](int value, std::int64_t& field) {
    if (value != TUTTI_CONFIG_UNDEF_INT) field = std::int64_t{value} * 1'000'000;
  };
  const auto blocks = [](int value, std::uint32_t& field) {
    if (value != TUTTI_CONFIG_UNDEF_INT) field = static_cast<std::uint32_t>(value);
  };
  blocks(config->minCTAs, options.blocks.least);
  blocks(config->maxCTAs, options.blocks.most);
  milliseconds(config->opTimeoutMs, options.config.op_timeout_ns);
  milliseconds(config->initTimeoutMs, options.config.init_timeout_ns);
  if (config->fp32Partials != TUTTI_CONFIG_UNDEF_INT)
    options.config.fp32_partials = config->fp32Partials == 1;
  if (config->algorithm != nullptr) {
    options.config.algo = config->algorithm;
    options.config.algo_source = "the configuration's algorithm";
  }
  return options;
}

}  // namespace tutti
