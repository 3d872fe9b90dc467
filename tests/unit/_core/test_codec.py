# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operations in a journal read back as they were, and nothing else is decoded."""

from __future__ import annotations

import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._boot.program_archive import archive
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint import rollback_program
from ansible_collections.kubenode.datapath.plugins.module_utils._core import codec
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import library, sysctl
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import routing_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule

_PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.binary(max_size=20)
    | st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))  # as files are read
)


def _named(values: st.SearchStrategy[t.Any]) -> st.SearchStrategy[t.Any]:
    """An object of any class that a journal can hold, with some or all of its fields set."""

    def of(kind: t.Any) -> st.SearchStrategy[t.Any]:
        usual = kind._field_defaults
        return st.fixed_dictionaries(
            {field: values for field in kind._fields if field not in usual}, optional={field: values for field in usual}
        ).map(lambda fields: kind(**fields))

    return st.sampled_from(list(rollback_program.KNOWN.values())).flatmap(of)


def _types(value: t.Any) -> t.Any:
    return [type(value), [_types(one) for one in value]] if isinstance(value, tuple) else type(value)


_ANY = st.recursive(_PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple) | _named(inner), max_leaves=15)


@given(_named(_ANY))
def test_every_operation_comes_back_as_it_was(operation: t.Any) -> None:
    line = codec.encode(operation, rollback_program.KNOWN)
    again = codec.decode(line, rollback_program.KNOWN)
    assert again == operation and type(again) is type(operation)
    assert "\n" not in line and line.isascii()


NOTED = [
    (files.Remove("/\u00e4"), '{"_files.files.Remove":{"path":"/\\u00e4"}}'),
    (Rule(2, 7, table=9), '{"_routing.rule.Rule":{"family":2,"priority":7,"table":9}}'),
    (Rule(2, 7, sport=(1, 2)), '{"_routing.rule.Rule":{"family":2,"priority":7,"sport":[1,2]}}'),
    (b"\x0a\xff", '{"bytes":"0aff"}'),
    ((frozenset({3, 1}), frozenset()), '[{"set":[1,3]},{"set":[]}]'),
    (((1, True, None), (), (b"",)), '[[1,true,null],[],[{"bytes":""}]]'),
]


@pytest.mark.parametrize(("value", "line"), NOTED, ids=[line for _value, line in NOTED])
def test_a_line_names_the_class_and_what_is_not_as_usual(value: t.Any, line: str) -> None:
    """As an older or a newer version of the collection reads it."""
    assert codec.encode(value, rollback_program.KNOWN) == line
    assert codec.decode(line, rollback_program.KNOWN) == value


def test_the_vocabulary_has_what_undoes_a_step_of_every_edge() -> None:
    values = {
        "_checkpoint.checkpoint",
        "_ebtables.ebtables",
        "_interfaces.link_message",
        "_netfilter.chain",
        "_netfilter.iptables",
        "_routing.neighbour",
        "_routing.route",
        "_routing.rule",
        "_routing.rule_order",
    }
    assert {name.rpartition(".")[0] for name in rollback_program.KNOWN} - values == {
        *("_files.files", "_platform.sysctl", "_systemd.units", "_nftables.nft_backend", "_routing.routing_backend"),
        *("_interfaces.link_backend", "_azure_vnet.resolved_backend"),
        *("_network_daemons.networkd_backend", "_platform.packages"),
        *("_ebtables.ebtables_backend", "_netfilter.iptables_backend"),
    }
    assert rollback_program.KNOWN["_routing.routing_backend.Restore"] is routing_backend.Restore
    assert rollback_program.KNOWN["_platform.sysctl.Restore"] is sysctl.Restore


@pytest.mark.parametrize("value", [library.Load("x"), files.Other("folder"), {"a": 1}, [1], ..., Failure("x")], ids=str)
def test_what_the_roll_back_does_not_know_is_not_written(value: t.Any) -> None:
    with pytest.raises(codec.Unreadable):
        codec.encode(files.Put("/etc/x", value), rollback_program.KNOWN)


def test_what_is_not_in_the_vocabulary_is_named() -> None:
    with pytest.raises(codec.Unreadable, match="^_platform.library.Load is not in the vocabulary$"):
        # Put takes no operation: the codec has to refuse what the type forbids.
        codec.encode(files.Put("/etc/x", library.Load("x")), rollback_program.KNOWN)  # type: ignore[arg-type]
    with pytest.raises(codec.Unreadable, match="^subprocess.Popen is not in the vocabulary$"):
        codec.decode('{"subprocess.Popen":{"args":"true"}}', rollback_program.KNOWN)
    with pytest.raises(codec.Unreadable, match="^JSONDecodeError: .* column 2"):
        codec.decode("{", rollback_program.KNOWN)


def test_classes_are_named_alike_wherever_they_were_loaded() -> None:
    vocabulary = codec.vocabulary(files.Put, routing_backend.Apply)
    assert list(vocabulary.items()) == [
        ("_files.files.Put", files.Put),
        ("_routing.routing_backend.Apply", routing_backend.Apply),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        '{"_platform.library.Remove":{"path":"/"}}',
        '{"subprocess.Popen":{"args":"true"}}',
        '{"_files.files.Remove":{"path":"/x","more":1}}',
        '{"_files.files.Remove":{}}',
        '{"_files.files.Remove":["/x"]}',
        '{"_files.files.Remove":{"path":"/x"},"_files.files.Discard":{"path":"/x"}}',
        '{"bytes":"0g"}',
        '{"bytes":1}',
        "{}",
    ],
)
def test_what_no_version_has_written_is_not_read(line: str) -> None:
    with pytest.raises(codec.Unreadable):
        codec.decode(line, rollback_program.KNOWN)


def test_the_program_is_whole(tmp_path: Path) -> None:
    program = tmp_path / "rollback.pyz"
    program.write_bytes(archive("_checkpoint.rollback_program").encode("utf-8", "surrogateescape"))
    done = subprocess.run([sys.executable, "-I", "-B", program, "ready"], capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
