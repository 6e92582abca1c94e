#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A transport between two processes beside perftest and Open MPI, inside the emulated machine.

One boot, interleaved: each round runs everything once, in another order. Latency of an 8-byte
message (bench_wire, median) beside ib_write_lat's typical one; bandwidth of 1 MiB messages beside
ib_write_bw's; all-reduce beside every way of Open MPI that runs there, all over the same veth pair,
and beside the best of those on the same transport. The tables show medians over rounds and ratios
of medians, with the least and greatest ratio of any one round in brackets. A way that cannot run
says why in one line. Time is emulated there: the ratios say something, the figures do not.

    perf/compare_wire.py --build build --transport tcp --rounds 5

Needs what tests/machine needs, and mpicc.openmpi for the part with Open MPI.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Callable, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
MACHINE = HERE.parent / "tests" / "machine" / "rdma_machine"
MPI_SOURCE = HERE / "compare_mpi" / "mpi_collective.c"
RUN_TIMEOUT_S = 60
LARGE_BYTES = 1 << 20
# Of all-reduce: least and greatest size, and iterations for each of --iters.
SWEEPS, FACTOR = ((8, 32 << 10, 4), (256 << 10, 16 << 20, 1 / 25)), 8
# More than both ends' greatest messages. At Linux's 1000 RDMA reads of 2 MiB lose packets, and are
# asked again after a second.
BACKLOG_PACKETS = 100_000
# Of each rank: interface, device, address (tests/machine).
INTERFACES, DEVICES, ADDRESSES = ("d0", "d1"), ("rxe0", "rxe1"), ("10.9.0.1", "10.9.0.2")
# A core for each, ours too, as mpirun has it by itself for two processes.
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "core",
          "--mca", "plm", "isolated"]


class Way(NamedTuple):
    """One setting of Open MPI: of both ranks, and of the environment of each."""
    transport: str
    parameters: dict
    environment: Callable[[int], dict]
    greatest_bytes: int = SWEEPS[-1][1]


# Its own choice for two ranks is a ring from some size on.
RECURSIVE_DOUBLING = {"coll_tuned_use_dynamic_rules": 1, "coll_tuned_allreduce_algorithm": 3}
OFI = {"pml": "cm", "mtl": "ofi", "mtl_ofi_provider_include": "verbs;ofi_rxm"}
UCX = {"pml": "ucx", "pml_ucx_tls": "any", "pml_ucx_devices": "any"}


def of_libfabric(rank):
    """libfabric sizes its completion queues for the ranks of a job; its default is beyond
    Soft-RoCE."""
    return {"FI_UNIVERSE_SIZE": 2, "FI_VERBS_IFACE": INTERFACES[rank]}


def of_ucx(rank):
    """UCX connects by datagrams, and its check of their destination drops all of Soft-RoCE's. All
    by datagrams (ud_verbs) takes 1.3 to 4 times as long."""
    return {"UCX_TLS": "rc_verbs,ud_verbs:aux,self", "UCX_NET_DEVICES": f"{DEVICES[rank]}:1",
            "UCX_IB_GID_INDEX": 1, "UCX_UD_ETH_DGID_CHECK": "n"}


def of_btl(name, key, values):
    return lambda rank: {f"OMPI_MCA_btl_{name}_{key}": values[rank]}


MPI_WAYS = {
    "tcp": Way("tcp", {"pml": "ob1", "btl": "tcp,self"},
               of_btl("tcp", "if_include", INTERFACES)),
    "ofi": Way("verbs", OFI, of_libfabric),
    # A message of this way is at most 8 MiB.
    "ofi rd": Way("verbs", {**OFI, **RECURSIVE_DOUBLING}, of_libfabric, 8 << 20),
    "ucx": Way("verbs", UCX, of_ucx),
    "ucx rd": Way("verbs", {**UCX, **RECURSIVE_DOUBLING}, of_ucx),
    "btl ofi": Way("verbs", {"pml": "ob1", "btl": "ofi,self", "btl_ofi_mode": 1,
                             "btl_ofi_provider_include": "verbs;ofi_rxm"}, of_libfabric),
    "btl openib": Way("verbs", {"pml": "ob1", "btl": "openib,self", "btl_openib_allow_ib": 1,
                                "btl_openib_warn_no_device_params_found": 0},
                      of_btl("openib", "if_include", DEVICES)),
}


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n"
                           f"{done.stdout[-2000:]}{done.stderr[:2000]}")
    return done.stdout


