#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A collective of Tutti beside Open MPI's, MPICH's and Gloo's on this machine, interleaved.

Each round runs every library once, so that what disturbs the machine disturbs all of them alike.
The table shows medians over rounds in microseconds (out-of-place, float, sum), the ratio of medians
library / Tutti (above 1: Tutti is faster), and in brackets the least and greatest ratio of any one
round. --collective names the collective; a size is that of the whole data, as in nccl-tests, and
the root is rank 0. MPI's broadcast has one buffer, so Tutti's is the one in place.

Gloo has TCP alone, also within a host: as gloo, with a thread that moves its messages, and as
gloo-polling, where the calling thread polls, which it can for some collectives. Needs mpicc.openmpi
and mpirun.openmpi, or the same with .mpich, and libgloo-dev; what is missing is left out.

    perf/compare_mpi.py --build build --procs 2 --rounds 9

With --hosts the processes are spread over network namespaces joined by a bridge (as root), and the
libraries are Tutti's, Open MPI's and Gloo's TCP between them:

    perf/compare_mpi.py --build build --procs 4 --hosts 2 --rate 1gbit
"""
import argparse
import contextlib
import os
import pathlib
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

from hosts import Hosts, outputs_of_ranks, outputs_of_tutti

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "compare_mpi" / "mpi_collective.c"
GLOO_SOURCE = HERE / "compare_mpi" / "gloo_collective.cpp"
# Small sizes need many iterations for a steady figure, large ones would take minutes with as many.
SMALL_BYTES = 64 * 1024
RUN_TIMEOUT_S = 600
MPI_FLAGS = {
    "openmpi": ["--allow-run-as-root", "--oversubscribe"],
    "mpich": [],
}
GLOO_MODES = {"gloo": "thread", "gloo-polling": "poll"}
PEERS = [*MPI_FLAGS, *GLOO_MODES]
COLLECTIVES = ["all_reduce", "all_gather", "alltoall", "alltoallv", "broadcast", "gather",
               "hypercube", "reduce", "reduce_scatter", "scatter", "sendrecv"]
BLOCKS = {"all_gather", "alltoall", "alltoallv", "gather", "hypercube", "reduce_scatter", "scatter"}
# What Gloo has by mode.
GLOO_COLLECTIVES = {"thread": set(COLLECTIVES) - {"reduce_scatter"},
                    "poll": {"all_reduce", "all_gather", "broadcast", "reduce_scatter"}}
ELEMENT_BYTES = 4
# The words of a perf tool's line that have the time out of place and in place, from its end: the
# name of the operation may be empty.
TIME_WORD, IN_PLACE_TIME_WORD = -8, -4


def parse_peers(text):
    names = text.split(",") if text else []
    unknown = set(names) - set(PEERS)
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {PEERS}")
    return names


def parse_bytes(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:].upper())
    return int(float(text[:-1]) * unit) if unit else int(text)


def parse_factor(text):
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 2 on")
    return int(text)


def sizes_of(args):
    # A block has an element at least.
    blocks = args.procs if args.collective in BLOCKS else 1
    sizes, size = [], max(args.min_bytes, ELEMENT_BYTES * blocks)
    while size <= args.max_bytes:
        sizes.append(size)
        size *= args.factor
    return sizes


def ranges_of(args):
    """(first, last, iterations) for the small and the large sizes."""
    sizes = sizes_of(args)
    small = [s for s in sizes if s <= SMALL_BYTES]
    large = [s for s in sizes if s > SMALL_BYTES]
    return [(part[0], part[-1], n)
            for part, n in ((small, args.small_iters), (large, args.iters)) if part]


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: status {done.returncode}\n"
                           f"{done.stdout}{done.stderr}")
    return done.stdout


class ThisMachine:
    """All ranks on this machine, where Hosts has one network namespace for some of them."""
    count = 1

    @staticmethod
    def within(_):
        return []

    @staticmethod
    def address(_):
        return "127.0.0.1"


def run_tutti(program, args, hosts, folder, first, last, iterations):
    command = [program, "-b", first, "-e", last, "-f", args.factor, "-n", iterations,
               "-w", args.warmup, "-c", 0]
    if args.algo:
        command += ["--algo", args.algo]
    if hosts:
        output = outputs_of_tutti(hosts, args.procs, command, folder, RUN_TIMEOUT_S)[0]
    else:
        output = output_of(list(map(str, [*command, "--procs", args.procs])))
    word = IN_PLACE_TIME_WORD if args.collective == "broadcast" else TIME_WORD
    times = [float(line.split()[word]) for line in output.splitlines()
             if line.strip() and not line.startswith("#")]
    # By the size that was asked for: a tool rounds it down to whole blocks.
    return dict(zip((size for size in sizes_of(args) if first <= size <= last), times, strict=True))


def run_gloo(program, mode, args, hosts, first, last, iterations):
    hosts = hosts or ThisMachine
    with tempfile.TemporaryDirectory() as meeting:
        outputs = outputs_of_ranks(hosts, args.procs, lambda rank, host: (
            [program, mode, args.collective, rank, args.procs, hosts.address(host), meeting, first,
             last, args.factor, iterations, args.warmup], {}), RUN_TIMEOUT_S)
    of_ranks = [times_of(output) for output in outputs]
    return {size: statistics.mean(times[size] for times in of_ranks) for size in of_ranks[0]}


def mpi_hosts(hosts, procs, folder):
    """mpirun's flags for ranks on `hosts`: who asks for a host's shell enters its namespace."""
    agent = folder / "agent"
    cases = "".join(f"  {hosts.address(i)}) exec {shlex.join(hosts.within(i))} sh -c \"$*\" ;;\n"
                    for i in range(hosts.count))
    agent.write_text(f'#!/bin/sh\nhost=$1\nshift\ncase $host in\n{cases}esac\n')
    agent.chmod(0o755)
    each = procs // hosts.count
    yields = int(procs > os.cpu_count())  # each host takes all cores for its own
    # Each host would bind its first rank to the same core.
    return ["--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", str(yields),
            "--host", ",".join(f"{hosts.address(i)}:{each}" for i in range(hosts.count)),
            "--mca", "plm_rsh_agent", str(agent), "--mca", "pml", "ob1",
            "--mca", "btl", "tcp,vader,self", "--mca", "btl_tcp_if_include", "eth0",
            "--mca", "oob_tcp_if_include", "eth0"]


def run_mpi(launcher, flags, program, args, first, last, iterations):
    command = [*launcher, *flags, "-np", args.procs, program, args.collective, first, last,
               args.factor, iterations, args.warmup]
    return times_of(output_of(list(map(str, command))))


def times_of(output):
    return {int(size): float(time_us) for size, time_us in map(str.split, output.splitlines())}


def libraries(args, folder, hosts):
    """{name: function(first, last, iterations) -> {bytes: microseconds}}, Tutti first."""
    tutti = pathlib.Path(args.build) / "bin" / f"{args.collective}_perf"
    if not tutti.exists():
        sys.exit(f"{tutti} is missing: build first, or name the build folder with --build")
    found = {"tutti": lambda *r: run_tutti(tutti, args, hosts, folder, *r)}
    for name, flags in MPI_FLAGS.items():
        if name not in args.peers or (hosts and name != "openmpi"):
            continue
        compiler, launcher = shutil.which(f"mpicc.{name}"), shutil.which(f"mpirun.{name}")
        if not compiler or not launcher:
            print(f"# mpicc.{name} or mpirun.{name} is missing: left out")
            continue
        knows = subprocess.run([compiler, "-E", "-include", "mpi.h", "-x", "c", "/dev/null"],
                               check=False, capture_output=True)
        if knows.returncode != 0:
            print(f"# mpi.h of {name} is missing: left out")
            continue
        program = folder / f"mpi_collective_{name}"
        subprocess.run([compiler, "-O3", "-o", program, SOURCE], check=True)
        command = [launcher]
        if hosts:
            command, flags = [*hosts.within(0), launcher], mpi_hosts(hosts, args.procs, folder)
        found[name] = lambda *r, l=command, f=flags, p=program: run_mpi(l, f, p, args, *r)
    modes = {name: mode for name, mode in GLOO_MODES.items()
             if name in args.peers and args.collective in GLOO_COLLECTIVES[mode]}
    if modes:
        program = folder / "gloo_collective"
        built = subprocess.run(["g++", "-std=c++20", "-O3", "-o", program, GLOO_SOURCE, "-lgloo",
                                "-lpthread"], check=False, capture_output=True)
        if built.returncode == 0:
            for name, mode in modes.items():
                found[name] = lambda *r, m=mode: run_gloo(program, m, args, hosts, *r)
        else:
            print("# libgloo-dev is missing: left out")
    return found


def measure(args):
    samples = {}  # (name, bytes) -> [microseconds of each round]
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(Hosts(args.hosts, args.rate)) if args.hosts else None
        runs = libraries(args, folder, hosts)
        names = list(runs)
        for round_number in range(args.rounds):
            # Another library goes first in each round.
            turn = round_number % len(names)
            for name in names[turn:] + names[:turn]:
                for part in ranges_of(args):
                    for size, time_us in runs[name](*part).items():
                        samples.setdefault((name, size), []).append(time_us)
            print(f"# round {round_number + 1} of {args.rounds}", file=sys.stderr)
    return names, samples


def print_table(args, names, samples):
    between = f" on {args.hosts} hosts, {args.rate or 'no limit'}" if args.hosts else ""
    print(f"# {args.collective}: {platform.node()}, {os.cpu_count()} CPUs, "
          f"{args.procs} processes{between}, {args.rounds} rounds, {args.small_iters} iterations "
          f"up to {SMALL_BYTES} B, {args.iters} above; algorithm {args.algo or 'auto'}")
    others = names[1:]
    head = f"{'bytes':>10}" + "".join(f"{n + ' us':>17}" for n in names)
    print(head + "".join(f"{n + '/tutti [least..greatest]':>38}" for n in others))
    for size in sizes_of(args):
        medians = {n: statistics.median(samples[n, size]) for n in names}
        line = f"{size:>10}" + "".join(f"{medians[n]:>17.2f}" for n in names)
        for n in others:
            rounds = [a / b for a, b in zip(samples[n, size], samples["tutti", size])]
            line += f"{medians[n] / medians['tutti']:>22.2f} [{min(rounds):.2f}..{max(rounds):.2f}]"
        print(line)
    for n in others:
        ratios = [statistics.median(samples[n, size]) / statistics.median(samples["tutti", size])
                  for size in sizes_of(args)]
        print(f"# geometric mean of {n}/tutti: {statistics.geometric_mean(ratios):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(HERE.parent / "build"), help="build folder")
    parser.add_argument("--collective", choices=COLLECTIVES, default="all_reduce", metavar="NAME",
                        help=f"one of {', '.join(COLLECTIVES)} (default: %(default)s)")
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
    args = parser.parse_args()
    if args.hosts and args.procs % args.hosts:
        parser.error(f"--procs {args.procs} is no multiple of --hosts {args.hosts}")
    if args.hosts and os.geteuid() != 0:
        parser.error("--hosts makes network namespaces, which only root may: run as root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # or the hosts would stay
    names, samples = measure(args)
    print_table(args, names, samples)


if __name__ == "__main__":
    main()
