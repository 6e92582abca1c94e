# SPDX-License-Identifier: Apache-2.0
"""What compare_mpi.py, compare_algorithms.py and tutti_perf run: Tutti's perf tools and the same
collectives of Open MPI, MPICH and Gloo, on the same processors, interleaved in rounds.

A library is a function that returns {(name, bytes): microseconds}. `args` is an argparse.Namespace
with the flags of compare_mpi.py; args.collective is the collective that is being measured.
"""
import argparse
import contextlib
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

from compare_report import LINE, REGISTERED, STREAM_BYTES, TUTTI
from hosts import Hosts, outputs_of_ranks, outputs_of_tutti

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "compare_mpi" / "mpi_collective.c"
GLOO_SOURCE = HERE / "compare_mpi" / "gloo_collective.cpp"
# Small sizes need many iterations for a steady figure, large ones would take minutes with as many.
SMALL_BYTES = 64 * 1024
RUN_TIMEOUT_S = 600
# Processors are bound by us, for all alike.
MPI_FLAGS = {
    "openmpi": ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
    "mpich": ["-bind-to", "none"],
}
# The ways of an MPI: its flags, and the collectives that they change (None: all). Which is fastest
# depends on the size, and no way is at all sizes.
MPI_WAYS = {
    "openmpi": ("openmpi", [], None),
    "openmpi-sm": ("openmpi", ["--mca", "coll_sm_priority", "90"],
                   {"all_reduce", "broadcast", "reduce"}),
    "mpich": ("mpich", [], None),
    "mpich-doubling": ("mpich", ["-genv", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM",
                                 "recursive_doubling"], {"all_reduce"}),
}
GLOO_MODES = {"gloo": "thread", "gloo-polling": "poll"}
PEERS = [*MPI_WAYS, *GLOO_MODES]
COLLECTIVES = ["all_reduce", "all_gather", "alltoall", "alltoallv", "broadcast", "gather",
               "hypercube", "reduce", "reduce_scatter", "scatter", "sendrecv"]
BLOCKS = {"all_gather", "alltoall", "alltoallv", "gather", "hypercube", "reduce_scatter", "scatter"}
# What Gloo has by mode.
GLOO_COLLECTIVES = {"thread": set(COLLECTIVES) - {"reduce_scatter"},
                    "poll": {"all_reduce", "all_gather", "broadcast", "reduce_scatter"}}
ELEMENT_BYTES = 4
LIMITS = "limits"
RULE = "rank r on the r-th of these, modulo their number"


def stream_shapes(collective, ranks):
    """What a rank reads and writes at least: [(SOURCES, DESTINATIONS)] in arrays of the size, and
    whether in whole arrays or in its share of them."""
    if collective in ("alltoall", "alltoallv", "sendrecv"):
        return [(1, 1)], True
    if collective == "all_reduce":
        return [(ranks, 1), (ranks, ranks)], False
    return [{"reduce": (ranks, 1), "reduce_scatter": (ranks, 1), "all_gather": (1, ranks),
             "hypercube": (1, ranks), "broadcast": (1, max(1, ranks - 1))}.get(
                 collective, (1, 1))], False


def parse_peers(text):
    names = text.split(",") if text else []
    unknown = set(names) - set(PEERS)
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {PEERS}")
    return names


def parse_collectives(text):
    names = COLLECTIVES if text == "all" else text.split(",")
    unknown = set(names) - set(COLLECTIVES)
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are all, or "
                                         f"{', '.join(COLLECTIVES)}")
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


def ranges_of(args, from_bytes=0):
    """(first, last, iterations) for the small and the large sizes from `from_bytes` on."""
    sizes = [size for size in sizes_of(args) if size >= from_bytes]
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


class Pinning:
    """Rank r of every library on the r-th processor that this program may use, modulo their
    number; or wherever the scheduler likes."""

    def __init__(self, args):
        self.cpus = sorted(os.sched_getaffinity(0)) if args.pin == "cores" else []

    def within(self, rank):
        """The start of a command that runs there."""
        return ["taskset", "-c", str(self.cpus[rank % len(self.cpus)])] if self.cpus else []

    def mpi_agent(self, folder, procs):
        """The start of a command that mpirun runs for every rank."""
        if not self.cpus:
            return []
        agent = folder / "on_its_processor"
        cases = "".join(f'  {rank}) exec {shlex.join(self.within(rank))} "$@" ;;\n'
                        for rank in range(procs))
        agent.write_text('#!/bin/sh\ncase ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} in\n'
                         f'{cases}esac\nexit 1\n')
        agent.chmod(0o755)
        return [agent]

    def __str__(self):
        return f"{RULE}: {self.cpus}" if self.cpus else "none: the scheduler chooses"


