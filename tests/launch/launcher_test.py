#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real launchers start the probe and the tools, without a flag that tells them of it.

    launcher_test.py --probe tests/launch_probe [--perf ...] [--info ...] [--train ...] CASE

Exit status: 0 passed, 1 failed, 77 the launcher is not here (the reason is printed).
"""
import argparse
import os
import re
import select
import socket
import subprocess
import sys
import tempfile

import slurm_cluster

SKIP = 77
RANKS = 4
SECONDS = 100  # for one command; a hang is a failure


class Skip(Exception):
    """The reason."""


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


class Done:
    """Commands that have run side by side and ended; one for each of the environments."""

    def __init__(self, command, *envs):
        print("+", *command, flush=True)
        running = [subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    preexec_fn=slurm_cluster.die_with_parent) for env in envs]
        ended = [process.communicate(timeout=SECONDS) for process in running]
        self.statuses = [process.returncode for process in running]
        self.status = max(self.statuses, key=abs)
        self.output = "".join(output for output, _ in ended)
        self.errors = "".join(errors for _, errors in ended)
        print(self.output + self.errors, flush=True)
        # Nothing that could be an id or a secret is ever printed.
        found = re.search(r"[0-9a-fA-F]{32}", self.output + self.errors)
        expect(found is None, f"no long hexadecimal number, found {found}")

    def succeeded(self):
        expect(self.status == 0, f"exit status 0, is {self.status}")
        return self

    def failed(self, *texts):
        expect(self.status != 0, "a failure")
        for text in texts:
            expect(text in self.errors, f"a message with '{text}'")
        return self


class Launchers:
    def __init__(self, options, folder):
        self.options = options
        # Whatever started this test is not what it tests.
        self.env = {name: value for name, value in os.environ.items()
                    if not re.match(r"(TUTTI|PMI|PMIX|SLURM|OMPI|TORCHELASTIC)_|MPI_LOCAL|RANK$|"
                                    r"WORLD_SIZE$|LOCAL_RANK$|MASTER_", name)}
        self.folder = folder
        # Outside of these tests it is the launcher that says whether all ranks are on this host.
        self.env.update(TUTTI_IFNAME="lo", OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def run(self, *command, **variables):
        return Done([str(word) for word in command], {**self.env, **variables})

    def by_hand(self, command, *changes, ranks=RANKS, **variables):
        """One process a rank, the last rank first; `changes` are variables of rank 0, 1, ..."""
        variables = {"TUTTI_RANKS": str(ranks), **variables}
        if "TUTTI_ROOT" not in variables:
            variables["TUTTI_ROOT"] = f"127.0.0.1:{slurm_cluster.free_ports(1)[0]}"
        each = [{**self.env, **variables, "TUTTI_RANK": str(rank),
                 **(changes[rank] if rank < len(changes) else {})} for rank in range(ranks)]
        return Done([str(word) for word in command], *reversed(each))

    def secret(self, name="secret"):
        """A new secret file, as the message of a missing one says."""
        path = os.path.join(self.folder, name)
        with open(path, "wb", opener=lambda *how: os.open(*how, 0o600)) as file:
            file.write(os.urandom(32))
        return path

    def launcher(self, name, package):
        found = slurm_cluster.which(name)
        if found is None:
            raise Skip(f"{name} is not installed (Debian: {package})")
        return found

    def mpirun(self, ranks=RANKS):
        return [self.launcher("mpirun.openmpi", "openmpi-bin"), "--oversubscribe", "-np", ranks]

    def hydra(self, ranks=RANKS):
        return [self.launcher("mpiexec.hydra", "mpich"), "-np", ranks]

    def all_ranks(self, done, launcher, store, ranks=RANKS, local=True):
        """One line from every rank, each with its place and the same sum."""
        total = sum(range(ranks))
        expected = [f"launcher {launcher} store {store} rank {rank} of {ranks} "
                    f"local {f'{rank} of {ranks}' if local else '-1 of -1'} sum {total}"
                    for rank in range(ranks)]
        lines = sorted(done.succeeded().output.splitlines())
        expect(lines == sorted(expected), f"{expected}, is {lines}")

    def tools(self, *start):
        """all_reduce_perf prints one table for all ranks, tutti-info the launcher on each."""
        if self.options.perf:
            done = self.run(*start, self.options.perf, "-b", "8", "-e", "4K", "-f", "8", "-n", "2")
            done.succeeded()
            expect(done.output.count("Using devices") == 1, "one table")
            expect(f"{RANKS} ranks on host memory = {RANKS} processes" in done.output, "all ranks")
            pids = set(re.findall(r"Rank +\d+ Group +0 Pid +(\d+)", done.output))
            expect(len(pids) == RANKS and "0" not in pids, f"{RANKS} pids, are {pids}")
            done = self.run(*start, self.options.perf, "--procs", "2", "-b", "8", "-e", "8")
            done.failed(f"has already started {RANKS} processes of this program")
            expect(done.errors.count("already") == 1, "one rank says so")
            self.run(*start, self.options.perf, "--procs", "1", "-b", "8", "-e", "8",
                     TUTTI_LAUNCHER="none").succeeded()
        if self.options.info:
            done = self.run(*start, self.options.info).succeeded()
            for rank in range(RANKS):
                expect(re.search(rf"^ +rank +{rank} of {RANKS}$", done.output, re.MULTILINE),
                       f"tutti-info on rank {rank}")

    def fingerprint(self, done):
        """Of a run of zero_gpt, where one rank speaks for all."""
        found = re.findall(r"# fingerprint of parameters and moments: (\w+)",
                           done.succeeded().output)
        expect(len(found) == 1, f"one fingerprint, are {found}")
        return found[0]

    def training(self, run):
        """zero_gpt over all ranks has the bits of one process; `run` starts its command."""
        if not self.options.train:
            return
        command = [self.options.train, "--model", "nano", "--steps", "2", "--batch", "1",
                   "--eval-windows", "2"]
        alone = self.fingerprint(self.run(*command, "--stage", "ddp"))
        for stage in "zero2", "zero3":
            expect(self.fingerprint(run([*command, "--stage", stage])) == alone,
                   f"{stage} has the bits of one process")

    # ---- cases ----

    def test_alone(self):
        self.all_ranks(self.run(self.options.probe), "none", "none", ranks=1)

    def test_openmpi(self):
        probe = self.options.probe
        self.all_ranks(self.run(*self.mpirun(), probe), "openmpi", "PMIx")
        self.all_ranks(self.run(*self.mpirun(1), probe), "openmpi", "none", ranks=1)
        # Only the PMIx server knows the numbers.
        self.all_ranks(self.run(*self.mpirun(), "env", "-u", "OMPI_COMM_WORLD_SIZE", probe), "pmix",
                       "PMIx")
        self.all_ranks(self.run(*self.mpirun(), probe, TUTTI_DEBUG="trace"), "openmpi", "PMIx")
        self.tools(*self.mpirun())
        self.training(lambda command: self.run(*self.mpirun(), *command))

    def test_openmpi_without_pmix(self):
        """A libpmix that cannot be loaded is one clear line, not a program that does not start."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "libpmix.so.2"), "wb"):
                pass
            start = [*self.mpirun(2), "env", f"LD_LIBRARY_PATH={folder}"]
            self.run(*start, self.options.probe).failed("libpmix.so.2 cannot be loaded",
                                                        "libpmix2", "TUTTI_ROOT")

    def test_hydra(self):
        probe = self.options.probe
        self.all_ranks(self.run(*self.hydra(), probe), "hydra", "PMI")
        self.all_ranks(self.run(*self.hydra(1), probe), "hydra", "none", ranks=1)
        self.all_ranks(self.run(*self.hydra(), probe, TUTTI_DEBUG="trace"), "hydra", "PMI")
        self.tools(*self.hydra())
        self.training(lambda command: self.run(*self.hydra(), *command))

    def test_hydra_closed_descriptor(self):
        """Never four ranks that each believe to be alone. The socket lives on under another number,
        and what is said goes to a file: Hydra kills who closes it, and at the first end drops what
        it has not forwarded yet."""
        said = os.path.join(self.folder, "said")
        shell = 'eval "exec 99>&$PMI_FD $PMI_FD>&-"; exec "$0" 2>>"$1"'
        self.run(*self.hydra(), "bash", "-c", shell, self.options.probe, said).failed()
        with open(said) as file:
            text = file.read()
        for part in "PMI_FD is not an open socket", "TUTTI_LAUNCHER=none":
            expect(part in text, f"a message with '{part}'")

    def test_hydra_early_death(self):
        """A rank that ends before the ranks have met does not leave the others waiting."""
        shell = '[ "$PMI_RANK" = 1 ] && exit 3; exec "$0"'
        self.run(*self.hydra(), "sh", "-c", shell, self.options.probe,
                 TUTTI_INIT_TIMEOUT_S="1").failed("got no answer in time")

    def test_nested(self):
        """The innermost launcher counts: Hydra under mpirun, and mpirun under Hydra."""
        probe = self.options.probe
        self.all_ranks(self.run(*self.mpirun(1), *self.hydra(), probe), "hydra", "PMI")
        self.all_ranks(self.run(*self.hydra(1), *self.mpirun(), probe), "openmpi", "PMIx")

    def test_by_hand(self):
        probe, secret = self.options.probe, self.secret()
        good = {"TUTTI_SECRET_FILE": secret}
        self.all_ranks(self.by_hand([probe], **good), "environment", "address", local=False)
        self.all_ranks(self.by_hand([probe], TUTTI_DEBUG="trace", TUTTI_JOB="second", **good),
                       "environment", "address", local=False)
        # TUTTI_ROOT takes the place of a store.
        root = f"127.0.0.1:{slurm_cluster.free_ports(1)[0]}"
        done = self.run(*self.hydra(), probe, TUTTI_ROOT=root, **good)
        self.all_ranks(done, "hydra", "address")
        if self.options.perf:
            done = self.by_hand([self.options.perf, "-b", "8", "-e", "8"], **good).succeeded()
            expect(done.output.count("Using devices") == 1, "one table")
        self.training(lambda command: self.by_hand(command, **good))

    def test_by_hand_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
                port = probe.getsockname()[1]
        except OSError as reason:
            raise Skip(f"no IPv6 loopback: {reason}") from reason
        done = self.by_hand([self.options.probe], TUTTI_ROOT=f"[::1]:{port}",
                            TUTTI_SECRET_FILE=self.secret())
        self.all_ranks(done, "environment", "address", local=False)

    def test_by_hand_refused(self):
        """Each fault of address and secret is one line at every rank that has it."""
        probe, secret = [self.options.probe], self.secret()
        hasty = {"TUTTI_INIT_TIMEOUT_S": "1", "ranks": 2}
        self.by_hand(probe, **hasty).failed("does not give the ranks a secret", "TUTTI_SECRET_FILE",
                                            "TUTTI_INSECURE=1")
        self.by_hand(probe, TUTTI_ROOT="", **hasty).failed("do not know where to meet")
        self.by_hand(probe, TUTTI_ROOT="here", TUTTI_SECRET_FILE=secret, **hasty).failed(
            "'here' is not host:port")
        self.by_hand(probe, TUTTI_SECRET_FILE=secret, TUTTI_INSECURE="1", **hasty).failed(
            "both set")
        os.chmod(secret, 0o644)
        self.by_hand(probe, TUTTI_SECRET_FILE=secret, **hasty).failed("chmod 600")
        os.chmod(secret, 0o600)
        other = {"TUTTI_SECRET_FILE": self.secret("other")}
        self.by_hand(probe, {}, other, TUTTI_SECRET_FILE=secret, **hasty).failed(
            "this rank holds another secret", "rank 1 of 2 did not join")
        self.by_hand(probe, {"TUTTI_JOB": "a"}, {"TUTTI_JOB": "b"}, TUTTI_SECRET_FILE=secret,
                     **hasty).failed("rank 1 of 2 did not join")
        self.by_hand(probe, {}, {"TUTTI_RANK": "0"}, TUTTI_SECRET_FILE=secret, **hasty).failed(
            "only one process has rank 0")  # at the same moment, both may be told so

    def test_insecure(self):
        """Works, and says what it gives up: one rank, on every start, with the log off too."""
        for level in ("warn", "off"):
            done = self.by_hand([self.options.probe], TUTTI_INSECURE="1", TUTTI_DEBUG=level)
            self.all_ranks(done, "environment", "address", local=False)
            expect(done.errors.count("this job has no secret") == 1, "one warning")

    def test_torchrun_environment(self):
        """The variables that torchrun documents, as it sets them."""
        self.all_ranks(self.as_torchrun([self.options.probe]), "torchrun", "address")
        self.training(self.as_torchrun)

    def as_torchrun(self, command):
        secret, port = self.secret(), slurm_cluster.free_ports(1)[0]
        each = [{"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
                 "TORCHELASTIC_MAX_RESTARTS": "0", "RANK": str(rank), "WORLD_SIZE": str(RANKS),
                 "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS), "GROUP_RANK": "0",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for rank in range(RANKS)]
        with socket.socket() as store:  # torch's own store has this port
            store.bind(("127.0.0.1", port))
            store.listen()
            return Done([str(word) for word in command],
                        *({**self.env, **one, "TUTTI_SECRET_FILE": secret} for one in each))

    def test_torchrun(self):
        # Only these two flags let torch 1.13 start anything under Python 3.11.
        start = [self.launcher("torchrun", "python3-torch"), "--nproc_per_node", RANKS,
                 "--no_python", "--redirects", "1", "--tee", "1", "--log_dir", self.folder,
                 "--master_port", slurm_cluster.free_ports(1)[0]]
        done = self.run(*start, self.options.probe, TUTTI_SECRET_FILE=self.secret())
        done.output = re.sub(r"^\[default\d\]:", "", done.output, flags=re.MULTILINE)
        self.all_ranks(done, "torchrun", "address")

    def test_slurm(self):
        try:
            cluster = slurm_cluster.Cluster()
            with cluster:
                self.env.update(SLURM_CONF=cluster.env["SLURM_CONF"])
                self.slurm_steps(slurm_cluster.which("srun"))
        except slurm_cluster.CannotStart as reason:
            raise Skip(f"Slurm: {reason}") from reason

    def slurm_steps(self, srun):
        probe = self.options.probe
        self.all_ranks(self.run(srun, "-n", RANKS, probe), "srun", "PMI")
        self.all_ranks(self.run(srun, "-n", RANKS, "--mpi=pmix", probe), "srun", "PMIx")
        self.all_ranks(self.run(srun, "-n", 1, "--mpi=none", probe), "srun", "none", ranks=1)
        self.run(srun, "-n", RANKS, "--mpi=none", probe).failed("srun --mpi=pmi2", "TUTTI_ROOT")
        done = self.run(srun, "-n", RANKS, "--mpi=none", probe, TUTTI_SECRET_FILE=self.secret(),
                        TUTTI_ROOT=f"127.0.0.1:{slurm_cluster.free_ports(1)[0]}")
        self.all_ranks(done, "srun", "address")
        self.tools(srun, "-n", RANKS)
        self.training(lambda command: self.run(srun, "-n", RANKS, *command))
        # A batch script has a SLURM_PROCID, but nothing has started it as one of many.
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "line")
            os.mkfifo(fifo)
            reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
            self.run("sbatch", "-n", RANKS, "-o", "/dev/null", "--wrap",
                     f"{probe} > {fifo} 2>&1").succeeded()
            expect(select.select([reader], [], [], SECONDS)[0], "the batch script runs")
            line = os.read(reader, 4096).decode()
            os.close(reader)
        expect(line.startswith("launcher none store none rank 0 of 1 "), f"alone, is {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tests = {name[5:]: name for name in dir(Launchers) if name.startswith("test_")}
    parser.add_argument("--probe", required=True)
    parser.add_argument("--perf", default="")
    parser.add_argument("--info", default="")
    parser.add_argument("--train", default="")
    parser.add_argument("case", choices=tests)
    options = parser.parse_args()
    slurm_cluster.adopt_orphans()
    try:
        with tempfile.TemporaryDirectory() as folder:
            getattr(Launchers(options, folder), tests[options.case])()
    except Skip as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIP)
    finally:
        slurm_cluster.end_descendants()


if __name__ == "__main__":
    main()
