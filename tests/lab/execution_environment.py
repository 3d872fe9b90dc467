# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The execution environment, built from its definition by ansible-builder, and jobs in it as AWX runs them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import collection, host, images
from lab.controller import Controller
from lab.podman import BUILD, Podman

SUITE, PYTHON = "trixie", "3.13"
DEFINITION = collection.CHECKOUT / "deploy/execution-environment/execution-environment.yml"
REQUIREMENTS = DEFINITION.with_name("requirements.txt")
NAME, BASE = "localhost/lab/execution-environment", "localhost/lab/python"
# The folder in which a build finds the packages of requirements.txt and no others.
OFFERED = "/offered"
USER = 1000  # of its containers
_LIMIT = 900.0  # seconds; a build takes 35

# Like the official image of Python, of which the definition's is one: its own Python in /usr/local, and no lists of packages.
# The sources of apt and pip of this machine are in the base image, because a user's definition does not have them.
_BASE = f"""
FROM {{plain}}
COPY sources.list /etc/apt/sources.list
RUN python3 -m venv /usr/local
ENV PIP_NO_INDEX=1 PIP_FIND_LINKS={OFFERED}
"""


def build(podman: Podman, folder: Path) -> str:
    """Builds the execution environment with the collection of this checkout; returns its name."""
    plain = podman.image(SUITE, ("ca-certificates", "python3-venv"))
    base, offered, context = folder / "base", folder / "offered", folder / "context"
    for made in (base, offered):
        made.mkdir()
    (base / "sources.list").write_text("\n".join(images.sources(SUITE)) + "\n")
    (base / "Containerfile").write_text(_BASE.format(plain=plain))
    _build(podman, BASE, base)

    definition = folder / "definition"
    shutil.copytree(DEFINITION.parent, definition)
    collection.build(definition)
    builder = Path(sys.executable).with_name("ansible-builder")
    host.run([builder, "create", "--file", definition / DEFINITION.name, "--context", context])

    only = ["--require-hashes", "--only-binary=:all:", f"--python-version={PYTHON}", f"--requirement={REQUIREMENTS}"]
    host.run([sys.executable, "-m", "pip", "download", "--quiet", f"--dest={offered}", *only])
    _build(podman, NAME, context, f"--volume={offered}:{OFFERED}:ro", f"--build-arg=EE_BASE_IMAGE={BASE}")
    return NAME


def run(podman: Podman, image: str, controller: Controller, name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a playbook on the controller's nodes by ansible-runner, with a job's folder as AWX writes it; returns the recap.

    Its keys are ``changed``, ``failures``, ``dark`` and others; each value counts by node.
    """
    job = controller.folder / "job"
    for folder in ("env", "inventory", "project"):
        (job / folder).mkdir(parents=True)
    ways = {"ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3"}
    hosts = {node.name: {**ways, "ansible_host": node.ipv4} for node in controller.nodes}
    (job / "inventory/hosts.json").write_text(json.dumps({"nodes": {"hosts": hosts}}))
    (job / "env/envvars").write_text(json.dumps({"ANSIBLE_HOST_KEY_CHECKING": "false"}))
    (job / "env/extravars").write_text(json.dumps(variables))
    shutil.copy(controller.key, job / "env/ssh_key")
    for path in (job, *job.rglob("*")):
        os.chown(path, USER, 0)
    network = f"--network=ns:/proc/{controller.machine.pid}/ns/net"
    command = ["ansible-runner", "run", "/runner", "--ident=one", f"--playbook={name}"]
    # --privileged: crun could not raise limits otherwise where the lab is itself a container. The job's user is not root.
    options = ["--rm", "--privileged", f"--cgroup-parent={podman.cgroup}", network, f"--volume={job}:/runner"]
    podman.run("run", *options, image, *command, timeout=_LIMIT)
    events = [json.loads(path.read_text()) for path in (job / "artifacts/one/job_events").glob("*.json")]
    (last,) = [event for event in events if event["event"] == "playbook_on_stats"]
    recap: dict[str, Any] = last["event_data"]
    return recap


def _build(podman: Podman, name: str, context: Path, *options: str) -> None:
    podman.run(*BUILD, *options, f"--tag={name}", str(context), timeout=_LIMIT)
