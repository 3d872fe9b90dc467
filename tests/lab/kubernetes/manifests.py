# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects for tests, as plain data to be changed before they are applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from lab.kubernetes.pod_images import SERVER, SERVER_PORT
from lab.service import Policy

Kind = Literal["ClusterIP", "NodePort", "LoadBalancer"]
IpFamily = Literal["IPv4", "IPv6"]
BOTH: tuple[IpFamily, ...] = ("IPv4", "IPv6")


def server(name: str, kind: Literal["DaemonSet", "Deployment"] = "DaemonSet", **pod: Any) -> dict[str, Any]:
    """A workload whose pods, labelled ``app: NAME``, answer HTTP as SERVER does.

    ``pod`` is added to the spec of its pods, for example ``nodeName="node1"``.
    """
    container = {"name": "server", "image": SERVER, "ports": [{"containerPort": SERVER_PORT}]}
    ready = {"tcpSocket": {"port": SERVER_PORT}, "periodSeconds": 1}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [{**container, "readinessProbe": ready}], **pod}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def service(
    name: str,
    kind: Kind = "LoadBalancer",
    policy: Policy = "Cluster",
    families: Sequence[IpFamily] = BOTH,
    port: int = 80,
    **spec: Any,
) -> dict[str, Any]:
    """A service in front of the pods of ``server(name)``, with ``policy`` as its externalTrafficPolicy.

    ``spec`` is added to its spec, for example ``sessionAffinity="ClientIP"``.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "type": kind,
            **({} if kind == "ClusterIP" else {"externalTrafficPolicy": policy}),
            "ipFamilyPolicy": "RequireDualStack" if len(families) > 1 else "SingleStack",
            "ipFamilies": list(families),
            "selector": {"app": name},
            "ports": [{"port": port, "targetPort": SERVER_PORT}],
            **spec,
        },
    }
