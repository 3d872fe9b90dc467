# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The columns of /proc/net/tcp and tcp6, on a machine whose numbers begin with the lowest byte."""

from __future__ import annotations

import sys

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import listeners

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1 0 100 0 0 10 0
   1: 0B00000A:A0F2 01600A0A:01BB 01 00000000:00000000 00:00000000 00000000     0        0 18 1 0 100 0 0 10 0
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000000000000:2810 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: B80D01200000000000000000100000FF:0016 00000000000000000000000000000000:0000 0A 00000000:00000000
"""


@pytest.mark.skipif(sys.byteorder == "big", reason="the texts are those of another machine")
def test_sockets_that_listen_are_read_and_connections_are_not() -> None:
    assert list(listeners.parsed(TCP)) == [{"address": "127.0.0.1", "port": 10250}]
    assert list(listeners.parsed(TCP6)) == [{"address": "::", "port": 10256}, {"address": "2001:db8::ff00:10", "port": 22}]
    assert list(listeners.parsed("")) == []
