# SPDX-License-Identifier: Apache-2.0
"""Hosts to measure between on one machine: network namespaces joined by a bridge, as many as
wanted, each with a name and a /dev/shm of its own.

What they send passes through a token bucket filter of tc(8) where a rate is given. Needs root and
iproute2. Everything is gone at the end, however it ends.
"""
import os
import subprocess

MTU_BYTES = 1500
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
