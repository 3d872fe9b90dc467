# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search for guilty changes, with nodes that are functions from changes to a fate."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._explain import explanation
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.differences import Change
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.explanation import Changes

WELL = "arrives"


def _changes(count: int) -> list[Change]:
    return [Change("rule", f"change {number:03}") for number in range(count)]


def _guilty(changes: list[Change], fate: Callable[[Changes], str | None]) -> set[str] | None:
    found = explanation.guilty(frozenset(changes), fate, lambda part: fate(part) != WELL)
    return None if found is None else {change.text for change in found}


@pytest.mark.parametrize("seed", range(30))
def test_changes_that_stop_a_packet_together_are_all_found(seed: int) -> None:
    chance, changes = random.Random(seed), _changes(50)
    guilty = frozenset(chance.sample(changes, chance.randint(1, 3)))
    assert _guilty(changes, lambda part: "stopped" if guilty <= part else WELL) == {change.text for change in guilty}


@pytest.mark.parametrize("seed", range(30))
def test_changes_each_of_which_stops_a_packet_are_all_found(seed: int) -> None:
    chance, changes = random.Random(seed), _changes(50)
    guilty = chance.sample(changes, chance.randint(1, 3))

    def fate(part: Changes) -> str:
        return next((change.text for change in guilty if change in part), WELL)

    assert _guilty(changes, fate) == {change.text for change in guilty}


def test_a_rule_that_moved_is_not_guilty() -> None:
    """Without its new place it is gone, and stops the packet alone."""
    gone, new, guilty = changes = _changes(3)

    def fate(part: Changes) -> str:
        return "no rule" if gone in part and new not in part else "down" if guilty in part else WELL

    assert _guilty(changes, fate) == {guilty.text}


def test_a_change_that_only_alters_what_stops_the_packet_is_not_guilty() -> None:
    other, guilty = changes = _changes(2)

    def fate(part: Changes) -> str:
        return ("no route at all" if other in part else "no route") if guilty in part else WELL

    assert _guilty(changes, fate) == {guilty.text}


def test_a_change_that_a_loss_meets_only_beside_another_loss_is_not_guilty() -> None:
    """Without the link, and without the address, its route is gone: then the default route counts, or that it is gone."""
    address, default, link = changes = _changes(3)

    def fate(part: Changes) -> str:
        if part.isdisjoint({address, link}):
            return WELL
        return "by default" if default not in part else "link down" if link in part else "no route"

    assert _guilty(changes, fate) == {address.text, link.text}


def test_a_change_that_closes_a_detour_which_another_one_closes_too_is_not_guilty() -> None:
    gateway, detour, guilty = changes = _changes(3)

    def fate(part: Changes) -> str:
        return (
            WELL if guilty not in part or part.isdisjoint({gateway, detour}) else "no detour" if detour in part else "no gateway"
        )

    assert _guilty(changes, fate) == {guilty.text}


def test_a_change_with_which_the_packet_arrives_from_another_source_is_not_guilty() -> None:
    """It alters the fate of the lost packet, too, and of the one that arrives without the guilty change."""
    source, guilty = changes = _changes(2)

    def fate(part: Changes) -> str:
        return f"{'stopped' if guilty in part else WELL}{' from another source' if source in part else ''}"

    found = explanation.guilty(frozenset(changes), fate, lambda part: not fate(part).startswith(WELL))
    assert found == frozenset({guilty})


def test_a_change_by_which_a_packet_only_leaves_elsewhere_does_not_hide_what_stops_it_there() -> None:
    elsewhere, stopping, _innocent = changes = _changes(3)
    fates = ("arrives", "arrives by another link", "stopped")

    def harm(part: Changes) -> int:
        return (2 if stopping in part else 1) if elsewhere in part else 0

    found = explanation.guilty(frozenset(changes), lambda part: fates[harm(part)], harm)
    assert found == frozenset({elsewhere, stopping})


def test_a_node_that_cannot_be_with_some_changes_is_no_loss() -> None:
    link, route, guilty = changes = _changes(3)

    def fate(part: Changes) -> str | None:
        if route in part and link not in part:
            return None
        return "stopped" if guilty in part else WELL

    assert _guilty(changes, fate) == {guilty.text}


def test_what_no_change_explains_is_said() -> None:
    assert _guilty(_changes(4), lambda part: "stopped") is None


def test_the_trials_of_one_guilty_change_of_a_thousand_are_few() -> None:
    changes, tried = _changes(1000), set[Changes]()

    def fate(part: Changes) -> str:
        tried.add(part)
        return "stopped" if changes[617] in part else WELL

    assert _guilty(changes, fate) == {"change 617"}
    assert len(tried) <= 40
