# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several modules as one transaction: their parts as one, and the transaction that a profile's options stand for."""

from __future__ import annotations

import contextlib
import importlib
import os
import types
import typing as t
from functools import partial

from .._core import option
from .._core.errors import DatapathError, Invalid, WrongVariables
from .._core.option import Values
from .._core.parts import Effects, Parts, Request, requested
from .._core.plan import Outcome, Resource, is_desired
from .._files.files import Files
from .._platform.machine_guards import require_own_root
from .._platform.node_mode import ModeVerdict
from .._platform.process import Runner
from .._profiles import composition, mode_backend
from .._profiles.composition import Facts, Model, Step
from .._profiles.owned_objects_resource import OwnedObjects


class Transaction(t.NamedTuple):
    """steps: the modules in the order in which they are applied.

    verdict: whether the host is a running node or an image. node: facts of the node, for the result. accepts_later: whether an
    interface that the node does not have yet is accepted. profile: its name; empty for modules in a playbook.
    """

    steps: t.Sequence[Step]
    verdict: ModeVerdict
    node: t.Mapping[str, t.Any]
    accepts_later: bool
    profile: str = ""


class Profile(t.NamedTuple):
    """The profile of a role. observe: from its backend; takes the options, whether the host is an image, and a runner."""

    name: str
    model: Model
    observe: t.Callable[[Values, bool, Runner], t.Any]

    def transaction(self, request: Request, options: Values) -> Transaction:
        """Raise WrongVariables before the node is observed, and DatapathError."""
        values = self.checked(options)
        verdict = mode_backend.verdict(values["mode"], request.run)
        with self._own_names():
            sentences = [*self.model.conflicts(values, verdict.is_image)]
            if sentences:
                raise WrongVariables("\n".join(sentences))
            facts: Facts = self.model.facts(values, self.observe(values, verdict.is_image, request.run))
        for sentence in facts.warnings():
            request.warn(sentence)
        steps = [_without_none(step) for step in self.model.plan(values, facts)]
        return Transaction(steps, verdict, facts.report(), bool(values.get("later_interfaces")), self.name)

    def checked(self, options: Values) -> dict[str, t.Any]:
        """Return the values of the options with their types. Raises WrongVariables."""
        values, errors = option.read(self.model.OPTIONS, options, self.model.UNDO)
        unknown = [Invalid(name, value, "left out") for name, value in options.items() if name not in self.model.OPTIONS]
        if errors or unknown:
            raise WrongVariables("\n".join(f"{self.name}_{error}" for error in (*unknown, *errors)))
        return values

    @contextlib.contextmanager
    def naming(self) -> t.Iterator[None]:
        """Turn an error of a module's option into one of the role's variable that the module got."""
        try:
            yield
        except Invalid as error:
            source = option.source(self.model.OPTIONS, error)
            if source is None:
                raise
            raise WrongVariables(f"{self.name}_{source}") from None

    @contextlib.contextmanager
    def _own_names(self) -> t.Iterator[None]:
        try:
            yield
        except Invalid as error:
            raise WrongVariables(f"{self.name}_{error}") from None


def _without_none(step: Step) -> Step:
    module, options = step
    return module, {name: value for name, value in options.items() if value is not None}


def parts(request: Request, transaction: Transaction) -> Parts:
    """Return the parts of all modules as one. Raises DatapathError."""
    owned = OwnedObjects(Files(), transaction.profile, transaction.steps)
    for sentence in owned.kept():
        request.warn(sentence)
    transaction = transaction._replace(steps=owned.steps)
    built = list(_built(request, transaction))
    stages = owned.around(list(_stages(built)))
    every = [resource for stage in stages for resource in stage]
    guards = [guard for _module, _request, contribution in built for guard in contribution.guards]
    guards.insert(0, owned.guard)
    verdict = transaction.verdict
    if any(called.params.get("immediate") for _module, called, _parts in built):
        guards.insert(0, partial(require_own_root, verdict.reason.rstrip("."), "Set mode to image"))

    def report(outcome: Outcome) -> dict[str, t.Any]:
        results, lines = dict[str, t.Any](), list[str]()
        for module, called, contribution in built:
            result = outcome.of(contribution.resources)
            results[module] = {"changed": result.changed, **contribution.report(result)}
            lines.append(_line(module, called, result))
        kernel = {} if verdict.is_image else {"kernel": os.uname().release}
        mode = {"is_image": verdict.is_image, "is_running": not verdict.is_image, "reason": verdict.reason}
        node = {**mode, **kernel, **transaction.node}
        plan = [{module: options} for module, options in transaction.steps]
        return {"node": node, "plan": plan, "summary": lines, **results}

    groundwork = [resource for _module, _request, contribution in built for resource in contribution.groundwork]
    return Parts(every, guards, report, groundwork, stages, diff=Outcome.diff_by_object)


