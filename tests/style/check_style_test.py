#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each check of check_style.py finds the violation it is for, and passes a tree without it."""
import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import check_style


TAG = "SPDX-License-Identifier: " + "Apache-2.0"


class TreeTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        self.write("src/base/types.hpp", f"// {TAG}\n#pragma once\n")
        self.write("src/schedule/schedule.hpp",
                   f'// {TAG}\n#pragma once\n#include "base/types.hpp"\n')
        self.write("src/README.md", "the sources\n")
        self.write("src/base/README.md", "base\n")
        self.write("src/schedule/README.md", "schedule\n")
        self.write("CMakeLists.txt", f"# {TAG}\nadd_library(x x.cpp)\n")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def findings(self, name):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            found = check_style.CHECKS[name](self.root)
        self.printed = output.getvalue()
        return found

    def assert_found(self, name, part):
        found = self.findings(name)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_clean_tree_passes(self):
        for name in check_style.CHECKS:
            if name == "format" and check_style.find_clang_format()[0] is None:
                continue
            self.assertEqual(self.findings(name), [], name)

    def test_include_upwards(self):
        self.write("src/base/wrong.cpp", '#include "schedule/schedule.hpp"\n')
        self.assert_found("includes", "src/base/wrong.cpp:1: src/base may not include")

    def test_include_upwards_by_relative_path(self):
        self.write("src/base/wrong.cpp", '#  include "../schedule/schedule.hpp"\n')
        self.assert_found("includes", "src/schedule/schedule.hpp")

    def test_algorithm_must_not_reach_a_transport(self):
        self.write("transports/transport.hpp", '#include "base/types.hpp"\n')
        self.write("algorithms/ring.cpp", '#include <transports/transport.hpp>\n')
        self.assert_found("includes", "algorithms/ring.cpp:1")

    def test_only_microbenchmarks_reach_the_measured_part(self):
        self.write("src/kernels/copy.hpp", "")
        self.write("perf/bench_copy.cpp", '#include "kernels/copy.hpp"\n')
        self.assertEqual(self.findings("includes"), [])
        self.write("perf/all_reduce.cpp", '#include "kernels/copy.hpp"\n')
        self.assert_found("includes", "perf/all_reduce.cpp:1")

    def test_tests_include_everything(self):
        self.write("tests/base/types_test.cpp", '#include "schedule/schedule.hpp"\n')
        self.assertEqual(self.findings("includes"), [])

    def test_folder_without_readme(self):
        self.write("src/model/price.cpp", "")
        self.assert_found("readmes", "src/model: has no README.md")

    def test_build_and_hidden_folders_are_not_ours(self):
        self.write("build-asan/x.cpp", "x" * 200 + "\n")
        self.write(".cache/x.cpp", "x" * 200 + "\n")
        self.assertEqual(self.findings("columns"), [])

    def test_file_without_a_licence(self):
        self.write("src/base/mine.cpp", "\n\n// " + TAG + "\n")
        self.assert_found("licence", "src/base/mine.cpp:1: SPDX-License-Identifier")
        self.write("src/base/mine.cpp", "#!/bin/sh\n# " + TAG + "\n")
        self.assertEqual(self.findings("licence"), [])

    def test_too_many_lines(self):
        self.write("src/base/long.cpp", "\n" * (check_style.MAX_LINES + 1))
        self.assert_found("lines", "src/base/long.cpp: 801 lines")

    def test_many_lines_warn_only(self):
        self.write("src/base/long.cpp", "\n" * (check_style.WARN_LINES + 1))
        self.assertEqual(self.findings("lines"), [])
        self.assertIn("warning: src/base/long.cpp: 601 lines", self.printed)

    def test_long_line_tab_and_trailing_blank(self):
        self.write("src/base/wide.cpp", "\n" + "x" * 101 + "\n")
        self.assert_found("columns", "src/base/wide.cpp:2: 101 columns")
        self.write("src/base/wide.cpp", "x\ty\n")
        self.assert_found("columns", "tab")
        self.write("src/base/wide.cpp", "x \n")
        self.assert_found("columns", "blank")

    def test_unfinished(self):
        self.write("src/base/later.cpp", "// TO" "DO: later\n")
        self.assert_found("unfinished", "src/base/later.cpp:1")

    def test_glob(self):
        self.write("src/base/CMakeLists.txt", "file( GLOB_RECURSE all *.cpp)\n")
        self.assert_found("cmake", "GLOB_RECURSE")

    def test_format(self):
        program, reason = check_style.find_clang_format()
        if program is None:
            self.skipTest(reason)
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("src/base/odd.cpp", "int   x ;\n")
        self.assert_found("format", "src/base/odd.cpp")


if __name__ == "__main__":
    unittest.main()
