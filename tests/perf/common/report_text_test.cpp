// SPDX-License-Identifier: Apache-2.0
// The table of nccl-tests 2.19, byte for byte: scripts written for it must work.
#include <gtest/gtest.h>

#include <sstream>

#include "common/report.hpp"

namespace tutti::perf {
namespace {

Options example_options() {
  Options o;
  o.ranks_per_thread = 8;
  o.min_bytes = 8;
  o.max_bytes = 134'217'728;
  o.step_factor = 2;
  return o;
}

TEST(ReportText, HeaderLines) {
  const std::vector<DeviceRow> devices{
      {0, 0, 253'104, "node1", 0, "0000:18:00", "NVIDIA H100 80GB HBM3"},
      {11, 0, 17, "a-rather-long-name", 3, "host", "AMD EPYC (host memory)"}};
  EXPECT_EQ(
      header_text("all_reduce_perf", example_options(), devices),
      "# Tutti 0.1.0, output in the format of nccl-tests version 2.19.6\n"
      "# Collective test starting: all_reduce_perf\n"
      "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 1 iters: 20 "
      "agg iters: 1 validation: 1 graph: 0 unalign: 0\n"
      "# 8 ranks on host memory = 1 process x 1 thread x 8 ranks; algorithm auto\n"
      "#\n"
      "# Using devices\n"
      "#  Rank  0 Group  0 Pid 253104 on      node1 device  0 [0000:18:00] NVIDIA H100 80GB HBM3\n"
      "#  Rank 11 Group  0 Pid     17 on a-rather-long-name device  3 [host] AMD EPYC (host "
      "memory)\n");
}

TEST(ReportText, StepInBytes) {
  Options o;
  o.processes = 2;
  o.algorithm = "ring";
  const std::string text = header_text("all_reduce_perf", o, {});
  EXPECT_NE(text.find(" step: 1048576(bytes) "), std::string::npos);
  EXPECT_NE(text.find("2 ranks on host memory = 2 processes x 1 thread x 1 rank; algorithm ring"),
            std::string::npos);
}

TEST(ReportText, DeviceMemoryAndGraphsStandInTheHeader) {
  Options o;
  o.graph_launches = 4;
  EXPECT_NE(header_text("tool", o, {}).find(" graph: 0 "), std::string::npos) << "host";
  o.memory = Memory::kDevice;
  o.per_iteration = true;
  const std::string text = header_text("tool", o, {});
  for (const char* words : {" graph: 4 ", "# 1 rank on device memory = ", ": CUDA event timing; "})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST(ReportText, GraphLines) {
  Row row;
  EXPECT_EQ(graph_text(row), "");
  row.out_of_place.graph = GraphFacts{12.345, 8.5};
  row.in_place.graph = GraphFacts{9, {}};
  EXPECT_EQ(graph_text(row),
            "#   graph out-of-place: first launch 12.35 us an operation, later ones 8.50 us (GPU's "
            "clock)\n"
            "#   graph in-place    : first launch 9.00 us an operation (GPU's clock)\n");
}

TEST(ReportText, TableHead) {
  EXPECT_EQ(
      table_head_text({}),
      "#\n"
      "#                                                              out-of-place                 "
      "      in-place          \n"
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
      "time   algbw   busbw  #wrong \n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
      "(us)  (GB/s)  (GB/s)         \n");
}

TEST(ReportText, TableHeadWithTimestampsAndIterations) {
  Options o;
  o.report_timestamps = true;
  o.report_cputime = true;
  EXPECT_NE(table_head_text(o).find("  #wrong           timestamp\n"), std::string::npos);
  EXPECT_NE(table_head_text(o).find("  cputime  "), std::string::npos);
  EXPECT_NE(table_head_text(o).find(" %Y-%m-%d %H:%M:%S\n"), std::string::npos);
  o = {};
  o.per_iteration = true;
  EXPECT_NE(
      table_head_text(o).find("  #wrong    i_min    i_max    i_p99    i_cv%     time   algbw"),
      std::string::npos);
  EXPECT_NE(table_head_text(o).find("out-of-place (+ per-iteration)"), std::string::npos);
}

std::string row_text(const Row& row, const Options& options = {}) {
  return row_start_text(row) + measurement_text(row.out_of_place) + measurement_text(row.in_place) +
         row_end_text(options, "2024-06-07 08:09:10");
}

TEST(ReportText, Rows) {
  Row row{1024, 256, "float", "sum", -1, {}, {}};
  row.out_of_place = {12.34, 0.08, 0.15, 0, {}, {}};
  row.in_place = {12.01, 0.09, 0.15, 0, {}, {}};
  EXPECT_EQ(row_text(row),
            "        1024           256     float     sum      -1    12.34    0.08    0.15       0 "
            "   12.01    0.09    0.15       0\n");
  row = {8'589'934'592, 2'147'483'648, "float", "sum", -1, {}, {}};
  row.out_of_place = {31'280.5, 274.61, 480.57, 0, {}, {}};
  row.in_place = {31'275.1, 274.66, 480.65, 0, {}, {}};
  EXPECT_EQ(row_text(row),
            "  8589934592    2147483648     float     sum      -1  31280.5  274.61  480.57       0 "
            " 31275.1  274.66  480.65       0\n");
}

TEST(ReportText, RowsWithErrorsWithoutChecksAndWithTimestamps) {
  Row row{8, 2, "bfloat16", "prod", 3, {}, {}};
  row.out_of_place = {1, 2, 3, 12'345'678, {}, {}};
  row.in_place = {1, 2, 3, std::nullopt, {}, {}};
  Options o;
  o.report_timestamps = true;
  EXPECT_EQ(row_text(row, o),
            "           8             2  bfloat16    prod       3     1.00    2.00    3.00  "
            "1.23457e+07     1.00    2.00    3.00    N/A  2024-06-07 08:09:10\n");
}

TEST(ReportText, WidthIsKeptByDroppingDecimals) {
  EXPECT_EQ(fixed_width(0, 7), "   0.00");
  EXPECT_EQ(fixed_width(9999.99, 7), "9999.99");
  EXPECT_EQ(fixed_width(9999.999, 7), "10000.0");
  EXPECT_EQ(fixed_width(123'456.7, 7), " 123457");
  EXPECT_EQ(fixed_width(1'234'567, 7), "1234567");
  EXPECT_EQ(fixed_width(12'345'678, 7), "1.2e+07");
  EXPECT_EQ(fixed_width(274.61, 6), "274.61");
  EXPECT_EQ(fixed_width(1234.56, 6), "1234.6");
  EXPECT_EQ(fixed_width(12'345'678, 6), " 1e+07");
}

TEST(ReportText, Footer) {
  Summary good{0, 102.829, {}, {}};
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(footer_text("all_reduce_perf", good, ""),
            "# Out of bounds values : 0 OK\n"
            "# Avg bus bandwidth    : 102.829 \n"
            "#\n"
            "# Collective test concluded: all_reduce_perf\n"
            "#\n");
  Summary bad{3, 89.9, 100.0, {"rank 1: gone"}};
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(footer_text("all_reduce_perf", bad, "# Host memory usage    : none\n"),
            "# Out of bounds values : 3 FAILED\n"
            "# Avg bus bandwidth    : 89.9 FAILED\n"
            "# Host memory usage    : none\n"
            "#\n"
            "# Collective test concluded: all_reduce_perf\n"
            "# error: rank 1: gone\n"
            "#\n");
}

TEST(ReportText, FooterOfARunThatEndedEarlyHasNoGoodFigure) {
  Summary summary;
  summary.completed = false;
  summary.required_busbw = 0;
  summary.errors = {"rank 1: gone"};
  EXPECT_FALSE(summary.ok());
  EXPECT_EQ(footer_text("all_reduce_perf", summary, ""),
            "# Out of bounds values : N/A FAILED\n"
            "# Avg bus bandwidth    : N/A FAILED\n"
            "#\n"
            "# Collective test concluded: all_reduce_perf\n"
            "# error: rank 1: gone\n"
            "#\n");
}

TEST(ReportText, BandwidthMayFallTenPercentShort) {
  EXPECT_TRUE((Summary{0, 90.0, 100.0, {}}.ok()));
  EXPECT_FALSE((Summary{0, 89.999, 100.0, {}}.ok()));
  EXPECT_TRUE((Summary{0, 0.0, std::nullopt, {}}.ok()));
}

TEST(IterationStats, NearestRankPercentilesWithoutTheSkipped) {
  std::vector<double> times{1e9};  // skipped
  for (int i = 100; i >= 1; --i) times.push_back(i);
  const IterationStats stats = iteration_stats(times, 1);
  EXPECT_EQ(stats.min_us, 1);
  EXPECT_EQ(stats.max_us, 100);
  EXPECT_EQ(stats.avg_us, 50.5);
  EXPECT_EQ(stats.p50_us, 51);
  EXPECT_EQ(stats.p95_us, 95);
  EXPECT_EQ(stats.p99_us, 99);
  EXPECT_NEAR(stats.stdev_us, 28.866, 1e-3);
  EXPECT_EQ(stats.times_us.size(), 101u);
  const IterationStats one = iteration_stats({5}, 0);
  EXPECT_EQ(one.p99_us, 5);
  EXPECT_EQ(one.cv_percent(), 0);
}

}  // namespace
}  // namespace tutti::perf
