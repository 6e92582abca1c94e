#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pure parts of compare_mpi.py, on figures whose results are known, and its messages:
`compare_report_test.py PERF_FOLDER BUILD`."""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import unittest

PERF, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path.insert(0, str(PERF))

import compare_libraries
import compare_report

KIB64 = compare_report.STREAM_BYTES
# Three rounds. Peer b has the better median of 8 bytes, a that of 64 KiB.
SAMPLES = {
    ("tutti", 8): [2.0, 1.0, 4.0], ("a", 8): [4.0, 4.0, 4.0], ("b", 8): [3.0, 1.0, 9.0],
    ("tutti", KIB64): [10.0, 10.0, 20.0], ("tutti-registered", KIB64): [5.0, 5.0, 5.0],
    ("a", KIB64): [5.0, 5.0, 40.0], ("b", KIB64): [100.0, 100.0, 100.0],
    ("line", 0): [0.5, 0.25, 0.75], ("2:1", KIB64): [4.0, 4.0, 4.0],
}
NAMES = ["tutti", "tutti-registered", "a", "b"]


def result():
    return compare_report.result_of("all_reduce", [8, KIB64], NAMES, SAMPLES, ["2:1", "2:2"])


class Figures(unittest.TestCase):
    def test_a_spread_has_median_quartiles_and_ends(self):
        self.assertEqual(compare_report.spread([5, 1, 3, 2, 4]),
                         {"median": 3, "least": 1, "lower_quartile": 2, "upper_quartile": 4,
                          "greatest": 5})
        self.assertEqual(set(compare_report.spread([7]).values()), {7})

    def test_the_best_peer_is_that_of_the_size(self):
        small, large = result()["sizes"]
        self.assertEqual((small["best_peer"], large["best_peer"]), ("b", "a"))

    def test_ratios_are_of_medians_and_rounds_of_the_same_round(self):
        small, large = (row["best"]["tutti"] for row in result()["sizes"])
        self.assertEqual(small["ratio"], 1.5)
        self.assertEqual((small["rounds"]["least"], small["rounds"]["greatest"]), (1.0, 2.25))
        self.assertEqual((large["ratio"], large["rounds"]["greatest"]), (0.5, 2.0))

    def test_registered_buffers_count_where_they_were_measured(self):
        small, large = result()["sizes"]
        self.assertNotIn("tutti-registered", small["best"])
        self.assertEqual(large["best"]["tutti-registered"]["ratio"], 1.0)

    def test_limits_are_multiples_of_a_line_and_shares_of_a_stream(self):
        small, large = (row["limits"] for row in result()["sizes"])
        self.assertEqual((small["line_us"], small["lines"]), (0.5, 4.0))
        self.assertEqual(small["lines_rounds"]["greatest"], 4 / 0.75)
        self.assertNotIn("streams", small)
        self.assertEqual(large["streams"], {"2:1": {"time_us": 4.0, "share": {
            "tutti": 0.4, "tutti-registered": 0.8}}})

    def test_a_summary_has_the_mean_and_the_least(self):
        summary = result()["summary"]
        self.assertAlmostEqual(summary["tutti"]["geometric_mean"], (1.5 * 0.5) ** 0.5)
        self.assertEqual((summary["tutti"]["least"], summary["tutti"]["least_at_bytes"],
                          summary["tutti"]["slower"], summary["tutti"]["sizes"]),
                         (0.5, KIB64, 1, 2))
        self.assertEqual(summary["tutti-registered"]["sizes"], 1)

    def test_without_peers_there_are_times_alone(self):
        alone = compare_report.result_of("reduce", [8], ["tutti"], SAMPLES)
        self.assertEqual(alone["summary"], {"tutti": None, "tutti-registered": None})
        self.assertEqual(compare_report.summary_lines([alone]), [])
        self.assertEqual(compare_report.table_lines(alone)[1].split(), ["8", "2.000", "4.0", "x",
                                                                       "line"])

    def test_tables_have_a_line_for_each_size_and_collective(self):
        lines = compare_report.table_lines(result())
        self.assertIn("1.50 [1.00..2.25]", lines[1])
        self.assertTrue(lines[1].endswith("4.0 x line"))
        self.assertTrue(lines[2].endswith("2:1 40%|80%"))
        self.assertEqual(len({len(line) for line in lines[:3]}), 1)
        summary = compare_report.summary_lines([result()])
        self.assertEqual(len(summary), 3)
        self.assertEqual(summary[1].split(), ["all_reduce", "tutti", "0.87", "0.50", str(KIB64),
                                              "1", "of", "2", "sizes"])


class Libraries(unittest.TestCase):
    ARGS = argparse.Namespace(collective="all_gather", procs=3, min_bytes=8, max_bytes=1 << 20,
                              factor=4, iters=20, small_iters=1000, pin="cores")

    def test_registered_buffers_begin_at_the_streams(self):
        parts = compare_libraries.ranges_of(self.ARGS, KIB64)
        self.assertEqual(parts, [(196608, 786432, 20)])
        whole = compare_libraries.ranges_of(self.ARGS)
        self.assertEqual(whole, [(12, 49152, 1000), (196608, 786432, 20)])

    def test_every_collective_has_a_stream_of_its_ranks(self):
        for collective in compare_libraries.COLLECTIVES:
            for ranks in (1, 2, 5):
                shapes, _ = compare_libraries.stream_shapes(collective, ranks)
                for shape in shapes:
                    self.assertTrue(all(1 <= n <= ranks for n in shape), (collective, shape))
        self.assertEqual(compare_libraries.stream_shapes("all_reduce", 4),
                         ([(4, 1), (4, 4)], False))

    def test_ranks_take_the_processors_in_turn(self):
        pinning = compare_libraries.Pinning(self.ARGS)
        pinning.cpus = [2, 5]
        self.assertEqual([pinning.within(rank)[-1] for rank in range(3)], ["2", "5", "2"])
        with tempfile.TemporaryDirectory() as folder:
            agent = pinning.mpi_agent(pathlib.Path(folder), 3)[0]
            text = agent.read_text()
        self.assertIn('1) exec taskset -c 5 "$@"', text)
        self.assertNotIn("3)", text)

    def test_an_mpis_rank_starts_on_its_processor(self):
        pinning = compare_libraries.Pinning(self.ARGS)
        with tempfile.TemporaryDirectory() as folder:
            agent = pinning.mpi_agent(pathlib.Path(folder), 2)
            for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK"):
                done = subprocess.run([*agent, sys.executable, "-c",
                                       "import os; print(*os.sched_getaffinity(0))"],
                                      env={"PATH": "/usr/bin:/bin", variable: "1"}, check=True,
                                      capture_output=True, text=True)
                self.assertEqual(done.stdout.strip(), pinning.within(1)[-1])


class Rounds(unittest.TestCase):
    """Contest.measure() on libraries that say when they ran."""

    def contest(self, **failing):
        """`failing`: the round (from 0) in which a library fails."""
        self.ran = []
        args = argparse.Namespace(rounds=3, limits=False, pin="none", peers=["a", "b"])

        def library(name):
            def run():
                turns = sum(ran == name for ran in self.ran)
                self.ran.append(name)
                if failing.get(name) == turns:
                    raise RuntimeError("status 1")
                return {(name, 8): float(turns)}
            return run

        contest = compare_libraries.Contest(args, None, None)
        contest.runs = lambda: {name: library(name) for name in ("tutti", "a", "b")}
        return contest

    def test_another_library_goes_first_in_each_round(self):
        names, samples = self.contest().measure("all_reduce")
        self.assertEqual(names, ["tutti", "a", "b"])
        self.assertEqual("".join(name[0] for name in self.ran), "tababtbta")
        self.assertEqual(samples["b", 8], [0, 1, 2])

    def test_a_peer_that_fails_is_left_out_and_told(self):
        contest = self.contest(a=1)
        names, samples = contest.measure("all_reduce")
        self.assertEqual(names, ["tutti", "b"])
        self.assertEqual(len(samples["tutti", 8]), 3)
        self.assertEqual(self.ran.count("a"), 2)
        self.assertEqual(contest.failed, ["a: all_reduce"])

    def test_what_of_ours_fails_ends_the_run(self):
        with self.assertRaises(RuntimeError):
            self.contest(tutti=2).measure("all_reduce")


class CommandLine(unittest.TestCase):
    def refused(self, *flags):
        done = subprocess.run([sys.executable, "-B", PERF / "compare_mpi.py", *flags],
                              capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        return done.stderr.splitlines()[-1]

    def test_says_what_is_wrong(self):
        self.assertIn("nonsense: there are all, or all_reduce, all_gather",
                      self.refused("--collective", "all_reduce,nonsense"))
        self.assertIn("mvapich: there are",
                      self.refused("--peers", "openmpi,mvapich"))

    def test_limits_refuse_what_they_cannot_measure(self):
        for flags in (["--sizes", "100"], ["--shapes", "3:1"], ["--shapes", "2"],
                      ["--shapes", "0:1"], ["--shapes", "a:b"], ["--threads", "0"],
                      ["--whole", "--shapes", "1:2"]):
            done = subprocess.run([BUILD / "bin" / "bench_limits", *flags], capture_output=True,
                                  text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), flags)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
