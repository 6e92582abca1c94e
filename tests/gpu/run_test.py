#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run where there is no GPU: once with emulated devices, all stages for real; and with
programs that fail in each way, whose results must be told apart. `run_test.py RUN EMULATED`."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

RUN, EMULATED = (Path(path).resolve() for path in sys.argv[1:3])
sys.dont_write_bytecode = True
sys.path.insert(0, str(RUN.parent))
import build  # noqa: E402
import stages  # noqa: E402
from suite import FIGURES, Suite  # noqa: E402

# Programs that write results of their own beside -J and --json: all_reduce_perf what it is asked
# for, the other one a row of each kind.
ASKED_PERF = """#!/usr/bin/env python3
import json, sys
def flag(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default
def bytes_of(text):
    return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]] if text[-1] in "KM" else int(text)
half = {"time": 9, "nwrong": 0, "bus_bw": 1, "plan": {}}
rows, size = [], bytes_of(flag("-b", "8"))
while size <= bytes_of(flag("-e", "8")):
    rows += [{"size": size, "algorithm": name, "out_of_place": half, "in_place": half}
             for name in flag("--algo", "auto").split(",")]
    size *= int(flag("-f", "2"))
json.dump({"results": rows}, open(flag("-J", ""), "w"))
"""
KERNELS = """#!/usr/bin/env python3
import json, sys
json.dump([{"operation": "cudaMemcpy", "bytes_per_s": 1e12}] +
          [{"operation": "sum", "type": kind, "misaligned_bytes": off, "share_of_copy": 0.9}
           for kind, off in (("float", 0), ("f8e4m3", 0), ("float", 8))],
          open(sys.argv[sys.argv.index("--json") + 1], "w"))
"""
# all_reduce_perf that writes a result of its own beside -J.
PERF = """#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = -J ] && file=$2; shift; done
cat >$file <<'END'
{"results": [{"size": 8, "algorithm": "auto",
  "out_of_place": {"time": 9, "nwrong": WRONG, "bus_bw": 1, "plan": {}},
  "in_place": {"time": 8, "nwrong": null, "bus_bw": 1, "plan": {}}}]}
END
echo "# error: rank 0: what went wrong"
exit STATUS
"""


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out"

    def program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def run_suite(self, *arguments, path="", timeout=500):
        environment = dict(os.environ, PATH=f"{path}:{os.environ['PATH']}")
        return subprocess.run([RUN, "--out", self.out, *arguments], capture_output=True, text=True,
                              env=environment, check=False, timeout=timeout)

    def results(self):
        return json.loads((self.out / "results.json").read_text(encoding="utf-8"))

    def rows(self):
        return {(row["stage"], row["part"]): row for row in self.results()["rows"]}


class Emulated(InFolder):
    def test_all_stages(self):
        outcome = self.run_suite("--prebuilt", str(EMULATED))
        self.assertEqual(outcome.returncode, 0, outcome.stdout + outcome.stderr)
        rows = self.rows()
        self.assertEqual({row["result"] for row in rows.values()}, {"passed", "skipped"})
        self.assertEqual({stage for stage, _ in rows}, set(stages.STAGES))
        table = (self.out / "table.txt").read_text(encoding="utf-8")
        self.assertTrue(outcome.stdout.endswith(table), "the table is last")
        names = f"{len(stages.FORMATS) + 1} of {len(stages.FORMATS) + 1} names"
        self.assertEqual(rows["smoke", "2 ranks, every format"]["figures"], names)
        self.assertIn("auto", rows["latency", "2 ranks, 8 B"]["values"]["all"])
        for row in rows["latency", "2 ranks, by flags"]["values"]["rows"]:
            self.assertEqual(row["plan"]["algorithm"], row["algorithm"].split("@")[0])
        self.assertGreater(rows["litmus", "torn_ll128"]["values"]["reads"], 0)
        self.assertGreater(rows["words", "one_way_ll128_small"]["values"]["value"], 0)
        self.assertTrue((self.out / "profile.json").exists())
        self.assertIn("machine", self.results()["facts"])

    def test_what_was_copied_runs_elsewhere(self):
        copied = self.folder / "carried"
        copied.mkdir()
        self.assertGreater(build.collect(EMULATED, copied), 1)
        self.assertNotIn(str(EMULATED), (copied / "programs.json").read_text(encoding="utf-8"))
        outcome = self.run_suite("--prebuilt", copied, "--stage", "smoke")
        self.assertEqual(outcome.returncode, 0, outcome.stdout + outcome.stderr)
        self.assertEqual({stage for stage, _ in self.rows()}, {"smoke"})


