#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tutti's collectives beside Open MPI's, MPICH's and Gloo's on this machine, interleaved.

Each round runs every library once, so that what disturbs the machine disturbs all of them alike:
the same buffers, sizes and types (float, sum, out of place), as many warming calls, and rank r of
every library on the same processor. The table shows medians over rounds in microseconds, and the
time of the best peer at that size over ours (above 1: Tutti is faster) with the least and greatest
ratio of any one round in brackets. A size is that of the whole data, as in nccl-tests, and the root
is rank 0. MPI's broadcast has one buffer, so Tutti's is the one in place.

    perf/compare_mpi.py --build build --procs 2 --rounds 9
    perf/compare_mpi.py --build build --collective all --json all.json --svg all.svg

Ours are private buffers (tutti) and, from 64 KiB, symmetric windows (tutti-registered). Of a peer
that has several ways, each is one: openmpi and openmpi-sm (its coll/sm), mpich and mpich-doubling
(recursive doubling at every size). Gloo has TCP alone, also within a host: as gloo, with a thread
that moves its messages, and as gloo-polling, where the calling thread polls, which it can for some
collectives. Needs mpicc.openmpi and mpirun.openmpi, or the same with .mpich, and libgloo-dev; what
is missing is left out, and nothing is installed.

In the same rounds bench_limits measures what no library can beat. The last column has our time as a
multiple of one way of a cache line between two processors, or the share of a stream's time in ours:
"2:1" reads the data of two ranks and writes one sum, "2:2" writes the sum for both ranks. Two
shares: private|registered. Above 100 %: caches held what streams write to memory. Where valgrind
is installed, the instructions of a small call are counted.

With --hosts the processes are spread over network namespaces joined by a bridge (as root), and the
libraries are Tutti's, Open MPI's and Gloo's TCP between them:

    perf/compare_mpi.py --build build --procs 4 --hosts 2 --rate 1gbit
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import sys

import compare_plot
import compare_report
import count_instructions
from compare_libraries import (COLLECTIVES, HERE, MPI_FLAGS, MPI_WAYS, PEERS, RULE, SMALL_BYTES,
                               contest, parse_bytes, parse_collectives, parse_factor, parse_peers,
                               sizes_of, stream_shapes)

def cpu_name():
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(),
                          re.MULTILINE)
        if found:
            return found[1]
    return platform.machine()


def head_of(args, pinning):
    """What the report says of the run before its results."""
    return {"program": "compare_mpi",
            "start_time": datetime.datetime.now().isoformat(timespec="seconds"),
            "host": platform.node(), "cpu": cpu_name(), "cpus": os.cpu_count(),
            "processes": args.procs, "hosts": args.hosts, "rate": args.rate, "rounds": args.rounds,
            "iterations": {f"up to {SMALL_BYTES} bytes": args.small_iters, "above": args.iters},
            "warmup": args.warmup, "algorithm": args.algo or "auto", "pinning": str(pinning),
            "load_at_start": os.getloadavg()[0],
            "peer_flags": {name: [*MPI_FLAGS[mpi], *flags]
                           for name, (mpi, flags, _) in MPI_WAYS.items()}}


def print_head(head):
    between = f" on {head['hosts']} hosts, {head['rate'] or 'no limit'}" if head["hosts"] else ""
    small, large = head["iterations"].values()
    print(f"# {head['host']}, {head['cpu']}, {head['cpus']} CPUs, "
          f"load {head['load_at_start']:.1f}, "
          f"{head['processes']} processes{between}, {head['rounds']} rounds, {small} iterations "
          f"up to {SMALL_BYTES} B, {large} above; algorithm {head['algorithm']}\n"
          f"# pinning, alike for all: {head['pinning']}")


