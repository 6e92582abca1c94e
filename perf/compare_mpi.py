#!/usr/bin/env python3
"""Tutti's all-reduce beside Open MPI's and MPICH's on this machine, interleaved.

Each round runs every library once, so that what disturbs the machine disturbs all of them alike.
The table shows medians over rounds in microseconds (out-of-place, float, sum), the ratio of medians
library / Tutti (above 1: Tutti is faster), and in brackets the least and greatest ratio of any one
round. Needs mpicc.openmpi and mpirun.openmpi, or the same with .mpich; what is missing is left out.

    perf/compare_mpi.py --build build --procs 2 --rounds 9
"""
import argparse
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "compare_mpi" / "mpi_all_reduce.c"
# Small sizes need many iterations for a steady figure, large ones would take minutes with as many.
SMALL_BYTES = 64 * 1024
RUN_TIMEOUT_S = 600
MPI_FLAGS = {
    "openmpi": ["--allow-run-as-root", "--oversubscribe"],
    "mpich": [],
}


def parse_bytes(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:].upper())
    return int(float(text[:-1]) * unit) if unit else int(text)


def sizes_of(args):
    sizes, size = [], args.min_bytes
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


def run_tutti(program, args, first, last, iterations):
    command = [program, "--procs", args.procs, "-b", first, "-e", last, "-f", args.factor,
               "-n", iterations, "-w", args.warmup, "-c", 0]
    if args.algo:
        command += ["--algo", args.algo]
    times = {}
    for line in output_of(list(map(str, command))).splitlines():
        words = line.split()
        if words and not line.startswith("#"):
            times[int(words[0])] = float(words[5])
    return times


def run_mpi(launcher, flags, program, args, first, last, iterations):
    command = [launcher, *flags, "-np", args.procs, program, first, last, args.factor, iterations,
               args.warmup]
    times = {}
    for line in output_of(list(map(str, command))).splitlines():
        words = line.split()
        times[int(words[0])] = float(words[1])
    return times


def libraries(args, folder):
    """{name: function(first, last, iterations) -> {bytes: microseconds}}, Tutti first."""
    tutti = pathlib.Path(args.build) / "bin" / "all_reduce_perf"
    if not tutti.exists():
        sys.exit(f"{tutti} is missing: build first, or name the build folder with --build")
    found = {"tutti": lambda *r: run_tutti(tutti, args, *r)}
    for name, flags in MPI_FLAGS.items():
        compiler, launcher = shutil.which(f"mpicc.{name}"), shutil.which(f"mpirun.{name}")
        if not compiler or not launcher:
            print(f"# mpicc.{name} or mpirun.{name} is missing: left out")
            continue
        program = pathlib.Path(folder) / f"mpi_all_reduce_{name}"
        subprocess.run([compiler, "-O3", "-o", program, SOURCE], check=True)
        found[name] = lambda *r, l=launcher, f=flags, p=program: run_mpi(l, f, p, args, *r)
    return found


def measure(args):
    samples = {}  # (name, bytes) -> [microseconds of each round]
    with tempfile.TemporaryDirectory() as folder:
        runs = libraries(args, folder)
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
    print(f"# {platform.node()}, {os.cpu_count()} CPUs, {args.procs} processes, "
          f"{args.rounds} rounds, {args.small_iters} iterations up to {SMALL_BYTES} B, "
          f"{args.iters} above; algorithm {args.algo or 'auto'}")
    others = names[1:]
    head = f"{'bytes':>10}" + "".join(f"{n + ' us':>14}" for n in names)
    print(head + "".join(f"{n + '/tutti [least..greatest]':>36}" for n in others))
    for size in sizes_of(args):
        medians = {n: statistics.median(samples[n, size]) for n in names}
        line = f"{size:>10}" + "".join(f"{medians[n]:>14.2f}" for n in names)
        for n in others:
            rounds = [a / b for a, b in zip(samples[n, size], samples["tutti", size])]
            line += f"{medians[n] / medians['tutti']:>20.2f} [{min(rounds):.2f}..{max(rounds):.2f}]"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(HERE.parent / "build"), help="build folder")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--min-bytes", type=parse_bytes, default=8)
    parser.add_argument("--max-bytes", type=parse_bytes, default=64 << 20)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--small-iters", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--algo", help="force one of Tutti's algorithms")
    args = parser.parse_args()
    names, samples = measure(args)
    print_table(args, names, samples)


if __name__ == "__main__":
    main()
