#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What rdma_machine promises to whoever runs it: `machine_test.py RDMA_MACHINE CACHE`.

Output and exit status come through, a time limit and a death end everything, and what is missing or
fails is one line. Exit status 77: the machine cannot run here.
"""
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

PR_SET_CHILD_SUBREAPER = 36
SKIP = 77
MACHINE, CACHE = "", ""
SHOWN = None  # what a command showed
SCRIPT = r"""printf 'a\r\n\0\377'; echo to stderr >&2; pwd; printf '%s|' "$@"; exit 7"""


def command(*words, seconds=200):
    return [MACHINE, "--seconds", str(seconds), "--cache", CACHE, *words]


def run(*words, **options):
    return subprocess.run(command(*words, **options), capture_output=True, check=False)


class Machine(unittest.TestCase):
    def test_output_and_exit_status_are_the_commands(self):
        self.assertEqual(SHOWN.returncode, 7, SHOWN.stderr)
        self.assertEqual(SHOWN.stdout, b"a\r\n\0\xffto stderr\n" + os.getcwd().encode() +
                         b"\ntwo words|$HOME 'x'||")

    def test_the_time_limit_ends_it(self):
        done = run("true", seconds=1)  # less than a boot
        self.assertEqual(done.returncode, 124, done.stderr)
        self.assertIn(b"not done after 1 s", done.stderr)

    def test_it_ends_with_who_started_it(self):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        folder = tempfile.TemporaryDirectory()  # who is killed cleans nothing up
        self.addCleanup(folder.cleanup)
        started = subprocess.Popen(command("bash", "-c", "echo alive; sleep 1000"),
                                   stdout=subprocess.PIPE,
                                   env={**os.environ, "TMPDIR": folder.name})
        self.assertEqual(started.stdout.readline(), b"alive\n")
        started.kill()
        started.wait()
        started.stdout.close()
        signals = []
        try:
            while True:  # what it left is ours now
                signals.append(os.waitstatus_to_exitcode(os.wait()[1]))
        except ChildProcessError:
            pass
        self.assertIn(-signal.SIGKILL, signals)
        self.assertNotIn(124, signals)

    def test_a_crash_shows_the_kernels_last_words(self):
        done = run("bash", "-c", "echo c >/proc/sysrq-trigger")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn(b"sysrq", done.stderr)
        self.assertIn(b"the machine ended by itself", done.stderr)

    def test_what_is_missing_is_one_line_and_a_skip(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("bash", "dirname", "uname"):
                os.symlink(shutil.which(name), os.path.join(folder, name))
            done = subprocess.run(command("true"), capture_output=True, check=False,
                                  env={"PATH": folder})
        self.assertEqual(done.returncode, SKIP, done.stderr)
        self.assertEqual(done.stdout, b"rdma_machine: skipped: no 'qemu-system-x86_64' here; "
                                      b"install qemu-system-x86\n")

    def test_wrong_usage_is_one_line(self):
        for words in (["--seconds", "0", "true"], ["--cache"], ["--wrong"], []):
            done = subprocess.run([MACHINE, *words], capture_output=True, check=False)
            self.assertEqual(done.returncode, 125, words)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    MACHINE, CACHE = sys.argv[1:3]
    SHOWN = run("bash", "-c", SCRIPT, "bash", "two words", "$HOME 'x'", "")
    if SHOWN.returncode == SKIP:
        print(SHOWN.stdout.decode(), end="")
        sys.exit(SKIP)
    unittest.main(argv=sys.argv[:1], verbosity=2)
