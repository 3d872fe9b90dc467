# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shows which CNI serves the node, which CNIs own its pods, and what other CNIs left."""

from __future__ import annotations

from .._cni import cilium, cilium_backend, cni_backend, marks_backend
from .._cni import cni as model
from .._cni import marks as cni_marks
from .._interfaces import interfaces_backend
from .._leftovers import azure_pods, survey_backend
from .._leftovers import cni_leftovers as former
from .._module import Module


def _trouble(agent: cilium.Agent | None, is_configured: bool) -> str:
    if agent:
        return cilium_backend.health_problem(agent.health_port)
    return f"has not created its link {cilium_backend.LINK}" if is_configured else ""


def main() -> None:
    module = Module({})
    with module.reporting() as result:
        survey = survey_backend.survey(module.run)
        links, chains, bridge = survey.links, survey.chains, survey.bridge
        names = [link.name for link in links]
        files = survey.configurations
        contents = [file.content for file in files.values()]
        configurations = {path: file.plugins for path, file in files.items() if not file.is_inert}
        first = next((plugins for plugins in configurations.values() if plugins), ())
        ports = sorted(link.name for link in links if bridge and link.master == bridge.number)
        permanent = [
            neighbour
            for neighbour in survey.neighbours
            if neighbour.is_permanent and not (bridge and neighbour.link == bridge.name)
        ]
        has_kube_proxy, proxied = cni_backend.is_kube_proxy_running(), model.kube_proxy_chains(chains)
        of_kube_proxy = {} if has_kube_proxy else proxied
        if of_kube_proxy:
            module.warn(f"{module.name}: {model.kube_proxy_warning(of_kube_proxy)}")
        leftovers = survey_backend.read(module.run, lambda sentence: module.warn(f"{module.name}: {sentence}"), survey)
        mangle = marks_backend.read(module.run)
        if mangle.unread:
            module.warn(f"{module.name}: {mangle.unread}")
        pods = model.pods_by_owner(names)
        interfaces = interfaces_backend.read().interfaces if pods[model.AZURE] else ()  # a node has hundreds of namespaces
        cns = survey_backend.azure_cns()
        agent = cilium_backend.find()
        result.update(
            changed=False,
            plugins=list(first),
            configurations=list(configurations),
            is_cilium=model.CILIUM_PLUGIN in first and cilium_backend.LINK in names,
            pods=pods,
            bridge=bridge.name if bridge else "",
            bridge_ports=ports,
            azure_vnet={
                "mode": next((content.mode for content in contents if content.is_there), ""),
                "pods": [pod.report() for pod in azure_pods.live_pods(interfaces)],
                "cns": cns.report() if cns else {},
            },
            cilium_agent={
                "trouble": _trouble(agent, any(model.CILIUM_PLUGIN in plugins for plugins in configurations.values())),
                "not_ready_taint": (agent or cilium.Agent()).taint,
            },
            others=model.others(chains, names),
            kube_proxy_leftovers=of_kube_proxy,
            leftovers=[leftover.report() for leftover in (*leftovers, *former.of_kube_proxy(proxied, has_kube_proxy))],
            marks=[marks.report() for marks in cni_marks.find(mangle.tables)],
            neighbors=[str(neighbour) for neighbour in permanent],
        )
