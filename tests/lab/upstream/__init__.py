# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of other projects that run on nodes, as they are released, and what they need around them."""

from __future__ import annotations

from lab.upstream.api import Api
from lab.upstream.azure_vnet import AzureVnet
from lab.upstream.kube_proxy import KubeProxy
from lab.upstream.services import Endpoint, Service
from lab.upstream.vpc_cni import VpcCni

__all__ = ["Api", "AzureVnet", "Endpoint", "KubeProxy", "Service", "VpcCni"]