class Results(InFolder):
    """What becomes of programs that fail."""

    def prebuilt(self, wrong, status):
        self.program("all_reduce_perf",
                     PERF.replace("WRONG", str(wrong)).replace("STATUS", str(status)))
        self.program("programs.json", '{"emulated": true, "all_reduce_perf": "all_reduce_perf"}')
        return self.folder

    def test_wrong_values(self):
        outcome = self.run_suite("--prebuilt", self.prebuilt(3, 1), "--stage", "smoke,latency")
        self.assertEqual(outcome.returncode, 1)
        rows = self.rows()
        self.assertEqual(rows["smoke", "2 ranks, every format"]["result"], "wrong")
        self.assertEqual(rows["smoke", "2 ranks, one_shot@ll16"]["result"], "wrong")
        self.assertNotIn("latency", {stage for stage, _ in rows}, "nothing runs after it")

    def test_an_error(self):
        self.run_suite("--prebuilt", self.prebuilt(0, 1), "--stage", "smoke")
        row = self.rows()["smoke", "2 ranks, every format"]
        self.assertEqual(row["result"], "failed")
        self.assertIn("rank 0: what went wrong", row["figures"])

    def suite(self, predictions=None, minutes=1):
        self.out.mkdir()
        suite = Suite(self.out, minutes, {}, predictions or {}, {})
        suite.begin("smoke", 60)
        return suite

    def test_a_program_that_does_not_end(self):
        suite = self.suite()
        outcome = suite.command("part", 0.2, ["sh", "-c", "echo begun; exec tail -f /dev/null"])
        self.assertEqual((outcome.result, outcome.text), ("hung", "begun\n"))
        suite.row("part", outcome.result)
        self.assertEqual(suite.status(), 1)

    def test_a_checker_stands_before_the_program_and_its_faults_are_wrong(self):
        self.prebuilt(0, 0)
        program = build.programs_in(self.folder)["all_reduce_perf"]
        for summary, want in (("ERROR SUMMARY: 0 errors", "passed"),
                              ("RACECHECK SUMMARY: 2 hazards displayed", "wrong")):
            checker = self.program("compute-sanitizer", '#!/bin/sh\n[ "$1" = --tool ] || exit 5\n'
                                   f'shift 4; "$@"; echo "========= {summary}"\n')
            self.out.mkdir(exist_ok=True)
            suite = Suite(self.out, 1, {}, {}, {})
            suite.begin("sanitize", 60)
            run = stages.Run(suite, {"all_reduce_perf": program}, stages.Scale(), self.out, None)
            stages.check_with(run, checker, program, {})
            self.assertEqual([row.result for row in suite.rows], [want] * 4)
            self.assertIn(summary.split(": ")[1], suite.rows[0].figures)

    def test_the_sanitizers_programs_find_their_own_libraries(self):
        for folder in (self.folder, self.folder / "sanitize"):
            (folder / "lib").mkdir(parents=True)
        self.prebuilt(0, 0)
        shutil.copy(self.folder / "programs.json", self.folder / "sanitize")
        self.program("sanitize/all_reduce_perf", '#!/bin/sh\necho "libraries: $LD_LIBRARY_PATH"\n')
        self.program("compute-sanitizer", '#!/bin/sh\nshift 4; "$@"\n')
        suite = self.suite()
        suite.begin("sanitize", 60)
        run = stages.Run(suite, {}, stages.Scale(), self.out,
                         SimpleNamespace(prebuilt=self.folder))
        with mock.patch.dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}"):
            stages.sanitize(run)
        log = (self.out / "suite.log").read_text(encoding="utf-8")
        self.assertEqual(log.count(f"libraries: {self.folder / 'sanitize/lib'}"), 4, log)

    def test_a_stage_that_fails_leaves_the_others(self):
        folder = self.prebuilt(0, 0)
        self.program("device_litmus", '#!/bin/sh\necho "{\\"parts\\": [{}]}" >$2\n')
        self.program("programs.json", '{"emulated": true, "all_reduce_perf": "all_reduce_perf", '
                                      '"device_litmus": "device_litmus"}')
        outcome = self.run_suite("--prebuilt", folder, "--stage", "litmus,tests")
        self.assertEqual(outcome.returncode, 1)
        rows = self.rows()
        self.assertIn("KeyError", rows["litmus", "litmus"]["figures"])
        self.assertEqual(rows["tests", "tests"]["result"], "skipped")

    def test_no_time(self):
        suite = self.suite(minutes=0.001)
        outcome = suite.command("part", 60, ["false"])
        self.assertEqual(outcome.result, "no time")
        suite.row("part", outcome.result)
        self.assertEqual(suite.status(), 3)

    def test_words_and_choice_are_judged_where_there_is_a_gpu(self):
        for unit, ratio, want in (("ns", 1.4, False), ("ns", 1.6, True), ("GB/s", 0.7, False),
                                  ("GB/s", 0.6, True), ("GB/s", 9, False), ("ns", 0.1, False)):
            self.assertEqual(stages.misses({"unit": unit, "ratio": ratio}), want, (unit, ratio))
        suite = self.suite()
        for emulated, auto, want in ((False, 1.05, "passed"), (False, 1.2, "slow"),
                                     (True, 9, "passed")):
            run = stages.Run(suite, {"emulated": emulated}, stages.Scale(), self.out, None)
            stages.judge_choice(run, {("auto", 8): auto, ("ring", 8): 1, ("tree", 8): 2}, "choice")
            self.assertEqual(suite.rows[-1].result, want, (emulated, auto))
        before = len(suite.rows)
        stages.judge_choice(run, {("auto", 8): 5}, "beside nothing")
        self.assertEqual(len(suite.rows), before)

    def test_slow_is_half_again_worse_than_predicted(self):
        suite = self.suite({"a": {"us": 10}, "b": {"share": 60}})
        for key, values, want in (("a", {"us": 15}, "passed"), ("a", {"us": 15.1}, "slow"),
                                  ("b", {"share": 40}, "passed"), ("b", {"share": 39}, "slow"),
                                  ("c", {"us": 1e9}, "passed")):
            suite.row("part", "passed", values=values, key=key)
            self.assertEqual(suite.rows[-1].result, want, (key, values))
        self.assertEqual(suite.rows[-1].predicted, "nothing: predictions.json has no 'c'")
        suite.row("part", "wrong", values={"us": 99}, key="a")
        self.assertEqual(suite.rows[-1].result, "wrong")
        suite.rows.pop()
        self.assertEqual(suite.status(), 3)


