#!/usr/bin/env python3
"""A transport between two processes beside perftest and Open MPI, inside the emulated machine.

One boot, interleaved: each round runs everything once, in another order. Latency of an 8-byte
message (bench_wire, median) beside ib_write_lat's typical one; bandwidth of 1 MiB messages beside
ib_write_bw's; all-reduce beside Open MPI over TCP and over RDMA (libfabric's verbs), all over the
same veth pair. The tables show medians over rounds and ratios of medians, with the least and
greatest ratio of any one round in brackets. Time is emulated there: the ratios say something, the
figures do not.

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

HERE = pathlib.Path(__file__).resolve().parent
MACHINE = HERE.parent / "tests" / "machine" / "rdma_machine"
MPI_SOURCE = HERE / "compare_mpi" / "mpi_all_reduce.c"
RUN_TIMEOUT_S = 300
LARGE_BYTES = 1 << 20
# Of each rank: interface, device, address (tests/machine).
INTERFACES, DEVICES, ADDRESSES = ("d0", "d1"), ("rxe0", "rxe1"), ("10.9.0.1", "10.9.0.2")
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
          "--mca", "plm", "isolated"]
# libfabric sizes its completion queues for the ranks of a job; its default is beyond Soft-RoCE.
MPI_WAYS = {
    "Open MPI tcp": (["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"],
                     lambda rank: {"OMPI_MCA_btl_tcp_if_include": INTERFACES[rank]}),
    "Open MPI verbs": (["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca",
                        "mtl_ofi_provider_include", "verbs;ofi_rxm"],
                       lambda rank: {"FI_UNIVERSE_SIZE": "2", "FI_VERBS_IFACE": INTERFACES[rank]}),
}


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n"
                           f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
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


def two_ranks(flags, environment, program):
    """mpirun of one process for each end, with an environment of its own."""
    command = [*MPIRUN, *flags]
    for rank in (0, 1):
        named = [f"{key}={value}" for key, value in environment(rank).items()]
        command += [*([":"] if rank else []), "-np", "1", "env", *named, *program]
    return output_of(command)


def all_reduce_tutti(args):
    text = two_ranks([], lambda rank: {
        "TUTTI_TRANSPORT": args.transport, "TUTTI_IFNAME": INTERFACES[rank],
        "TUTTI_IB_HCA": DEVICES[rank], "TUTTI_HOST_ID": f"host {rank}"},
        [str(args.build / "bin" / "all_reduce_perf"), "-b", "16", "-e", str(LARGE_BYTES), "-f",
         "256", "-n", str(args.iters), "-w", "5", "-c", "0"])
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {int(words[0]): float(words[5]) for words in lines if words}


def all_reduce_mpi(args, way):
    flags, environment = MPI_WAYS[way]
    text = two_ranks(flags, environment, [args.mpi, "16", str(LARGE_BYTES), "256",
                                          str(args.iters), "5"])
    return {int(line.split()[0]): float(line.split()[1]) for line in text.splitlines() if line}


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
          f"| {' / Tutti [rounds] | '.join(others)} / Tutti [rounds] |")
    print("|---" * (2 + 2 * len(others)) + "|")
    for size in sorted(reduced["tutti"][0]):
        ours = [one[size] for one in reduced["tutti"]]
        theirs = [[one[size] for one in reduced[name]] for name in others]
        print(f"| {size} | {statistics.median(ours):.1f} | "
              + " | ".join(f"{statistics.median(one):.1f}" for one in theirs) + " | "
              + " | ".join(ratio(one, ours) for one in theirs) + " |")


def measure(args):
    wire = {"perftest": [], "tutti": []}
    reduced = {"tutti": []}
    runs = [(wire["perftest"], lambda: measure_perftest(args)),
            (wire["tutti"], lambda: measure_wire(args)),
            (reduced["tutti"], lambda: all_reduce_tutti(args))]
    for way in MPI_WAYS if args.mpi else []:
        reduced[way] = []
        runs.append((reduced[way], lambda way=way: all_reduce_mpi(args, way)))
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
            program = pathlib.Path(folder) / "mpi_all_reduce"
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