def perftest(program, size, iterations, *flags):
    """The words of the table's one line. The client is tried until the server listens."""
    command = [program, "-x", "1", "-s", str(size), "-n", str(iterations), *flags, "-d"]
    with subprocess.Popen([*command, DEVICES[1]], stdout=subprocess.DEVNULL) as server:
        while True:
            try:
                text = output_of([*command, DEVICES[0], ADDRESSES[1]])
                break
            except RuntimeError:
                if server.poll() is not None:
                    raise
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [str(size)])


def measure_perftest(args):
    return {"latency": float(perftest("ib_write_lat", 8, args.iters * 10)[4]),
            "bandwidth": float(perftest("ib_write_bw", LARGE_BYTES, args.iters,
                                        "--report_gbits")[3]) / 8}


def measure_wire(args):
    at = DEVICES if args.transport == "verbs" else ADDRESSES
    words = output_of([str(args.build / "bin" / "bench_wire"), args.transport, *at,
                       "-n", str(args.iters * 10), "-N", str(args.iters)]).split()
    return {"latency": float(words[words.index("latency_us") + 1]),
            "bandwidth": float(words[words.index("bandwidth_GB_s") + 1])}


def two_ranks(parameters, environment, program):
    """mpirun of one process for each end, with an environment of its own."""
    command = list(MPIRUN)
    for key, value in parameters.items():
        command += ["--mca", key, value]
    for rank in (0, 1):
        named = [f"{key}={value}" for key, value in environment(rank).items()]
        command += [*([":"] if rank else []), "-np", "1", "env", *named, *program]
    return [line.split() for line in output_of(list(map(str, command))).splitlines()
            if line and not line.startswith("#")]


def sweeps(args):
    """Least and greatest bytes, iterations and warm-up iterations."""
    for least, greatest, share in SWEEPS:
        iterations = max(1, round(args.iters * share))
        yield least, greatest, iterations, 1 + iterations // 10


def all_reduce_tutti(args):
    lines = []
    for least, greatest, iterations, warmup in sweeps(args):
        lines += two_ranks({}, lambda rank: {
            "TUTTI_TRANSPORT": args.transport, "TUTTI_IFNAME": INTERFACES[rank],
            "TUTTI_IB_HCA": DEVICES[rank], "TUTTI_HOST_ID": f"host {rank}"},
            [args.build / "bin" / "all_reduce_perf", "-b", least, "-e", greatest, "-f", FACTOR,
             "-n", iterations, "-w", warmup, "-c", 0])
    return {int(words[0]): float(words[5]) for words in lines if words}


def all_reduce_mpi(args, way):
    lines = []
    for least, greatest, iterations, warmup in sweeps(args):
        lines += two_ranks(way.parameters, way.environment, [
            args.mpi, "all_reduce", least, min(greatest, way.greatest_bytes), FACTOR, iterations,
            warmup])
    return {int(words[0]): float(words[1]) for words in lines}