def run_tutti(program, args, hosts, folder, first, last, iterations, flags=()):
    command = [program, "-b", first, "-e", last, "-f", args.factor, "-n", iterations,
               "-w", args.warmup, "-c", 0, *flags]
    if args.algo:
        command += ["--algo", args.algo]
    with tempfile.TemporaryDirectory() as place:
        report = pathlib.Path(place) / "report.json"
        command += ["-J", report]
        if hosts:
            outputs_of_tutti(hosts, args.procs, command, folder, RUN_TIMEOUT_S)
        else:
            output_of(list(map(str, [*command, "--procs", args.procs])))
        rows = json.loads(report.read_text())["results"]
    times = [row["in_place" if args.collective == "broadcast" else "out_of_place"]["time"]
             for row in rows]
    # By the size that was asked for: a tool rounds it down to whole blocks.
    return dict(zip((size for size in sizes_of(args) if first <= size <= last), times, strict=True))


def run_gloo(program, mode, args, hosts, pinning, first, last, iterations):
    hosts = hosts or ThisMachine
    with tempfile.TemporaryDirectory() as meeting:
        outputs = outputs_of_ranks(hosts, args.procs, lambda rank, host: (
            [*pinning.within(rank), program, mode, args.collective, rank, args.procs,
             hosts.address(host), meeting, first, last, args.factor, iterations, args.warmup], {}),
            RUN_TIMEOUT_S)
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
    command = [*launcher, *flags, "-np", args.procs, *program, args.collective, first, last,
               args.factor, iterations, args.warmup]
    return times_of(output_of(list(map(str, command))))


def times_of(output):
    return {int(size): float(time_us) for size, time_us in map(str.split, output.splitlines())}


