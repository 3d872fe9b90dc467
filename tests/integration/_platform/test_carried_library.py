# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A carried library that another run removes or replaces while it is loaded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyroute2
import pytest

# Loads the library as a run does, waits until its folder has changed, and then needs it for each kind of message.
PROGRAM = """\
import sys
sys.path = [path for path in sys.path if "site-packages" not in path]
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import library
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import route, routing_backend, rule
library.FOLDER = sys.argv[1]
assert not library._own_version("pyroute2")
library.load(library.PYROUTE2)
print("loaded", flush=True)
input()
items = [
    rule.Rule(2, 700, (bytes([10, 0, 0, 5]), 32), table=1003),
    rule.Rule(10, 701, table=1003),
    route.Route(2, 1003, (bytes([10, 0, 0, 0]), 8), type=6),
]
send = routing_backend.Netlink().sender(75)
print(dict(send([routing_backend.Change(routing_backend.ADD, one) for one in items])))
print(len([1 for _one, protocol in routing_backend.Netlink().rules() if protocol == 75]))
"""


@pytest.mark.parametrize("event", ["removed", "replaced by a newer one"])
def test_a_run_goes_on_with_the_library_that_it_has_loaded(tmp_path: Path, event: str) -> None:
    folder = tmp_path / f"pyroute2-{pyroute2.__version__}-0123456789abcdef"
    shutil.copytree(Path(pyroute2.__file__).parent, folder / "pyroute2")
    folder.chmod(0o700)
    command = ["unshare", "--net", sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout and program.stdout.readline() == "loaded\n"
        shutil.rmtree(folder)
        if event != "removed":
            newer = tmp_path / "pyroute2-99.0.0-0123456789abcdef"
            (newer / "pyroute2").mkdir(parents=True)
            (newer / "pyroute2/__init__.py").write_text("raise ImportError('another version')\n")
            newer.chmod(0o700)
        said, _none = program.communicate("\n", timeout=30)
    assert said.splitlines() == ["{}", "2"], said