def why(error):
    """The first sentence of what Open MPI says, which frames it with dashes."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not done after {RUN_TIMEOUT_S} s"
    said = str(error).split("\n---")[1:] or [str(error)]
    return " ".join(said[0].strip("-").split()).split(". ")[0]


def ratio(numerators, denominators):
    each = [n / d for n, d in zip(numerators, denominators)]
    whole = statistics.median(numerators) / statistics.median(denominators)
    return f"{whole:.2f} [{min(each):.2f} {max(each):.2f}]"


def report(args, wire, reduced):
    base, ours = wire["perftest"], wire["tutti"]
    print(f"# {args.transport}, {args.rounds} rounds, 2 processes in the emulated machine")
    print(f"| what | perftest | Tutti {args.transport} | Tutti / perftest [rounds] |\n"
          "|---|---|---|---|")
    for key, what in (("latency", "8 B one way, us"), ("bandwidth", "1 MiB messages, GB/s")):
        b, o = [one[key] for one in base], [one[key] for one in ours]
        print(f"| {what} | {statistics.median(b):.4g} | {statistics.median(o):.4g} "
              f"| {ratio(o, b)} |")
    others = [name for name in reduced if name != "tutti"]
    if not others:
        return
    print(f"\n| all-reduce, bytes | Tutti us | {' us | '.join(others)} us "
          f"| best over {args.transport} | best / Tutti [rounds] |")
    print("|---" * (4 + len(others)) + "|")
    for size in sorted(reduced["tutti"][0]):
        of = {name: [one[size] for one in rounds] for name, rounds in reduced.items()
              if size in rounds[0]}
        medians = {name: statistics.median(of[name]) for name in of}
        best = min((name for name in of if name != "tutti" and
                    MPI_WAYS[name].transport == args.transport), key=medians.get, default=None)
        cells = [f"{medians[name]:.4g}" if name in of else "-" for name in ["tutti", *others]]
        print(f"| {size} | {' | '.join(cells)} | {best or '-'} "
              f"| {ratio(of[best], of['tutti']) if best else '-'} |")


def measure(args):
    pathlib.Path("/proc/sys/net/core/netdev_max_backlog").write_text(str(BACKLOG_PACKETS))
    wire = {"perftest": [], "tutti": []}
    reduced = {"tutti": []}
    runs = [(wire["perftest"], lambda: measure_perftest(args)),
            (wire["tutti"], lambda: measure_wire(args)),
            (reduced["tutti"], lambda: all_reduce_tutti(args))]
    for name, way in MPI_WAYS.items() if args.mpi else []:
        try:
            two_ranks(way.parameters, way.environment, [args.mpi, "all_reduce", 8, 8, 2, 1, 1])
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"# Open MPI {name} cannot run: {why(error)}", flush=True)
            continue
        reduced[name] = []
        runs.append((reduced[name], lambda way=way: all_reduce_mpi(args, way)))
    for number in range(args.rounds):
        for results, run in runs[number % len(runs):] + runs[:number % len(runs)]:
            results.append(run())
        print(f"# round {number + 1} of {args.rounds}", flush=True)
    report(args, wire, reduced)


def boot(args):
    """The same call inside the machine, with a program for Open MPI that is built here."""
    with tempfile.TemporaryDirectory() as folder:
        command = [MACHINE, "--seconds", str(args.seconds), sys.executable, "-B",
                   pathlib.Path(__file__).resolve(), *sys.argv[1:], "--inside"]
        if shutil.which("mpicc.openmpi"):
            program = pathlib.Path(folder) / "mpi_collective"
            subprocess.run(["mpicc.openmpi", "-O3", "-o", program, MPI_SOURCE], check=True)
            command += ["--mpi", program]
        else:
            print("# mpicc.openmpi is missing: without Open MPI")
        return subprocess.run(list(map(str, command)), check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build",
                        help="a Release build (default: %(default)s)")
    parser.add_argument("--transport", choices=["tcp", "verbs"], default="tcp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=50,
                        help="large messages and all-reduces a round; ten times as many small "
                             "messages (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=900, help="limit (default: %(default)s)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--mpi", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.build = args.build.resolve()
    for program in ("bench_wire", "all_reduce_perf"):
        if not os.access(args.build / "bin" / program, os.X_OK):
            sys.exit(f"{args.build}/bin/{program} is missing: build first, or name the build "
                     "folder with --build")
    return measure(args) if args.inside else boot(args)


if __name__ == "__main__":
    sys.exit(main())
