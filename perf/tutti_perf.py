#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs all perf tools on this machine, each beside Open MPI and MPICH where they are installed, and
writes NAME.json and NAME.html: one page, readable without a network, with time and bus bandwidth
against size for each collective.

Every round runs Tutti and its peers once, one after the other, so that what disturbs the machine
disturbs all of them alike, with rank r of each on the same processor. Figures are medians over
rounds, of floats and sums, out of place (a broadcast in place). The plots need python3-matplotlib.

    tutti_perf --procs 2 --rounds 5 --output tutti_perf
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# Beside this file in the source tree; installed, apart from the programs.
sys.path[:0] = [str(HERE), str(HERE.parent / "share" / "tutti" / "perf")]

import compare_libraries  # noqa: E402
import perf_page  # noqa: E402

NAME = "tutti_perf"
COLLECTIVES = compare_libraries.COLLECTIVES


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, as the other programs do."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def bus_factor(collective, ranks):
    """Bus bandwidth over bytes by time, as nccl-tests defines it."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in compare_libraries.BLOCKS else 1


def figures(times_us, bytes_, factor):
    median = statistics.median(times_us)
    return {"time_us": median, "least_us": min(times_us), "greatest_us": max(times_us),
            "bus_bw": bytes_ / median / 1e3 * factor if median else 0}


def result_of(collective, args, names, samples):
    """One collective's entry of the JSON file."""
    factor = bus_factor(collective, args.procs)
    rows = []
    for size in compare_libraries.sizes_of(args):
        row = {"bytes": size, **{name: figures(samples[name, size], size, factor)
                                 for name in names}}
        if len(names) > 1:
            row["best_peer"] = min(names[1:], key=lambda name: row[name]["time_us"])
        rows.append(row)
    return {"collective": collective, "peers": names[1:], "sizes": rows}


def measure(args):
    results, start = [], time.monotonic()
    with compare_libraries.contest(args) as contest:
        for number, collective in enumerate(args.collectives, 1):
            if collective == "hypercube" and args.procs & (args.procs - 1):
                print(f"# hypercube needs a power of two of processes: left out with {args.procs}",
                      file=sys.stderr)
                continue
            print(f"# {collective}: {number} of {len(args.collectives)}, "
                  f"{time.monotonic() - start:.0f} s since the start", file=sys.stderr)
            names, samples = contest.measure(collective)
            results.append(result_of(collective, args, names, samples))
    return results


def parse_collectives(text):
    names = text.split(",")
    unknown = [name for name in names if name not in COLLECTIVES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are "
                                         f"{', '.join(COLLECTIVES)}")
    return names


def parse_arguments():
    prefix = HERE.parent
    installed = (prefix / "bin" / "all_reduce_perf").exists()
    parser = Parser(prog=NAME, description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(prefix if installed else prefix / "build"),
                        help="the folder whose bin/ has the perf tools")
    parser.add_argument("--output", default=NAME, metavar="NAME",
                        help="writes NAME.json and NAME.html (default: %(default)s)")
    parser.add_argument("--collectives", type=parse_collectives, default=COLLECTIVES,
                        metavar="NAMES", help="as all_reduce,broadcast; default: all")
    parser.add_argument("--peers", type=compare_libraries.parse_peers, default="openmpi,mpich",
                        help="beside Tutti; empty: none (default: %(default)s)")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--min-bytes", type=compare_libraries.parse_bytes, default=8)
    parser.add_argument("--max-bytes", type=compare_libraries.parse_bytes, default=16 << 20)
    parser.add_argument("--factor", type=compare_libraries.parse_factor, default=4)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--small-iters", type=int, default=500)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--algo", help="force one of Tutti's algorithms")
    parser.add_argument("--version", action="store_true")
    args = parser.parse_args()
    for flag in ("procs", "rounds", "min_bytes", "iters", "small_iters"):
        if getattr(args, flag) < 1:
            parser.error(f"--{flag.replace('_', '-')}: {getattr(args, flag)} is not at least 1")
    if args.factor < 2:
        parser.error(f"--factor: {args.factor} is not at least 2")
    tool = pathlib.Path(args.build) / "bin" / "all_reduce_perf"
    if not tool.exists():
        parser.error(f"{tool} is missing: build first, or name the build folder with --build")
    # The other flags of compare_mpi.py: this machine alone, all on the same processors.
    args.hosts, args.rate, args.pin = 0, None, "cores"
    args.registered = args.limits = False
    return args


def main():
    args = parse_arguments()
    tool = pathlib.Path(args.build) / "bin" / "all_reduce_perf"
    told = subprocess.run([tool, "--version"], check=True, capture_output=True, text=True).stdout
    version = told.split(maxsplit=1)[1].strip()
    if args.version:
        print(NAME, version)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = {"program": NAME, "version": version,
              "start_time": datetime.datetime.now().isoformat(timespec="seconds"),
              "host": platform.node(), "cpus": os.cpu_count(), "processes": args.procs,
              "rounds": args.rounds, "algorithm": args.algo or "auto"}
    try:
        report["results"] = measure(args)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"{NAME}: {error}")
    json_path, page_path = (pathlib.Path(args.output + end) for end in (".json", ".html"))
    json_path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"wrote {json_path}")
    try:
        page_path.write_text(perf_page.page(report))
        print(f"wrote {page_path}")
    except ImportError as error:
        print(f"{NAME}: {error}: {page_path} is left out", file=sys.stderr)


if __name__ == "__main__":
    main()
