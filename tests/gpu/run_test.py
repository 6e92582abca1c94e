#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run on a machine that is not there: stubs stand in for the GPU, for CMake, ctest and
the programs, and say what they were asked. What is looked at is what `run` makes of it: the order,
the table, the exit status. `run_test.py RUN`."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN = ""

PERF_TABLE = """\
# Tutti 0.1.0, output in the format of nccl-tests version 2.19.6
#  Rank  0 Group  0 Pid      7 on       node device  0 [0000:18:00] NVIDIA H100
#  Rank  1 Group  0 Pid      7 on       node device  0 [0000:18:00] NVIDIA H100
  8          2        float  sum  -1   12.50    0.00    0.00  0   11.00    0.00    0.00  0
#   graph out-of-place: first launch 30.00 us an operation, later ones 9.00 us (GPU's clock)
  268435456  67108864 float  sum  -1  500.00  530.00  530.00  0  500.00  530.00  530.00  0
"""
KERNEL_TABLE = """\
 operation       type  k  m off B     time us      GB/s     share    spread
cudaMemcpy          -  0  0     0       100.0    3000.0   100.0 %     0.1 %
      copy      float  1  1     0       100.0    2900.0    97.0 %     0.1 %
       sum      float  2  1     0       100.0    2700.0    91.5 %     0.1 %
"""
CTEST_TEXT = """\
100% tests passed, 0 tests failed out of 30
The following tests did not run:
\t 7 - a (Skipped)
"""