def count_call(args):
    """The report's entry, and prints its line."""
    instructions, absence = count_instructions.count(args.build)
    if absence:
        print(f"# {absence}: no count of instructions")
        return {"absence": absence}
    print(f"# all-reduce of {count_instructions.BUDGET_BYTES} bytes among 2 ranks: "
          f"{instructions:.0f} instructions a call beyond the wait")
    return {"bytes": count_instructions.BUDGET_BYTES, "ranks": 2, "instructions": instructions,
            "budget": count_instructions.BUDGETS["all_reduce"]}


def compare(args):
    """Measures and prints; returns the report."""
    with contest(args) as field:
        report = head_of(args, field.pinning)
        print_head(report)
        if args.instructions and "all_reduce" in args.collectives:
            report["call"] = count_call(args)
        report["results"] = []
        for collective in args.collectives:
            if collective == "hypercube" and args.procs & (args.procs - 1):
                print("# hypercube needs a power of two of processes: none here", flush=True)
                continue
            names, samples = field.measure(collective)
            shapes, _ = stream_shapes(collective, args.procs)
            result = compare_report.result_of(
                collective, sizes_of(args), names, samples,
                [f"{reads}:{writes}" for reads, writes in shapes])
            report["results"].append(result)
            print(f"\n# {collective}", *compare_report.table_lines(result), sep="\n", flush=True)
        report["versions"], report["failed"] = field.versions, field.failed
        report["load_at_end"] = os.getloadavg()[0]
    summary = compare_report.summary_lines(report["results"])
    if summary:
        print("\n# the best peer at each size over ours", *summary, sep="\n")
    for failure in report["failed"]:
        print(f"# failed and left out: {failure}")
    print(f"# load {report['load_at_start']:.1f} before, {report['load_at_end']:.1f} after")
    return report


def write_files(args, report):
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
        print(f"# wrote {args.json}")
    if not args.svg:
        return
    try:
        args.svg.write_text(compare_plot.svg(report))
        print(f"# wrote {args.svg}")
    except ImportError as error:
        print(f"compare_mpi: {error}: {args.svg} is left out", file=sys.stderr)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(HERE.parent / "build"), help="build folder")
    parser.add_argument("--collective", dest="collectives", type=parse_collectives,
                        default=["all_reduce"], metavar="NAMES",
                        help=f"all, or some of {', '.join(COLLECTIVES)} (default: all_reduce)")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=0, help="network namespaces; 0: none")
    parser.add_argument("--rate", help="of what a host sends, as tc(8) has it, like 1gbit")
    parser.add_argument("--peers", default=",".join(PEERS), type=parse_peers,
                        help="beside Tutti, as openmpi,gloo; empty: none (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--min-bytes", type=parse_bytes, default=8)
    parser.add_argument("--max-bytes", type=parse_bytes, default=64 << 20)
    parser.add_argument("--factor", type=parse_factor, default=4)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--small-iters", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--algo", help="force one of Tutti's algorithms")
    parser.add_argument("--pin", choices=["cores", "none"],
                        help=f"cores: {RULE}: the processors that this program may use (default; "
                             "with --hosts none)")
    for name, what in (("registered", "symmetric windows of ours, from 64 KiB"),
                       ("limits", "the line exchange and streams"),
                       ("instructions", "of a small call, by valgrind")):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=None,
                            help=f"measure {what} (default: yes, but not with --hosts)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures")
    parser.add_argument("--svg", type=pathlib.Path, metavar="FILE",
                        help="plot the ratios (python3-matplotlib)")
    args = parser.parse_args()
    if args.hosts and args.procs % args.hosts:
        parser.error(f"--procs {args.procs} is no multiple of --hosts {args.hosts}")
    if args.hosts and os.geteuid() != 0:
        parser.error("--hosts makes network namespaces, which only root may: run as root")
    args.pin = args.pin or ("none" if args.hosts else "cores")
    for name in ("registered", "limits", "instructions"):
        if getattr(args, name) is None:
            setattr(args, name, not args.hosts)
    return args


def main():
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # or the hosts would stay
    write_files(args, compare(args))


if __name__ == "__main__":
    main()
