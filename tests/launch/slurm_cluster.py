# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster of one node for the life of a test: munged, slurmctld and slurmd of its own.

Everything lies in one folder: configuration, key, sockets, spool, logs. Ports are free ones of
loopback. Nothing of an installed Slurm's configuration is read or changed. stop() ends every
process that was started here, by pid, the step daemons that detach themselves too.
"""
import ctypes
import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("srun", "sbatch", "sinfo", "munge")
START_SECONDS = 60
LIBC = ctypes.CDLL(None, use_errno=True)


class CannotStart(Exception):
    """Why this machine runs no cluster."""


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans():
    """Makes this process the parent of descendants whose own parent ends, so that they are seen."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def end_descendants():
    """Kills and reaps everything below this process, until there is nothing."""
    while children := children_of(os.getpid()):
        family = list(children)
        for pid in family:
            family += children_of(pid)
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in children:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


def free_ports(count):
    """Distinct ports that were free just now, outside of the range that the kernel gives from."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first, last = (int(word) for word in file.read().split())
    choice = [*range(10000, first), *range(last + 1, 65535)] or range(1024, 65535)
    found = []
    for port in random.sample(choice, len(choice)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                found.append(port)
            except OSError:
                continue
        if len(found) == count:
            break
    return found


def which(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def tail(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-5:]).strip()
    except OSError:
        return ""


class Cluster:
    """with Cluster() as cluster: subprocess.run([...], env=cluster.env)"""

    def __init__(self, tasks=8):
        missing = [name for name in DAEMONS + CLIENTS if which(name) is None]
        if missing:
            raise CannotStart(f"not installed: {', '.join(missing)} "
                              "(Debian: munge slurm-client slurmctld slurmd)")
        self.tasks = tasks
        self.folder = None
        self.daemons = {}
        self.env = dict(os.environ)

    def __enter__(self):
        adopt_orphans()
        # Short, because Unix sockets lie in it; munge wants it open for passing through.
        self.folder = tempfile.mkdtemp(prefix="tutti-slurm-", dir="/tmp")
        os.chmod(self.folder, 0o711)
        self.env["SLURM_CONF"] = self.path("slurm.conf")
        try:
            self.write_configuration()
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_configuration(self):
        node, user = socket.gethostname().split(".")[0], getpass.getuser()
        controller_port, node_port = free_ports(2)
        with open(self.path("munge.key"), "wb", opener=lambda path, flags: os.open(
                path, flags, 0o600)) as key:
            key.write(os.urandom(64))
        for name in ("state", "spool"):
            os.mkdir(self.path(name), 0o755)
        lines = [
            "ClusterName=tutti", f"SlurmctldHost={node}(127.0.0.1)",
            f"SlurmUser={user}", f"SlurmdUser={user}",
            f"SlurmctldPort={controller_port}", f"SlurmdPort={node_port}",
            "AuthType=auth/munge", f"AuthInfo=socket={self.path('munge.socket')}",
            "CredType=cred/munge", f"StateSaveLocation={self.path('state')}",
            f"SlurmdSpoolDir={self.path('spool')}",
            f"SlurmctldPidFile={self.path('slurmctld.pid')}",
            f"SlurmdPidFile={self.path('slurmd.pid')}",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none", "SelectType=select/linear",
            "SwitchType=switch/none", "MpiDefault=pmi2", "ReturnToService=2",
            # More tasks than cores: the node's real number does not count.
            "SlurmdParameters=config_overrides",
            f"NodeName={node} NodeAddr=127.0.0.1 CPUs={self.tasks} State=UNKNOWN",
            f"PartitionName=all Nodes={node} Default=YES MaxTime=5 State=UP",
        ]
        self.write("slurm.conf", *lines)
        # The plugin that does not ask for systemd; nothing above uses a control group.
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1")
        # What a killed step leaves behind would be in the way of the next cluster's step.
        self.write("mpi.conf", f"PMIxCliTmpDirBase={self.folder}")

    def write(self, name, *lines):
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")

    def start(self):
        self.daemon("munged", "--foreground", f"--key-file={self.path('munge.key')}",
                    f"--socket={self.path('munge.socket')}",
                    f"--pid-file={self.path('munged.pid')}",
                    f"--seed-file={self.path('munge.seed')}", "--num-threads=2")
        self.wait_for("munged", [which("munge"), "-n", "-S", self.path("munge.socket")], "MUNGE:")
        self.daemon("slurmctld", "-D", "-c")
        self.daemon("slurmd", "-D")
        self.wait_for("slurmd", [which("sinfo"), "-h", "-o", "%T"], "idle")

    def daemon(self, name, *arguments):
        with open(self.path(f"{name}.out"), "wb") as out:
            self.daemons[name] = subprocess.Popen(
                [which(name), *arguments], env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, preexec_fn=die_with_parent)

    def wait_for(self, name, command, answer):
        """Asks until the answer comes; a daemon that has ended ends the wait."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            done = subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False,
                                  timeout=START_SECONDS)
            if answer in done.stdout:
                return
            ended = [each for each, process in self.daemons.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                log = tail(self.path(f"{(ended or [name])[0]}.out"))
                what = f"{ended[0]} has ended" if ended else f"{name} does not get ready"
                raise CannotStart(f"{what}: {log or done.stderr.strip()}")

    def stop(self):
        end_descendants()
        shutil.rmtree(self.folder, ignore_errors=True)
