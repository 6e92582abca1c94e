#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the fuzz targets reach: `tests/fuzz/coverage.py --build DIR --seconds 60`.

Builds preset `fuzz` into DIR with Clang's coverage counters, runs every target for so long, one
after the other, and prints a table: executions, and the lines and regions reached of the files that
the target is aimed at. Needs Debian's clang and llvm. Status 1: a target found something.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BOARD = "src/board/"
CONTROL = "src/control/"
LAUNCH = "src/launch/"
INFO = "tools/tutti-info/"
AIMS = {
    "unique_id": [CONTROL + "unique_id.cpp", "src/base/tcp_address.cpp"],
    "handshake": [CONTROL + "handshake.cpp"],
    "messages": [CONTROL + "messages.cpp", CONTROL + "mailbox.cpp", "src/base/wire.hpp"],
    "frames": [CONTROL + "channel.cpp"],
    "board": [BOARD + "board_view.cpp", BOARD + "board_words.cpp", INFO + "stall.cpp",
              INFO + "ranks.cpp"],
    "pmi": [LAUNCH + "pmi.cpp"],
    "launch": [LAUNCH + "place.cpp", LAUNCH + "address.cpp", LAUNCH + "launch.cpp",
               "src/base/config.cpp"],
    "members": ["src/comm/regroup.cpp", "src/comm/window.cpp",
                "transports/shm/segment.cpp", "transports/shm/shm_transport.cpp"],
    "wire": [*("transports/tcp/" + name for name in (
        "frame.cpp", "invitations.cpp", "peer.cpp", "stream.cpp")),
             "transports/verbs/wire.cpp", BOARD + "far_rows.cpp"],
    "schedule": ["src/schedule/print_json.cpp"],
    "topology": ["src/topology/graph_wire.cpp", "src/topology/nccl_reader.cpp",
                 "src/topology/hwloc_check.cpp", "src/topology/merge.cpp"],
}


def tool(name):
    """Of the release that `clang` has, else of any."""
    found = re.search(r"version (\d+)", subprocess.run(
        ["clang", "--version"], capture_output=True, text=True, check=True).stdout)
    for candidate in (f"{name}-{found.group(1)}", name):
        if shutil.which(candidate):
            return candidate
    sys.exit(f"{name} is missing; ask for: apt-get install llvm")


def build(folder):
    counters = "-fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping"
    subprocess.run(["cmake", "--preset", "fuzz", "-B", folder, f"-DCMAKE_CXX_FLAGS={counters}"],
                   cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", "fuzz"], check=True,
                   stdout=subprocess.DEVNULL)


def run(folder, name, seconds):
    """The number of executions. What a target has learnt in an earlier run helps it along."""
    for kind in ("learnt", "found", "profile"):
        (folder / kind / name).mkdir(parents=True, exist_ok=True)
    raw = folder / "profile" / name / "raw"
    done = subprocess.run(
        [folder / "tests" / f"fuzz_{name}", f"-max_total_time={seconds}", "-timeout=20",
         "-max_len=8192", "-print_final_stats=1", f"-artifact_prefix={folder}/found/{name}/",
         folder / "learnt" / name, ROOT / "tests/fuzz/corpus" / name],
        env={**os.environ, "LLVM_PROFILE_FILE": str(raw)}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"fuzz_{name} found something:\n{done.stderr[-6000:]}")
    return int(re.search(r"number_of_executed_units: *(\d+)", done.stderr).group(1))


def coverage(folder, name):
    profile = folder / "profile" / name
    subprocess.run([tool("llvm-profdata"), "merge", "-sparse", profile / "raw", "-o",
                    profile / "merged"], check=True)
    report = subprocess.run(
        [tool("llvm-cov"), "export", "-summary-only", f"-instr-profile={profile / 'merged'}",
         folder / "tests" / f"fuzz_{name}", *(ROOT / path for path in AIMS[name])],
        capture_output=True, text=True, check=True).stdout
    return {Path(entry["filename"]).relative_to(ROOT).as_posix(): entry["summary"]
            for entry in json.loads(report)["data"][0]["files"]}


def percents(summary):
    lines, regions = summary["lines"], summary["regions"]
    return (f"{lines['covered']}/{lines['count']} ({lines['percent']:.0f} %) | "
            f"{regions['covered']}/{regions['count']} ({regions['percent']:.0f} %)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="which (all)")
    parser.add_argument("--build", type=Path, required=True, help="build folder, made if missing")
    parser.add_argument("--seconds", type=int, default=60, help="of each target (60)")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(AIMS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(AIMS)}")
    folder = arguments.build.resolve()
    build(folder)
    print("| target | executions | file | lines | regions |\n|---|---|---|---|---|")
    for name in arguments.targets or AIMS:
        count = run(folder, name, arguments.seconds)
        reached = coverage(folder, name)
        for i, path in enumerate(AIMS[name]):
            first = f"`{name}` | {count:,}" if i == 0 else " | "
            print(f"| {first} | `{path}` | {percents(reached[path])} |", flush=True)


if __name__ == "__main__":
    main()
