#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of check_rooms.py: a small project whose rooms the compiler can or cannot see."""
import tempfile
import unittest
from pathlib import Path

import check_rooms


class Rooms(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name).resolve()
        for name in ("base/types", "schedule/schedule", "model/price"):
            header = self.root / "src" / f"{name}.hpp"
            header.parent.mkdir(parents=True)
            header.write_text("#pragma once\n", encoding="utf-8")
            header.with_suffix(".cpp").write_text("", encoding="utf-8")
            link = self.root / "build/rooms" / header.parent.name / header.parent.name
            link.parent.mkdir(parents=True)
            link.symlink_to(header.parent)

    def tearDown(self):
        self.folder.cleanup()

    def findings(self, **roots):
        """Those of a build in which a source of each room has these include roots."""
        commands = []
        for room, visible in roots.items():
            file = next((self.root / "src" / room).glob("*.cpp"))
            paths = " ".join(f"-I{self.root}/build/rooms/{name}" for name in visible)
            commands.append({"directory": str(self.root / "build"), "file": str(file),
                             "command": f"ccache c++ {paths} -MD -MF x.d "
                                        f"-o src/{room}/x.o -c {file}"})
        return check_rooms.check(self.root, commands)

    def test_rooms_that_see_what_they_may(self):
        self.assertEqual(self.findings(base=["base"], schedule=["schedule", "base"],
                                       model=["model", "schedule", "base"]), [])

    def test_a_crossing(self):
        self.assertEqual(
            self.findings(base=["base"], schedule=["schedule", "base", "model"],
                          model=["model"]),
            ["src/schedule: src/model/price.hpp can be included, which LAYERS forbids"])

    def test_a_room_without_its_root(self):
        self.assertEqual(self.findings(base=["base"], schedule=["base"], model=["model"]),
                         ["src/schedule: its own headers are not found"])

    def test_a_room_that_is_not_built(self):
        self.assertEqual(self.findings(base=["base"], schedule=["schedule"]),
                         ["src/model: compile_commands.json has no source of it"])


if __name__ == "__main__":
    unittest.main()
