#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What compare_torch.py does without PyTorch: `compare_torch_test.py PERF_FOLDER ZERO_GPT`. That
the models are the same, the program itself shows by their losses."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

PERF, ZERO_GPT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path.insert(0, str(PERF / "compare_torch"))

import workload


class Workload(unittest.TestCase):
    def test_philox_is_the_papers(self):
        # Random123's known answers for philox4x32-10.
        self.assertEqual(workload.philox(0, (0, 0, 0, 0)),
                         (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))
        ones = workload.MASK
        self.assertEqual(workload.philox(ones << 32 | ones, (ones, ones, ones, ones)),
                         (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD))

    def test_ranks_share_the_batch_in_order(self):
        for ranks in (1, 2, 4, 8):
            dealt = [sequence for rank in range(ranks)
                     for sequence in workload.Share(rank, ranks, 3).sequences()]
            self.assertEqual(dealt, list(range(workload.SLOTS * 3)))

    def test_windows_do_not_depend_on_the_ranks(self):
        text = bytes(range(256)) * 4
        whole = workload.Share(0, 1, 2).windows(text, 16, 5)
        halves = [each for rank in range(2)
                  for each in workload.Share(rank, 2, 2).windows(text, 16, 5)]
        self.assertEqual(whole, halves)
        self.assertEqual({len(each) for each in whole}, {17})
        self.assertNotEqual(whole, workload.Share(0, 1, 2).windows(text, 16, 6))

    def test_parameters_are_those_of_the_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            seen = []
            for ranks in (1, 4):
                path = pathlib.Path(folder) / str(ranks)
                subprocess.run([ZERO_GPT, "--procs", str(ranks), "--model", "odd", "--steps", "0",
                                "--eval-windows", "1", "--save", path], check=True,
                               capture_output=True)
                seen.append(workload.read_checkpoint(path))
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0]["block2.norm1.gain"], ([48], [1.0] * 48))
        self.assertEqual(seen[0]["position_embedding"][0], [27, 48])
        self.assertEqual(sum(len(values) for _, values in seen[0].values()), 90864)

    def test_the_learning_rate_is_zero_gpts(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rates.csv"
            subprocess.run([ZERO_GPT, "--model", "nano", "--steps", "60", "--batch", "1",
                            "--eval-windows", "1", "--csv", path], check=True, capture_output=True)
            rates = [float(line.split(",")[2]) for line in path.read_text().splitlines()[1:]]
        self.assertEqual(len(rates), 60)
        for step, rate in enumerate(rates):
            self.assertAlmostEqual(workload.learning_rate(step, 60), rate, delta=1e-9)


class CommandLine(unittest.TestCase):
    def refused(self, *flags):
        done = subprocess.run([sys.executable, "-B", PERF / "compare_torch.py", "--build",
                               ZERO_GPT.parents[1], *flags], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        return done.stderr.splitlines()[-1]

    def test_says_what_is_missing(self):
        self.assertIn("--python /nowhere/python has no PyTorch with gloo: ",
                      self.refused("--python", "/nowhere/python"))
        self.assertIn("has no PyTorch with gloo: it ends with status 1",
                      self.refused("--python", "/bin/false"))
        self.assertIn("has no bin/zero_gpt",
                      self.refused("--python", "/bin/true", "--build", "/nowhere"))
        self.assertIn("fsdp3: there are ddp, fsdp, fsdp2", self.refused("--kinds", "ddp,fsdp3"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
