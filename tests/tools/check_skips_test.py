#!/usr/bin/env python3
"""The check of skips, on what ctest itself reports: `check_skips_test.py TOOLS`."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, sys.argv.pop(1))
import check_skips  # noqa: E402

RUNS = "add_test(runs true)\nset_tests_properties(runs PROPERTIES LABELS network-tcp-verbs)\n"


def skips(name, labels, output):
    """A test that prints and skips."""
    return (f'add_test({name} printf "%b" "{output}")\n'
            f'set_tests_properties({name} PROPERTIES LABELS "{labels}" '
            'SKIP_REGULAR_EXPRESSION "kipped")\n')


class CheckSkips(unittest.TestCase):
    def lines(self, tests):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "CTestTestfile.cmake").write_text(tests, encoding="utf-8")
            report = Path(folder) / "report.xml"
            subprocess.run(["ctest", "--test-dir", folder, "--output-junit", report],
                           capture_output=True, check=False)
            return check_skips.check(folder, report)

    def test_nothing_skips(self):
        self.assertEqual(self.lines(RUNS), [])

    def test_what_has_no_such_label_may_skip(self):
        self.assertEqual(self.lines(RUNS + skips("gpu", "gpu;runtime", "skipped: no GPU")), [])

    def test_a_failure_is_no_skip(self):
        broken = "add_test(breaks false)\nset_tests_properties(breaks PROPERTIES LABELS tcp)\n"
        self.assertEqual(self.lines(RUNS + broken), [])

    def test_each_reason_is_one_line(self):
        said = "a.cpp:7: Skipped\\nno 'nft' here: install nftables\\n\\n[  SKIPPED ] One.Two\\n"
        lines = self.lines(RUNS + skips("a", "runtime-network-tcp", said) +
                           skips("b", "runtime-network", said) +
                           skips("machine", "network;verbs", "machine: skipped: no qemu\\n"))
        self.assertEqual(lines, [
            "1 of label network, verbs may not skip (machine): machine: skipped: no qemu",
            "2 of label network, tcp may not skip (a, ...): no 'nft' here: install nftables"])

    def test_who_was_not_built_did_not_run(self):
        lines = self.lines(RUNS + "add_test(gone /nonexistent)\n"
                           "set_tests_properties(gone PROPERTIES LABELS verbs)\n")
        self.assertEqual(lines, ["1 of label verbs may not skip (gone): "
                                 "Unable to find executable: /nonexistent"])

    def test_a_label_that_no_test_has(self):
        lines = self.lines(RUNS.replace("-verbs", ""))
        self.assertEqual(len(lines), 1)
        self.assertIn("no test has the label verbs", lines[0])


if __name__ == "__main__":
    unittest.main()
