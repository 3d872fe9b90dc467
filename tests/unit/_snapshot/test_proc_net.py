# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters and listening sockets in the files of /proc/net, as kernels print them."""

from __future__ import annotations

import struct
import sys

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import proc_net


def test_numbers_of_all_processors_are_added() -> None:
    text = "entries  drop early_drop insert_failed\n0000000a 00000001 00000000 00000010\n0000000a 00000002 00000000 0000000f\n"
    assert proc_net.sums(text, proc_net.TRACKED) == {"insert_failed": 31, "drop": 3, "early_drop": 0}
    assert proc_net.sums("", proc_net.TRACKED) == {}


def test_a_kernel_that_does_not_count_frames_for_others_has_none() -> None:
    fields = struct.pack("=25Q", *range(25))
    assert proc_net.otherhost_dropped(fields) == 24
    assert proc_net.otherhost_dropped(fields[:192]) == proc_net.otherhost_dropped(b"") == 0


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
    assert list(proc_net.listeners(TCP)) == [{"address": "127.0.0.1", "port": 10250}]
    assert list(proc_net.listeners(TCP6)) == [{"address": "::", "port": 10256}, {"address": "2001:db8::ff00:10", "port": 22}]
    assert list(proc_net.listeners("")) == []
