#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs compare_mpi.py for every collective with two sizes that take no time, beside the MPIs that
are installed, and looks at its tables and its two files.

    compare_mpi_test.py PROGRAM BUILD
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM, BUILD = sys.argv[1:3]
COLLECTIVES = ["all_reduce", "all_gather", "alltoall", "alltoallv", "broadcast", "gather",
               "hypercube", "reduce", "reduce_scatter", "scatter", "sendrecv"]
PEERS = ["openmpi", "openmpi-sm", "mpich", "mpich-doubling"]
SIZES = [8, 65536]


class Comparison(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.json, cls.svg = (pathlib.Path(cls.folder.name) / name for name in ("r.json", "r.svg"))
        cls.done = subprocess.run(
            [sys.executable, "-B", PROGRAM, "--build", BUILD, "--collective", "all", "--peers",
             ",".join(PEERS), "--rounds", "2", "--max-bytes", "64K", "--factor", "8192", "--iters",
             "2", "--small-iters", "2", "--warmup", "1", "--no-instructions", "--json", cls.json,
             "--svg", cls.svg], capture_output=True, text=True, check=False, timeout=220,
            stdin=subprocess.DEVNULL)
        print(cls.done.stdout, cls.done.stderr)
        if cls.done.returncode != 0:
            raise AssertionError(f"status {cls.done.returncode}")
        cls.report = json.loads(cls.json.read_text())

    def test_every_collective_has_its_sizes(self):
        self.assertEqual([r["collective"] for r in self.report["results"]], COLLECTIVES)
        for result in self.report["results"]:
            self.assertEqual([row["bytes"] for row in result["sizes"]], SIZES)
            self.assertIn(f"\n# {result['collective']}\n", self.done.stdout)

    def test_registered_buffers_are_measured_where_streams_bound(self):
        for result in self.report["results"]:
            small, large = result["sizes"]
            self.assertNotIn("tutti-registered", small["times_us"])
            self.assertGreater(large["times_us"]["tutti-registered"]["median"], 0)

    def test_limits_stand_beside_every_collective(self):
        for result in self.report["results"]:
            small, large = result["sizes"]
            self.assertGreater(small["limits"]["line_us"], 0)
            for stream in large["limits"]["streams"].values():
                self.assertEqual(set(stream["share"]), {"tutti", "tutti-registered"})
        self.assertEqual(set(self.report["results"][0]["sizes"][1]["limits"]["streams"]),
                         {"2:1", "2:2"})

    def test_the_best_peer_is_the_fastest_that_is_there(self):
        for result in self.report["results"]:
            peers = [name for name in result["libraries"] if not name.startswith("tutti")]
            self.assertLessEqual(set(peers), set(PEERS))
            for row in result["sizes"] if peers else []:
                medians = {name: row["times_us"][name]["median"] for name in peers}
                self.assertEqual(medians[row["best_peer"]], min(medians.values()))
            self.assertEqual(result["summary"]["tutti"] is None, not peers)

    def test_says_how_ranks_were_pinned(self):
        self.assertIn("rank r on the r-th of these", self.report["pinning"])
        self.assertIn(f"# pinning, alike for all: {self.report['pinning']}\n", self.done.stdout)

    def test_the_plot_is_whole_or_its_absence_told(self):
        if not self.svg.exists():
            self.assertIn("python3-matplotlib", self.done.stderr)
            self.skipTest("python3-matplotlib is not installed")
        root = xml.etree.ElementTree.parse(self.svg).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        texts = "".join(root.itertext())
        for result in self.report["results"]:
            if result["summary"]["tutti"]:
                self.assertIn(result["collective"], texts)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
