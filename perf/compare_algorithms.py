#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tutti's algorithms beside each other and beside `auto`, interleaved, as tables for people.

Each round runs every algorithm once, so that what disturbs the machine disturbs all of them alike.
A table for each number of processes: medians over rounds in us (out-of-place, float, sum),
and in the last column the regret of `auto`: its median over the best forced one's, minus one.

    perf/compare_algorithms.py --build build --procs 2,4,8 --rounds 5
"""
import argparse
import pathlib
import statistics
import subprocess
import sys

from compare_libraries import HERE, parse_bytes, ranges_of, run_tutti, sizes_of


def families(build):
    listed = subprocess.run([build / "bin" / "tutti-plan", "list"], capture_output=True, text=True,
                            check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line and not line.startswith("#")]


def measure(args, program, algorithms):
    samples = {}  # (algorithm, bytes) -> [microseconds of each round]
    for round_number in range(args.rounds):
        turn = round_number % len(algorithms)
        for args.algo in algorithms[turn:] + algorithms[:turn]:
            for part in ranges_of(args):
                for size, time_us in run_tutti(program, args, None, None, *part).items():
                    samples.setdefault((args.algo, size), []).append(time_us)
        print(f"# {args.procs} processes: round {round_number + 1} of {args.rounds}",
              file=sys.stderr)
    return samples


def print_table(args, algorithms, samples):
    print(f"\n{args.procs} processes, {args.rounds} rounds, medians in us\n")
    print("| bytes | " + " | ".join(algorithms) + " | regret of auto |")
    print("|---:" * (len(algorithms) + 2) + "|")
    for size in sizes_of(args):
        medians = {a: statistics.median(samples[a, size]) for a in algorithms}
        best = min(time for name, time in medians.items() if name != "auto")
        cells = [f"**{t:.4g}**" if t == best else f"{t:.4g}" for t in medians.values()]
        print(f"| {size} | " + " | ".join(cells) + f" | {medians['auto'] / best - 1:+.0%} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--procs", default="2,4,8", help="process counts, e.g. 2,4,8")
    parser.add_argument("--algos", help="algorithms, as ring,tree; default: every family")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--min-bytes", type=parse_bytes, default=8)
    parser.add_argument("--max-bytes", type=parse_bytes, default=64 << 20)
    parser.add_argument("--factor", type=int, default=8)
    parser.add_argument("--iters", type=int, default=10)
    parser.add_argument("--small-iters", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=3)
    args = parser.parse_args()
    args.collective = "all_reduce"
    program = args.build / "bin" / "all_reduce_perf"
    if not program.exists():
        sys.exit(f"{program} is missing: build first, or name the build folder with --build")
    algorithms = (args.algos.split(",") if args.algos else families(args.build)) + ["auto"]
    for procs in args.procs.split(","):
        args.procs = int(procs)
        print_table(args, algorithms, measure(args, program, algorithms))


if __name__ == "__main__":
    main()