class Predictions(InFolder):
    def test_each_figure_has_one_and_each_is_of_a_figure(self):
        """By the stages as they are for a GPU, with programs that have any result for them."""
        asked = set()

        class Asked(dict):
            def get(self, key, default=None):
                asked.add(key)
                return super().get(key, default)

        predictions = json.loads((RUN.parent / "predictions.json").read_text(encoding="utf-8"))
        for key, prediction in predictions.items():
            self.assertEqual(len(set(prediction) & set(FIGURES)), 1, key)
            self.assertGreater(len(prediction["why"]), 5, key)
        programs = {**build.programs_in(EMULATED), "emulated": False,
                    "all_reduce_perf": self.program("all_reduce_perf", ASKED_PERF),
                    "bench_device_kernels": self.program("bench_device_kernels", KERNELS)}
        self.out.mkdir()
        suite = Suite(self.out, 5, {}, Asked(predictions), {})
        run = stages.Run(suite, programs, stages.Scale(), self.out, None)
        for name in ("smoke", "litmus", "words", "latency", "bandwidth", "hazards"):
            suite.begin(name, 100)
            stages.STAGES[name][0](run)
        figures = [row for row in suite.rows
                   if re.search(r"\d (us|ns|GB/s|%)|regret", row.figures + row.part)]
        self.assertGreater(len(figures), len(predictions))
        self.assertEqual([(row.stage, row.part, row.predicted) for row in figures
                          if not row.predicted or row.predicted.startswith("nothing")], [])
        self.assertEqual(asked, set(predictions))


class Building(InFolder):
    """On a machine that seems to have a GPU, with a stub for CMake."""

    def stubs(self, cmake):
        calls = self.folder / "calls"
        self.program("bin/nvidia-smi", '#!/bin/sh\ncase "$*" in *compute_cap*) echo 9.0;; '
                                       '*) echo GPU 0;; esac\n')
        self.program("bin/cmake", f'#!/bin/sh\necho "cmake $*" >>{calls}\n'
                                  f"env >{self.folder}/environment\n{cmake}\n")
        return calls

    def test_nothing_runs_after_a_failed_build(self):
        calls = self.stubs('case "$*" in *--build*) echo broken; exit 1;; esac')
        packages = self.folder / "packages"
        (packages / "usr/include").mkdir(parents=True)
        outcome = self.run_suite("--build", self.folder / "build", "--packages", packages,
                                 path=self.folder / "bin")
        self.assertEqual(outcome.returncode, 1, outcome.stdout + outcome.stderr)
        self.assertIn("broken", outcome.stdout)
        self.assertEqual([(row["part"], row["result"]) for row in self.results()["rows"]],
                         [("configure build", "passed"), ("build build", "failed")])
        text = calls.read_text(encoding="utf-8")
        for part in ("-DTUTTI_CUDA_ARCHITECTURES=90-real", "--target gpu_tests",
                     f"-DCMAKE_PREFIX_PATH={packages.resolve()}/usr"):
            self.assertIn(part, text)
        environment = (self.folder / "environment").read_text(encoding="utf-8")
        self.assertIn(f"PKG_CONFIG_SYSROOT_DIR={packages.resolve()}\n", environment)

    def test_wrong_usage(self):
        for arguments in (["--frobnicate"], ["--minutes", "0"], ["--stage", "smok"],
                          ["--packages", "/nonexistent"]):
            outcome = self.run_suite(*arguments)
            self.assertEqual(outcome.returncode, 2, arguments)
            self.assertEqual(outcome.stderr.count("\n"), 1, outcome.stderr)

    def test_a_folder_without_programs(self):
        outcome = self.run_suite("--prebuilt", self.folder)
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("has no programs.json", outcome.stderr)
        self.assertEqual(outcome.stderr.count("\n"), 1, outcome.stderr)

    @unittest.skipIf(list(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists(),
                     "there is a GPU")
    def test_without_a_gpu_it_is_skipped_in_a_line(self):
        self.program("bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
        outcome = self.run_suite(path=self.folder / "bin")
        self.assertEqual((outcome.returncode, outcome.stdout),
                         (0, "skipped: no GPU on this machine\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
