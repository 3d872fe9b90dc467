# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of deploy/ for Kubernetes, as kubectl builds them from kustomize's files and helm from the chart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import installation
import yaml

from lab import apt, collection, host

CHART = collection.CHECKOUT / "deploy/chart"
NAMESPACE = "kubenode-datapath"
TAINT = "kubenode.datapath/not-ready"
Object = dict[str, Any]


class Kustomize:
    """The files in a folder, as a user has copied them, and a kubectl, by default that of Debian 13."""

    def __init__(self, folder: Path, kubectl: Path | None = None) -> None:
        self.folder = folder / "kustomize"
        shutil.copytree(collection.CHECKOUT / "deploy/kustomize", self.folder)
        if kubectl is None:
            apt.unpack("trixie", "kubectl", folder)
        self._kubectl = kubectl or folder / "usr/bin/kubectl"

    def text(self, name: str) -> str:
        return host.run([self._kubectl, "kustomize", self.folder / name])

    def build(self, name: str) -> list[Object]:
        return objects(self.text(name))

    def with_component(self, overlay: str, component: str, **settings: Any) -> str:
        """Copy an overlay, and give the copy a component and other settings of a kustomization. Return the copy's name."""
        copy = f"{overlay}-{component}"
        shutil.copytree(self.folder / overlay, self.folder / copy)
        path = self.folder / copy / "kustomization.yaml"
        kustomization = yaml.safe_load(path.read_text())
        components = [*kustomization.get("components", ()), f"../../components/{component}"]
        path.write_text(yaml.safe_dump({**kustomization, "components": components, **settings}))
        return copy


def rendered(release: str, values: Mapping[str, Any], kubernetes: str = "1.34") -> str:
    """Return the chart's objects for a version of Kubernetes. No cluster is asked."""
    options = [f"--namespace={NAMESPACE}", f"--kube-version={kubernetes}", "--values=-"]
    command = ["template", release, str(CHART), *options]
    return host.output([installation.helm(), *command], json.dumps(values).encode()).decode()


def objects(text: str) -> list[Object]:
    return [document for document in yaml.safe_load_all(text) if document]