Built = tuple[str, Request, Parts]  # a module, its request, and its parts on the planes that it selects


def _stages(built: t.Sequence[Built]) -> t.Iterator[list[Resource]]:
    """Yield the resources of each module, in order. Groundwork comes first; if it is removed, it comes last."""
    ground = {
        module: [resource for resource in contribution.resources if resource in contribution.groundwork]
        for module, _request, contribution in built
    }
    undone = {module for module, called, _parts in built if composition.undoes(module, called.params)}
    yield from (ground[module] for module, _request, _parts in built if module not in undone)
    yield from (
        [resource for resource in contribution.resources if resource not in contribution.groundwork]
        for _module, _request, contribution in built
    )
    yield from (ground[module] for module, _request, _parts in built if module in undone)


def _built(request: Request, transaction: Transaction) -> t.Iterator[Built]:
    """Raise Invalid for a wrong option of any module before another error of another one."""
    calls = [(module, _requested(request, module, options, transaction)) for module, options in transaction.steps]
    earlier, trouble = Effects(), list[DatapathError]()
    for module, called in calls:
        earlier = earlier.then(_announced(module, called))
    for module, called in calls:
        called.earlier = earlier
        try:
            planes, contribution = called.planes(), _part(module).parts(called)
            if not (transaction.verdict.is_image or transaction.accepts_later or composition.undoes(module, called.params)):
                mode_backend.check_links(composition.interfaces(module, called.params))
        except Invalid as error:
            raise error.inside(module) from None
        except DatapathError as error:
            trouble.append(error)
            continue
        contribution = contribution._replace(
            resources=[resource for resource in contribution.resources if resource.plane in planes]
        )
        earlier = earlier.then(contribution.effects)
        if not trouble:
            yield module, called, contribution
    if trouble:
        raise trouble[0]


def _requested(request: Request, module: str, options: t.Mapping[str, t.Any], transaction: Transaction) -> Request:
    """Return the options with their types and defaults. Raises Invalid."""
    part, arguments = _part(module), dict(options)
    if "immediate" in part.OPTIONS:
        arguments.setdefault("immediate", not transaction.verdict.is_image)
    try:
        return requested(part, arguments, request)
    except Invalid as error:
        raise error.inside(module) from None


def _announced(module: str, called: Request) -> Effects:
    """Return the effects that the modules before it must know, too."""
    announced: t.Callable[[Request], Effects] = getattr(_part(module), "announced", lambda _called: Effects())
    return announced(called)


def _line(module: str, called: Request, result: Outcome) -> str:
    """Return the line of the summary about a module's resources."""
    changed = [name for resource, _plan in result.plans for name in resource.name.split(", ")]
    is_undone = composition.undoes(module, called.params)
    kept = [
        name
        for resource, plan in result.surveyed
        if not plan.steps and not is_undone and is_desired(resource)
        for name in resource.name.split(", ")
    ]
    texts = [
        f"{word} {', '.join(dict.fromkeys(names))}" for word, names in (("changed", changed), ("as desired:", kept)) if names
    ]
    return f"{module} ({called.params['state']}): {'; '.join(texts) or 'nothing to do'}"


def _part(module: str) -> types.ModuleType:
    """Return the file of the module's parts. Imported here, because a run needs few of them."""
    return importlib.import_module(f".{module}", __package__)
