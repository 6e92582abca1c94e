#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The check of docs/troubleshooting.md finds what it is for."""

import tempfile
import unittest
from pathlib import Path

import check_troubleshooting


class CheckTroubleshooting(unittest.TestCase):
    def findings(self, page, sources):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in {"docs/troubleshooting.md": page, **sources}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return check_troubleshooting.check(root)

    SOURCE = {"src/comm/a.cpp": 'return make_error(kX, fmt::format("rank {} is {:>3} "\n'
                                   '   "late", r, t));  // make_error("not this")\n'}

    def test_a_page_that_follows_is_clean(self):
        for heading in ("rank ... is ... late", "... is ... late", "late"):
            self.assertEqual(self.findings(f"### `{heading}`\n", self.SOURCE), [])

    def test_a_text_that_is_gone(self):
        found = self.findings("### `is ... late`\n### `rank ... is early`\n", self.SOURCE)
        self.assertEqual(len(found), 1)
        self.assertIn("'rank ... is early'", found[0])

    def test_comments_say_nothing(self):
        self.assertEqual(len(self.findings("### `late`\n### `not this`\n", self.SOURCE)), 1)

    def test_a_file_without_an_entry(self):
        found = self.findings("", self.SOURCE)
        self.assertEqual(len(found), 1)
        self.assertIn("src/comm/a.cpp", found[0])
        self.assertEqual(self.findings("", {"src/comm/a.cpp": 'f("late");'}), [])

    def test_every_text_that_ends_all_ranks(self):
        source = {"src/board/faults.cpp": 'f("{} died; abort"); g("{} left; abort");'}
        found = self.findings("### `... died; abort`\n", source)
        self.assertEqual(len(found), 1)
        self.assertIn("'... left; abort'", found[0])

    def test_quotations(self):
        page = "### `late`\nSee `rank ... is\n... late`, `FILE: ...` and `a command`.\n"
        self.assertEqual(self.findings(page, self.SOURCE), [])
        found = self.findings("### `late`\nOr `rank ... is early`.\n", self.SOURCE)
        self.assertEqual(len(found), 1)
        self.assertIn("'rank ... is early'", found[0])
        tool = {"tools/a/main.cpp": 'f("rank {} is early");', **self.SOURCE}
        self.assertEqual(self.findings("### `late`\nOr `rank ... is early`.\n", tool), [])

    def test_headings(self):
        self.assertEqual(len(self.findings("### late\n### `late`\n", self.SOURCE)), 1)
        self.assertEqual(len(self.findings("### `late`\n### `late`\n", self.SOURCE)), 1)


if __name__ == "__main__":
    unittest.main()
