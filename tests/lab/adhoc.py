# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module on a node by Ansible itself, as a user runs one: the connection, the payload, the node's own Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import inventory
from lab.entering import LabError

if TYPE_CHECKING:
    from lab.node import ClusterNode


def run(node: ClusterNode, module: str, arguments: Mapping[str, Any], check: bool, diff: bool, timeout: float) -> dict[str, Any]:
    """``ansible NODE -m MODULE``; answers the module's result, with ``failed`` and ``rc``."""
    options = [*(["--check"] if check else []), *(["--diff"] if diff else [])]
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record")
        result = subprocess.run(
            [
                *(sys.executable, "-m", "ansible", "adhoc", node.name, f"--inventory={node.name},", *options),
                *("--extra-vars", json.dumps(inventory.variables(node))),
                *("--module-name", module, *(["--args", json.dumps(arguments)] if arguments else [])),
            ],
            env={
                **os.environ,
                **inventory.environment(),
                "ANSIBLE_CALLBACKS_ENABLED": "lab_record",
                "ANSIBLE_LOAD_CALLBACK_PLUGINS": "true",
                "LAB_RECORD": str(record),
            },
            check=False, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        results = json.loads(record.read_text())["results"] if record.exists() else []
    if not results:
        raise LabError(f"{node.name}: ansible did not get as far as {module}\n{result.stdout}{result.stderr}")
    failed = results[0]["failed"]
    return {"rc": int(failed), **results[0]["result"], "failed": failed}
