# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters that write a trace."""

from __future__ import annotations

import typing as t

import pytest

pytest.importorskip("ansible")

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.filter.trace_html import trace_html
from ansible_collections.kubenode.datapath.plugins.filter.trace_mermaid import trace_mermaid
from ansible_collections.kubenode.datapath.plugins.filter.trace_text import trace_text
from ansible_collections.kubenode.datapath.plugins.module_utils._render import mermaid, terminal, trace_page
from unit.answers import ROUTE, arrived


def test_a_filter_writes_what_its_room_writes() -> None:
    result = arrived(ROUTE)
    assert trace_text(result) == terminal.trace(result) and trace_text(result, True) == terminal.trace(result, colours=True)
    assert trace_html(result, {"node": "node7"}) == trace_page.html(result, {"node": "node7"})
    assert trace_mermaid(result) == mermaid.diagram(result)


@pytest.mark.parametrize("write", [trace_text, trace_html, trace_mermaid])
def test_what_is_no_trace_is_an_error_of_the_filter(write: t.Callable[[t.Any], str]) -> None:
    with pytest.raises(AnsibleFilterError, match=f"{write.__name__}: result is 'delivered'; expected is a dictionary"):
        write("delivered")