def run_limits(program, args):
    """One way of a line, and streams of the sizes that they bound: {(name, bytes): us}."""
    shapes, whole = stream_shapes(args.collective, args.procs)
    sizes = [size for size in sizes_of(args) if size >= STREAM_BYTES]
    # Lines and threads divide these evenly enough; a size of an odd block is rounded down to them.
    streamed = {size // 64 * 64: size for size in sizes}
    command = [program, "--json", "--threads", args.procs, "--iterations", args.iters,
               "--warmup", args.warmup]
    if sizes:
        command += ["--sizes", ",".join(map(str, streamed)), "--shapes",
                    ",".join(f"{reads}:{writes}" for reads, writes in shapes)]
        command += ["--whole"] if whole else []
    report = json.loads(output_of(list(map(str, command))))
    return {(LINE, 0): report["line_ns"] / 1e3,
            **{(f"{each['sources']}:{each['destinations']}", streamed[each["bytes"]]):
               each["time_us"] for each in report["streams"]}}


class Contest:
    """The libraries on this machine or on its hosts; a peer's program is built once."""

    def __init__(self, args, folder, hosts):
        self.args, self.folder, self.hosts = args, folder, hosts
        self.pinning = Pinning(args)
        self.versions, self.failed = {}, []

    def runs(self):
        """{name: function() -> {(name, bytes): microseconds}}, Tutti first, of args.collective."""
        args, hosts = self.args, self.hosts
        tutti = self.own_program(f"{args.collective}_perf")
        pin = ["--pin"] if self.pinning.cpus else []
        found = {TUTTI: self.in_parts(
            TUTTI, lambda *r: run_tutti(tutti, args, hosts, self.folder, *r, pin))}
        if args.registered and ranges_of(args, STREAM_BYTES):
            found[REGISTERED] = self.in_parts(
                REGISTERED, lambda *r: run_tutti(tutti, args, hosts, self.folder, *r,
                                                 [*pin, "-R", 2]), STREAM_BYTES)
        for name in args.peers:
            run = self.mpi_run(name) if name in MPI_WAYS else self.gloo_run(name)
            if run:
                found[name] = self.in_parts(name, run)
        return found

    def limits(self):
        program = self.own_program("bench_limits")
        return lambda: run_limits(program, self.args)

    def own_program(self, name):
        program = pathlib.Path(self.args.build) / "bin" / name
        if not program.exists():
            sys.exit(f"{program} is missing: build first, or name the build folder with --build")
        return program

    def in_parts(self, name, run, from_bytes=0):
        return lambda: {(name, size): time_us for part in ranges_of(self.args, from_bytes)
                        for size, time_us in run(*part).items()}

    def mpi_run(self, name):
        mpi, way, changed = MPI_WAYS[name]
        if (changed and self.args.collective not in changed) or (self.hosts and name != "openmpi"):
            return None
        program = self.mpi_program(mpi)
        if not program:
            return None
        launcher, flags = [shutil.which(f"mpirun.{mpi}")], MPI_FLAGS[mpi]
        if self.hosts:
            launcher = [*self.hosts.within(0), *launcher]
            flags = mpi_hosts(self.hosts, self.args.procs, self.folder)
        ranks = [*self.pinning.mpi_agent(self.folder, self.args.procs), program]
        return lambda *r: run_mpi(launcher, [*flags, *way], ranks, self.args, *r)

    @functools.cache
    def mpi_program(self, name):
        compiler, launcher = shutil.which(f"mpicc.{name}"), shutil.which(f"mpirun.{name}")
        if not compiler or not launcher:
            print(f"# mpicc.{name} or mpirun.{name} is missing: left out")
            return None
        knows = subprocess.run([compiler, "-E", "-include", "mpi.h", "-x", "c", "/dev/null"],
                               check=False, capture_output=True)
        if knows.returncode != 0:
            print(f"# mpi.h of {name} is missing: left out")
            return None
        told = subprocess.run([launcher, "--version"], check=False, capture_output=True, text=True)
        version = re.search(r"\d+\.\d+(\.\d+)*", told.stdout)
        self.versions[name] = version[0] if version else "unknown"
        program = self.folder / f"mpi_collective_{name}"
        subprocess.run([compiler, "-O3", "-o", program, SOURCE], check=True)
        return program

    def gloo_run(self, name):
        mode = GLOO_MODES[name]
        if self.args.collective not in GLOO_COLLECTIVES[mode]:
            return None
        program = self.gloo_program()
        return program and (
            lambda *r: run_gloo(program, mode, self.args, self.hosts, self.pinning, *r))

    @functools.cache
    def gloo_program(self):
        program = self.folder / "gloo_collective"
        built = subprocess.run(["g++", "-std=c++20", "-O3", "-o", program, GLOO_SOURCE, "-lgloo",
                                "-lpthread"], check=False, capture_output=True)
        if built.returncode == 0:
            return program
        print("# libgloo-dev is missing: left out")
        return None

    def measure(self, collective):
        """The libraries' names, Tutti's first, and {(name, bytes): [microseconds of a round]}. A
        peer that fails is left out and told; what of ours fails raises."""
        self.args.collective = collective
        runs, samples = self.runs(), {}
        if self.args.limits:
            runs[LIMITS] = self.limits()
        order = list(runs)
        for round_number in range(self.args.rounds):
            # Another library goes first in each round.
            turn = round_number % len(order)
            for name in order[turn:] + order[:turn]:
                try:
                    found = runs[name]() if name in runs else {}
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    if name not in self.args.peers:
                        raise
                    print(f"# {name} fails in round {round_number + 1} of {collective}: left out\n"
                          f"{error}", file=sys.stderr)
                    del runs[name]
                    continue
                for key, time_us in found.items():
                    samples.setdefault(key, []).append(time_us)
            print(f"# {collective}: round {round_number + 1} of {self.args.rounds}",
                  file=sys.stderr)
        self.failed += [f"{name}: {collective}" for name in order if name not in runs]
        return [name for name in runs if name != LIMITS], samples


@contextlib.contextmanager
def contest(args):
    """A Contest by the flags of this program; what it builds is gone afterwards."""
    if args.pin == "cores" and not shutil.which("taskset"):
        sys.exit("--pin cores: taskset (util-linux) is not installed; use --pin none")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(Hosts(args.hosts, args.rate)) if args.hosts else None
        yield Contest(args, folder, hosts)
