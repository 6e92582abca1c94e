#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The judge of tests, on what ctest itself reports: `judge_tests_test.py TOOLS`."""
import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, sys.argv.pop(1))
import judge_tests  # noqa: E402

GOOGLETEST = """<testsuites><testsuite>
<testcase name="A" status="run" result="completed" classname="S"/>
<testcase name="B" status="notrun" result="suppressed" classname="S"/>
<testcase name="C" status="run" result="skipped" classname="S">
<skipped message="a.cpp:7&#x0A;there is no GPU"/></testcase>{more}</testsuite></testsuites>"""
FAILURE = """<testcase name="D" status="run" result="completed" classname="S">
<failure message="a.cpp:9&#x0A;expected 1"/></testcase>"""


def skips(name, output):
    """A test that prints and skips."""
    return (f'add_test({name} printf "%b" "{output}")\n'
            f'set_tests_properties({name} PROPERTIES SKIP_REGULAR_EXPRESSION "kipped")\n')


class Judge(unittest.TestCase):
    def judge(self, tests, *flags, cases=None, status=None):
        """Runs ctest on these tests; what the judge says, and its exit status."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "CTestTestfile.cmake").write_text(tests, encoding="utf-8")
            inside = Path(folder) / "tests" / "cases"
            inside.mkdir(parents=True)
            for name, text in (cases or {}).items():
                (inside / f"{name}.xml").write_text(text, encoding="utf-8")
            done = subprocess.run(["ctest", "--test-dir", folder, "--output-junit",
                                   Path(folder) / judge_tests.REPORT], capture_output=True,
                                  check=False)
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                code = judge_tests.main(
                    [*flags, f"{folder}:{done.returncode if status is None else status}"])
            return code, said.getvalue().replace(folder, "BUILD")

    def totals(self, *arguments, **options):
        code, said = self.judge(*arguments, **options)
        return code, said.splitlines()[-1]

    def test_passed_and_failed_are_counted(self):
        self.assertEqual(self.totals("add_test(a true)"), (0, "1 passed, 0 failed"))
        self.assertEqual(self.totals("add_test(a true)\nadd_test(b false)"),
                         (1, "1 passed, 1 failed"))

    def test_a_program_that_is_not_there_fails(self):
        code, said = self.judge("add_test(a true)\nadd_test(gone /nonexistent)")
        self.assertEqual((code, said.splitlines()[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("Unable to find executable: /nonexistent", said)

    def test_what_needed_a_failed_fixture_fails(self):
        tests = ("add_test(a false)\nset_tests_properties(a PROPERTIES FIXTURES_SETUP f)\n"
                 "add_test(b true)\nset_tests_properties(b PROPERTIES FIXTURES_REQUIRED f)\n")
        self.assertEqual(self.totals(tests), (1, "0 passed, 2 failed"))

    def test_a_status_that_no_case_explains_fails(self):
        code, said = self.judge("add_test(a true)", status=8)
        self.assertEqual((code, said.splitlines()[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("it ended with status 8", said)

    def test_without_a_report_or_a_test_it_fails(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(judge_tests.main(["/nonexistent:0"]), 1)
        self.assertEqual(self.totals(""), (1, "0 passed, 1 failed"))

    def test_equal_reasons_are_one_line(self):
        said = "a.cpp:7: Skipped\\nno 'nft' here\\n\\n[  SKIPPED ] One.Two\\n"
        code, said = self.judge("add_test(a true)\n" + skips("b", said) + skips("c", said) +
                                skips("d", "skipped: no qemu\\n"))
        self.assertEqual(code, 0)
        self.assertIn("3 skipped:\n     2 no 'nft' here (b, ...)\n     1 skipped: no qemu (d)\n",
                      said)

    def test_with_checks_only_what_is_allowed_may_skip(self):
        tests = skips("a", "skipped: there is no GPU") + skips("b", "skipped: no qemu")
        code, said = self.judge(tests, "--checks")
        self.assertEqual((code, said.splitlines()[-1]), (1, "0 passed, 1 failed"))
        self.assertIn("may not skip here: skipped: no qemu", said)

    def test_what_was_not_configured_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "CTestTestfile.cmake").write_text(
                "add_test(wire_test_NOT_BUILT-abc wire_test_NOT_BUILT-abc)", encoding="utf-8")
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                self.assertEqual(judge_tests.main(["--configured", folder]), 1)
        self.assertIn("no test is named launcher.openmpi...", said.getvalue())
        self.assertNotIn("no test is named wire_test...", said.getvalue())

    def test_the_cases_of_a_whole_program_are_counted(self):
        tests = "add_test(p.1_of_2 true)\nadd_test(p.2_of_2 true)\n"
        part = GOOGLETEST.format(more="")
        code, said = self.judge(tests, cases={"p.1_of_2": part, "p.2_of_2": part})
        self.assertEqual(code, 0)
        self.assertIn("2 there is no GPU (p.S.C, ...)", said)
        self.assertIn("\n2 distinct test cases\n2 passed, 0 failed\n", said)

    def test_a_failed_case_of_a_whole_program_is_named(self):
        code, said = self.judge("add_test(p false)", cases={"p": GOOGLETEST.format(more=FAILURE)})
        self.assertEqual((code, said.splitlines()[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("failed: p.S.D (BUILD)\n   a.cpp:9\n   expected 1", said)

    def test_a_whole_program_that_dies_fails(self):
        for cases in ({}, {"p": GOOGLETEST.format(more="")}, {"p": "<testsuites"}):
            self.assertEqual(self.totals("add_test(p false)", cases=cases)[0], 1, cases)


if __name__ == "__main__":
    unittest.main()
