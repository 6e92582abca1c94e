# SPDX-License-Identifier: Apache-2.0
"""Hosts to measure between on one machine: network namespaces joined by a bridge, as many as
wanted, each with a name and a /dev/shm of its own.

What they send passes through a token bucket filter of tc(8) where a rate is given. Needs root and
iproute2. Everything is gone at the end, however it ends.
"""
import os
import secrets
import subprocess

MTU_BYTES = 1500
PORT = 29600  # of a namespace that is ours alone
# A bucket of half a millisecond at 8 Gbit/s; a queue that a full socket buffer fits into.
BURST_BYTES, QUEUE = 512 * 1024, "100ms"


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True)


class Hosts:
    """with Hosts(2, rate="1gbit") as hosts: subprocess.run(hosts.within(0) + [...])

    A host that has been silent sends `burst_bytes` at once, whatever the rate."""

    def __init__(self, count, rate=None, burst_bytes=BURST_BYTES):
        self.count, self.rate, self.burst_bytes = count, rate, burst_bytes
        self.names = [f"tutti-perf-{os.getpid()}-{i}" for i in range(count)]
        self.bridge = f"tutti-perf-{os.getpid()}-bridge"

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.bridge]:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)

    def within(self, host):
        """The start of a command that runs in that host."""
        own = f'hostname host{host}; mount -t tmpfs none /dev/shm; exec "$@"'
        return ["ip", "netns", "exec", self.names[host], "unshare", "--uts", "sh", "-c", own, "sh"]

    @staticmethod
    def address(host):
        return f"10.78.0.{host + 1}"

    def sent_bytes(self, host):
        """What the interface of that host counts as sent."""
        return int(subprocess.run([*self.within(host), "cat",
                                   "/sys/class/net/eth0/statistics/tx_bytes"],
                                  check=True, capture_output=True, text=True).stdout)

    def _make(self):
        ip("netns", "add", self.bridge)
        ip("-n", self.bridge, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.bridge, "link", "set", "bridge", "up")
        for host, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("link", "add", "eth0", "netns", name, "mtu", MTU_BYTES, "type", "veth",
               "peer", "name", f"port{host}", "netns", self.bridge)
            ip("-n", self.bridge, "link", "set", f"port{host}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            if self.rate:
                subprocess.run([*self.within(host), "tc", "qdisc", "add", "dev", "eth0", "root",
                                "tbf", "rate", self.rate, "burst", str(self.burst_bytes),
                                "latency", QUEUE],
                               check=True)


def outputs_of_ranks(hosts, procs, command_of, timeout_s):
    """Runs a process for each rank on its host; what each has printed."""
    running = []
    for rank in range(procs):
        host = rank * hosts.count // procs
        command, environment = command_of(rank, host)
        running.append(subprocess.Popen([*hosts.within(host), *map(str, command)],
                                        env={**os.environ, **environment}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    try:
        outputs = [process.communicate(timeout=timeout_s)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    if any(process.returncode != 0 for process in running):
        raise RuntimeError("\n".join(outputs))
    return outputs


def outputs_of_tutti(hosts, procs, command, folder, timeout_s):
    """The same of a program that uses Tutti, whose ranks meet by an address and a secret."""
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(32))
    secret.chmod(0o600)
    return outputs_of_ranks(hosts, procs, lambda rank, _: (command, {
        "TUTTI_RANK": str(rank), "TUTTI_RANKS": str(procs),
        "TUTTI_ROOT": f"{hosts.address(0)}:{PORT}", "TUTTI_SECRET_FILE": str(secret)}), timeout_s)
