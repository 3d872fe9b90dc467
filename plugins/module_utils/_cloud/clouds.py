# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The clouds whose metadata services are known, by the address of each.

The addresses are from the vendors' documentation, see imds_info.
"""

from __future__ import annotations

# In the order in which the clouds are asked if the firmware does not name the cloud.
ENDPOINTS = {"azure": "http://169.254.169.254", "aws": "http://169.254.169.254", "alibaba": "http://100.100.100.200"}
CHOICES = ("auto", *ENDPOINTS)  # of the option cloud
