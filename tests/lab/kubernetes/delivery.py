# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's DaemonSet on a cluster of the lab: the kustomize files, as a user has edited them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from lab.delivered import NAMESPACE, Kustomize
from lab.entering import LabError
from lab.kubernetes.api import MERGE_PATCH
from lab.kubernetes.client import PATIENCE, Client
from lab.kubernetes.cluster import Cluster
from lab.machine import Machine
from lab.waiting import until

_PODS = (f"--namespace={NAMESPACE}", "--selector=app.kubernetes.io/name=kubenode-agent")
_NAMESPACE_FOLDER = "namespace"
_FOR_OLDER = "../../components/apparmor-annotation"  # which do not know the field appArmorProfile
_NEWER = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")  # kinds of Kubernetes 1.30
_ABSENT = "absent"
_EXAMPLE = "aks-dual-stack"  # the overlay that the overlay ``absent`` names
_FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"


class Delivery:
    """One profile's overlay, applied to all nodes. ``image`` is loaded on them, as there is no registry.

    As a context manager it deletes its objects and the namespace at the end, also after a failure in the block; the nodes keep
    their state.
    ``profile`` is the overlay's name, ``variables`` are the role's that apply() always gives, ``interval`` is the time between
    two looks in minutes, from the next apply() on. So is ``component``, which is
    added to the overlay if it is not empty.
    """

    def __init__(self, cluster: Client, image: str, folder: Path, profile: str, interval: float = 0.1, **variables: Any) -> None:
        self.cluster = cluster
        self.image = image
        self.profile = profile
        self.interval = interval
        self.daemonset = f"kubenode-agent-{profile}"
        self.component = ""
        self._variables = variables
        self._folder = folder
        self._edits = 0
        self._kustomize = Kustomize(folder, cluster.kustomizer)
        path = self._overlay(_ABSENT) / "kustomization.yaml"
        path.write_text(path.read_text().replace(_EXAMPLE, profile))
        self.load()

    def __enter__(self) -> Delivery:
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self.delete()
        finally:
            self._delete(_NAMESPACE_FOLDER)

    def load(self) -> None:
        """Puts the image on all nodes."""
        self.cluster.load_image(self.image, self._folder)

    def apply(self, **variables: Any) -> None:
        """``kubectl apply`` of the profile's overlay, with these variables besides the usual ones."""
        self._apply(self.profile, variables)

    def apply_absent(self) -> None:
        """Undo the profile on all nodes, and wait for it."""
        self._apply(_ABSENT, {})
        self.wait()

    def delete(self) -> None:
        """``kubectl delete`` of the profile's overlay; returns when its pods are gone. The nodes stay as they are."""
        self._delete(f"overlays/{self.profile}")
        until(f"the pods of {self.daemonset} are gone", lambda: f"DaemonSet/{self.daemonset}" not in self.pods(), self)

    def edit(self, **content: Any) -> None:
        """Change the ConfigMap in place: ``data``, ``binaryData``. kubelet is made to read it again."""
        (volume,) = (
            volume for volume in self._daemonset()["spec"]["template"]["spec"]["volumes"] if volume["name"] == "variables"
        )
        assert isinstance(self.cluster, Cluster), "kubectl would copy the content into an annotation, which has a limit"
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{volume['configMap']['name']}"
        self.cluster.api.request(path, "PATCH", content, MERGE_PATCH)
        self._edits += 1
        self.cluster.kubectl("annotate", "pods", *_PODS, "--overwrite", f"lab/edit={self._edits}")

    def wait(self) -> None:
        """Until all pods are those of the last apply(), and ready."""
        try:
            self.cluster.wait_for_rollout(f"daemonset/{self.daemonset}", NAMESPACE)
        except LabError as error:
            raise AssertionError(f"{error}\n{self.last_lines()}") from error

    def until(self, what: str, look: Callable[[], Any], expected: Any = None) -> None:
        """lab.waiting.until(); the message of a failure shows the pods, their logs and the nodes."""
        until(what, look, self, *self.cluster.workers, expected=expected, limit=PATIENCE)

    def last_lines(self) -> str:
        try:
            printed = self.logs()
        except LabError as error:  # a container is not created yet
            printed = str(error)
        return f"{self.pods()}\nthe pods printed last:\n{printed}"

    @property
    def ready(self) -> int:
        """How many pods are ready."""
        count: int = self._daemonset()["status"]["numberReady"]
        return count

    def pods(self) -> str:
        """The output of kubectl about the pods."""
        return self.cluster.kubectl("describe", "pods", *_PODS)

    def events(self, node: str) -> str:
        """The output of kubectl about a node's events."""
        return self.cluster.kubectl("describe", "node", node)

    def logs(self) -> str:
        return self.cluster.kubectl("logs", *_PODS, "--tail=50")

    def metrics(self, node: Machine, host: str = "127.0.0.1", port: int = 9463) -> str:
        return node.run(["python3", "-c", _FETCH, f"http://{host}:{port}/metrics"]).stdout

    def _apply(self, overlay: str, variables: dict[str, Any]) -> None:
        overlay_folder = self._overlay(self.profile)
        _write(overlay_folder / "variables.yaml", {**self._variables, **variables})
        name, _colon, tag = self.image.rpartition(":")
        kustomization = _read(overlay_folder / "kustomization.yaml")
        kustomization["images"] = [{"name": "kubenode-agent", "newName": name, "newTag": tag}]
        added = [f"../../components/{self.component}"] * bool(self.component) + [_FOR_OLDER] * (self.cluster.minor < 30)
        kustomization["components"] = sorted({*kustomization.get("components", ()), *added})
        _write(overlay_folder / "kustomization.yaml", kustomization)
        nodes = _read(overlay_folder / "nodes.yaml")
        (container,) = nodes["spec"]["template"]["spec"]["containers"]
        (interval,) = (variable for variable in container["env"] if variable["name"] == "KUBENODE_INTERVAL")
        interval["value"] = f"{self.interval:g}"
        _write(overlay_folder / "nodes.yaml", nodes)
        for folder in (_NAMESPACE_FOLDER, f"overlays/{overlay}"):
            self.cluster.kubectl("apply", "--filename=-", input=self._text(folder))

    def _text(self, folder: str) -> str:
        """Return the objects of a folder that the cluster knows."""
        text = self._kustomize.text(folder)
        if self.cluster.minor >= 30:
            return text
        return yaml.safe_dump_all([one for one in yaml.safe_load_all(text) if one and one["kind"] not in _NEWER])

    def _daemonset(self) -> dict[str, Any]:
        return self.cluster.get("daemonset", self.daemonset, NAMESPACE)

    def _delete(self, name: str) -> None:
        self.cluster.kubectl("delete", "--ignore-not-found", "--filename=-", input=self._text(name))

    def _overlay(self, name: str) -> Path:
        return self._kustomize.folder / "overlays" / name


def _read(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(path.read_text())
    return read


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(content))