class Machine:
    """A folder of stubs on PATH, and of programs that the stub of CMake builds."""

    def __init__(self, folder):
        self.folder, self.build = Path(folder), Path(folder) / "build"
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.log = self.folder / "calls"
        self.program("nvidia-smi", 'case "$*" in *compute_cap*) echo 9.0 ;; esac')
        self.program("ctest", f"cat <<'END'\n{CTEST_TEXT}END")
        self.program("cmake", "exit 0")
        self.program("compute-sanitizer",
                     'echo "========= ERROR SUMMARY: 0 errors"; shift 4; "$@"')
        self.program("all_reduce_perf", f"cat <<'END'\n{PERF_TABLE}END", self.build / "bin")
        self.program("bench_device_kernels", f"cat <<'END'\n{KERNEL_TABLE}END", self.build / "bin")
        self.program("test_device_kernels", "echo Suite.; echo '  Case'", self.build / "tests")

    def program(self, name, body, folder=None):
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.log}\n'
                        f'env >{self.folder}/{name}.env\n{body}\n')
        path.chmod(0o755)

    def run(self, *arguments):
        environment = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}")
        return subprocess.run([RUN, "--build", str(self.build), *arguments], env=environment,
                              capture_output=True, text=True, check=False, timeout=60)

    def calls(self):
        return self.log.read_text() if self.log.exists() else ""


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = Machine(folder.name)
        self.out = Path(folder.name) / "out"

    def rows(self, outcome):
        """The table's rows: part -> (result, figures)."""
        lines = (self.out / "table.txt").read_text().splitlines()
        self.assertTrue(outcome.stdout.endswith("\n".join(lines) + "\n"), "the table is last")
        return {line[:38].strip(): (line[39:47].strip(), line[54:].strip()) for line in lines[1:]}

    def test_everything_passes(self):
        outcome = self.machine.run("--out", str(self.out))
        self.assertEqual(outcome.returncode, 0, outcome.stdout + outcome.stderr)
        rows = self.rows(outcome)
        self.assertEqual(rows["tests"],
                         ("passed", "100% tests passed, 0 tests failed out of 30; 1 skipped"))
        self.assertEqual(rows["copy and reduce kernels"],
                         ("passed", "copy 3000.0 GB/s; kernels reach at least 91.5 % of it"))
        self.assertEqual(
            rows["8 ranks, graphs"],
            ("passed", "8 B 12.50 us; 30.00 us an operation in the first launch, 9.00 later; "
             "256 MiB 530.00 GB/s busbw, 71 % of the memory floor; 0 wrong"))
        self.assertEqual(rows["memcheck, test_device_kernels"],
                         ("passed", "ERROR SUMMARY: 0 errors"))
        self.assertEqual(rows["racecheck, device_communicator_test"][0], "skipped")
        calls = self.machine.calls()
        for part in ("-DTUTTI_CUDA_ARCHITECTURES=90-real", "--target gpu_tests", "-L gpu",
                     "-t 8 -b 8 -e 256M -f 2 -G 10", "-t 2 -b 8K -e 8K -n 100 -G 20",
                     "-t 8 -b 1M -e 1M -n 100 -G 20", "--tool racecheck"):
            self.assertIn(part, calls)
        self.assertIn("GB/s", (self.out / "kernels.log").read_text() + calls)

    def test_a_failure_is_told_and_the_rest_still_runs(self):
        self.machine.program("ctest", "echo '50% tests passed, 1 tests failed out of 2'; exit 8")
        outcome = self.machine.run("--out", str(self.out))
        self.assertEqual(outcome.returncode, 1)
        rows = self.rows(outcome)
        self.assertEqual(rows["tests"][0], "failed")
        self.assertIn("1 tests failed", rows["tests"][1])
        self.assertEqual(rows["2 ranks"][0], "passed")

    def test_nothing_runs_after_a_failed_build(self):
        self.machine.program("cmake", 'case "$*" in *--build*) echo broken; exit 1 ;; esac')
        outcome = self.machine.run("--out", str(self.out))
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("broken", outcome.stdout)
        self.assertEqual(list(self.rows(outcome)), ["configure", "build"])

    def test_a_gpu_that_cannot_be_used_ends_the_run(self):
        self.machine.program("all_reduce_perf", "echo 'no GPU can be used' >&2; exit 2",
                             self.machine.build / "bin")
        outcome = self.machine.run("--out", str(self.out))
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("no GPU can be used", outcome.stdout)
        rows = self.rows(outcome)
        self.assertEqual(list(rows), ["configure", "build", "first operation"])
        self.assertEqual(rows["first operation"], ("failed", "no row of a table"))

    def test_build_only_builds_with_the_packages_and_runs_nothing(self):
        packages = self.machine.folder / "packages"
        (packages / "usr/include").mkdir(parents=True)
        outcome = self.machine.run("--build-only", "--packages", str(packages), "--architectures",
                                   "80", "--out", str(self.out))
        self.assertEqual(outcome.returncode, 0, outcome.stdout + outcome.stderr)
        self.assertNotIn("ctest", self.machine.calls())
        self.assertIn(f"-DCMAKE_PREFIX_PATH={packages.resolve()}/usr", self.machine.calls())
        self.assertIn("-DTUTTI_CUDA_ARCHITECTURES=80", self.machine.calls())
        environment = (self.machine.folder / "cmake.env").read_text()
        self.assertIn(f"PKG_CONFIG_SYSROOT_DIR={packages.resolve()}\n", environment)
        self.assertIn(f"LD_LIBRARY_PATH={packages.resolve()}/usr/lib/", environment)

    def test_wrong_usage(self):
        for arguments in (["--frobnicate"], ["--minutes", "0"], ["--out"],
                          ["--packages", "/nonexistent"]):
            outcome = self.machine.run(*arguments)
            self.assertEqual(outcome.returncode, 2, arguments)
            self.assertEqual(outcome.stderr.count("\n"), 1, outcome.stderr)
        self.assertEqual(self.machine.calls(), "")

    @unittest.skipIf(list(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists(),
                     "there is a GPU")
    def test_without_a_gpu_it_is_skipped_in_a_line(self):
        self.machine.program("nvidia-smi", "exit 9")
        outcome = self.machine.run()
        self.assertEqual((outcome.returncode, outcome.stdout),
                         (0, "skipped: no GPU on this machine\n"))


if __name__ == "__main__":
    RUN = sys.argv.pop(1)
    unittest.main()
