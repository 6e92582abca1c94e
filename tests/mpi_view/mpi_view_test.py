#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One program by Open MPI and by Tutti, under the same mpirun: the same bytes in every buffer.

    mpi_view_test.py --program build/tests/mpi_view_tutti --ranks 4

TUTTI_TEST_SEED repeats a run. Exit status: 0 passed, 1 failed (with the first difference of each
rank), 77 Open MPI is not here (the reason is printed).
"""
import argparse
import itertools
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "launch"))
import slurm_cluster  # how to end what was started

SKIP = 77
SECONDS = 100  # for one command; a hang is a failure
SOURCES = [HERE / "program.c", HERE / "calls_mpi.c"]
# Messages through shared memory, and nothing that listens on a network. Open MPI's reductions in
# vectors (op/avx) saturate sums of 8 bits; without them it computes as C does.
MPI_FLAGS = ["--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca", "op", "^avx"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def draw_seed():
    given = os.environ.get("TUTTI_TEST_SEED")
    seed = int(given, 0) if given else random.SystemRandom().randrange(1 << 32)
    print(f"TUTTI_TEST_SEED={seed}", flush=True)
    return seed


def environment():
    """Whatever started this test is no launcher of its programs."""
    env = {name: value for name, value in os.environ.items()
           if not re.match(r"(TUTTI|PMI|PMIX|SLURM|OMPI)_", name)}
    return {**env, "TUTTI_IFNAME": "lo", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(*command):
    print("+", *command, flush=True)
    done = subprocess.run([str(word) for word in command], env=environment(), timeout=SECONDS,
                          stdin=subprocess.DEVNULL, check=False,
                          preexec_fn=slurm_cluster.die_with_parent)
    if done.returncode != 0:
        sys.exit(f"FAILED: exit status {done.returncode}")


def built_by_mpi(folder):
    compiler = shutil.which("mpicc.openmpi")
    if compiler is None or shutil.which("mpirun.openmpi") is None:
        skip("mpicc.openmpi or mpirun.openmpi is not installed (Debian: libopenmpi-dev, "
             "openmpi-bin)")
    knows = subprocess.run([compiler, "-E", "-include", "mpi.h", "-x", "c", "/dev/null"],
                           check=False, capture_output=True)
    if knows.returncode != 0:
        skip("mpi.h of Open MPI is not installed (Debian: libopenmpi-dev)")
    program = folder / "mpi_view_mpi"
    run(compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, *SOURCES)
    return program


def first_difference(mpi, tutti):
    """In words, or None; two lists of lines."""
    for ours, theirs in itertools.zip_longest(tutti, mpi, fillvalue=""):
        if ours == theirs:
            continue
        call, _, our_elements = ours.partition(": ")
        other_call, _, their_elements = theirs.partition(": ")
        if call != other_call:
            return f"the calls: '{other_call or 'none'}' by MPI, '{call or 'none'}' by Tutti"
        pairs = itertools.zip_longest(their_elements.split(), our_elements.split(),
                                      fillvalue="none")
        for i, (by_mpi, by_tutti) in enumerate(pairs):
            if by_mpi != by_tutti:
                # The word of a hash says itself which elements it is of.
                which = "elements" if "#" in by_mpi else f"element {i}:"
                return f"{call}, {which} {by_mpi} by MPI, {by_tutti} by Tutti"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="program.c with calls_tutti.c")
    parser.add_argument("--ranks", type=int, required=True)
    options = parser.parse_args()
    slurm_cluster.adopt_orphans()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        by_mpi = built_by_mpi(folder)
        seed = draw_seed()
        start = ["mpirun.openmpi", "--oversubscribe", "-np", options.ranks]
        for library, flags, program in (("mpi", MPI_FLAGS, by_mpi), ("tutti", [], options.program)):
            (folder / library).mkdir()
            run(*start, *flags, program, folder / library, seed)
        lines = calls = 0
        wrong = False
        for rank in range(options.ranks):
            written = [(folder / library / str(rank)).read_text("ascii").splitlines()
                       for library in ("mpi", "tutti")]
            difference = first_difference(*written)
            if difference is not None:
                print(f"FAILED: rank {rank}, {difference}")
                wrong = True
            lines += len(written[0])
            calls += len({line.partition(",")[0] for line in written[0]})
        print(f"{calls} calls and {lines} buffers of {options.ranks} ranks compared")
        if wrong or lines == 0:
            sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    finally:
        slurm_cluster.end_descendants()
