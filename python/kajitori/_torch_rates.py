# SPDX-License-Identifier: Apache-2.0
"""Learning rates of torch optimizers, through their schedules.

To set a rate is to move the schedule: from now on it gives what it would have given, in proportion to
the new rate. Most schedulers of torch multiply the rate that they find, so it is enough to write that.
Those that compute it anew from rates of their own (LambdaLR, OneCycleLR, ...) would replace what was
written at their next step, so these are scaled, too. What cannot be moved is refused, and nothing is
changed then.

Schedulers need not be told: those of an optimizer are looked for when its rate is set.
"""

from __future__ import annotations

import gc
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from kajitori._errors import OutOfRangeError, UnsupportedError
from kajitori._values import Param

Place = tuple[Any, Any]
"""A list or dict, and the index or key of a rate in it."""

_FOUND = (
    lr_scheduler.MultiplicativeLR,
    lr_scheduler.StepLR,
    lr_scheduler.MultiStepLR,
    lr_scheduler.ConstantLR,
    lr_scheduler.LinearLR,
    lr_scheduler.ExponentialLR,
    lr_scheduler.PolynomialLR,
    lr_scheduler.CosineAnnealingLR,
)
"""They go on from the rate that they find."""

_OWN = (
    lr_scheduler.LambdaLR,
    lr_scheduler.CosineAnnealingWarmRestarts,
    lr_scheduler.CyclicLR,
    lr_scheduler.OneCycleLR,
)
"""They compute it from rates of their own."""


def parameters(optimizers: Mapping[str, Optimizer], schedulers: Iterable[Any] = ()) -> list[Param]:
    """`lr` for all groups; beside it, where there are several, `lr.NAME` for each optimizer and `lr.0`
    or `lr.NAME.0` for each of its groups. `optimizers` has the name "" for an only one."""
    known = tuple(schedulers)
    found = []
    if optimizers:
        found.append(_param("lr", tuple(optimizers.values()), known, "learning rate"))
    for name, optimizer in optimizers.items():
        of = f"lr.{name}" if name else "lr"
        if name and len(optimizers) > 1:
            found.append(_param(of, (optimizer,), known, f"learning rate of {name}"))
        n = len(optimizer.param_groups)
        for k in range(n if n > 1 else 0):
            help = f"learning rate of parameter group {k}"
            found.append(_param(f"{of}.{k}", (optimizer,), known, help, k))
    return found


def _param(
    name: str, optimizers: tuple, known: tuple, help: str, group: int | None = None
) -> Param:
    def groups() -> list[tuple[Optimizer, int]]:
        """All that there are now, or the one."""
        indices = range(group, group + 1) if group is not None else None
        return [(o, k) for o in optimizers for k in indices or range(len(o.param_groups))]

    def set(value: float) -> None:
        set_rate(groups(), value, known)

    return Param(name=name, get=lambda: get_rate(*groups()[0]), set=set, min=0, help=help)


def get_rate(optimizer: Optimizer, index: int = 0) -> float:
    """The rate of a parameter group: a float32 in a tensor as the shortest decimal that is it."""
    rate = optimizer.param_groups[index]["lr"]
    if not isinstance(rate, torch.Tensor):
        return float(rate)
    for digits in range(1, 18):
        decimal = float(f"{float(rate):.{digits}g}")
        if torch.tensor(decimal, dtype=rate.dtype) == rate.detach().cpu():
            return decimal
    return float(rate)


def set_rate(
    groups: list[tuple[Optimizer, int]], value: float, schedulers: Iterable[Any] = ()
) -> None:
    """Sets the first group's rate, and multiplies those of the others by the same factor. Raises
    `UnsupportedError` where a scheduler would not have it, `OutOfRangeError`."""
    first = get_rate(*groups[0])
    moves = []
    for optimizer, index in groups:
        old = get_rate(optimizer, index)
        new = value if old == first or not first else old * (value / first)
        _check_range(optimizer.param_groups[index]["lr"], new)
        moves.append((optimizer, index, old, new))
    known = tuple(schedulers)
    found = {id(optimizer): optimizer for optimizer, _ in groups}
    found = {key: schedulers_of(optimizer, known) for key, optimizer in found.items()}
    changes = _Changes()
    try:
        for optimizer, index, old, new in moves:
            _move(optimizer, index, old, new, found[id(optimizer)], changes)
    except BaseException:
        changes.take_back()
        raise


def schedulers_of(optimizer: Optimizer, known: Iterable[Any] = ()) -> list[Any]:
    """All schedulers of an optimizer: those that are `known`, and those that can be found."""
    found = [one for one in known if getattr(one, "optimizer", optimizer) is optimizer]
    for one in gc.get_objects():
        if issubclass(type(one), LRScheduler) and vars(one).get("optimizer") is optimizer:
            found.append(one)
    return list({id(one): one for one in found}.values())


class _Changes:
    """What was written, so that it can be taken back."""

    def __init__(self) -> None:
        self._old: list[tuple[Place, float]] = []

    def write(self, place: Place, value: float) -> None:
        container, key = place
        self._old.append((place, float(container[key])))
        _write(container, key, value)

    def take_back(self) -> None:
        while self._old:
            (container, key), value = self._old.pop()
            _write(container, key, value)


def _write(container: Any, key: Any, value: float) -> None:
    if isinstance(container[key], torch.Tensor):
        with torch.no_grad():
            container[key].fill_(value)
    else:
        container[key] = value


def _check_range(rate: Any, value: float) -> None:
    if not math.isfinite(value) or (
        isinstance(rate, torch.Tensor) and not torch.tensor(value, dtype=rate.dtype).isfinite()
    ):
        dtype = rate.dtype if isinstance(rate, torch.Tensor) else "a float"
        raise OutOfRangeError(f"{value} is more than {dtype} can hold")


def _move(
    optimizer: Optimizer,
    index: int,
    old: float,
    new: float,
    schedulers: list[Any],
    changes: _Changes,
) -> None:
    group = optimizer.param_groups[index]
    found = leaves(schedulers)
    before = [_probe(leaf, index) for leaf, _ in found]
    changes.write((group, "lr"), new)
    scaled: list[Place] = []
    for leaf, is_active in found:
        for place in _places(leaf, group, index):
            if not any(place[0] is other[0] and place[1] == other[1] for other in scaled):
                _scale(leaf, is_active, place, old, new, changes)
                scaled.append(place)
    for (leaf, is_active), was in zip(found, before, strict=True):
        if is_active and was is not None and not _is_moved(was, _probe(leaf, index), old, new):
            raise UnsupportedError(
                f"the schedule {type(leaf).__name__} would replace it at its next step, and its "
                'form is not known; give parameters={"lr": (get, set)} that moves it'
            )
    for scheduler in [*schedulers, *(leaf for leaf, _ in found)]:
        if isinstance(getattr(scheduler, "_last_lr", None), list):
            changes.write((scheduler._last_lr, index), new)


def leaves(schedulers: Iterable[Any], is_active: bool = True) -> list[tuple[Any, bool]]:
    """Schedulers without those that are made of others; with each, whether it is its turn."""
    found: dict[int, tuple[Any, bool]] = {}
    for one in schedulers:
        inner = getattr(one, "_schedulers", None)
        if inner is None:
            found.setdefault(id(one), (one, is_active))
            continue
        now = None
        if isinstance(one, lr_scheduler.SequentialLR):
            now = bisect_right(one._milestones, one.last_epoch)
        for k, part in enumerate(inner):
            for leaf, active in leaves([part], is_active and now in (None, k)):
                found[id(leaf)] = (leaf, active)  # found alone, too: this is what it is
    return list(found.values())


def _has_form_of(scheduler: Any, kinds: tuple[type, ...]) -> bool:
    """Of one of these kinds, or of a subclass that computes as it does."""
    return any(
        isinstance(scheduler, kind) and type(scheduler).get_lr is kind.get_lr for kind in kinds
    )


def _is_plateau(scheduler: Any) -> bool:
    return isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)


def _places(scheduler: Any, group: dict[str, Any], index: int) -> list[Place]:
    """The rates that a scheduler computes with."""
    if not isinstance(scheduler, LRScheduler):
        raise UnsupportedError(
            f"the schedule {type(scheduler).__name__} is none of torch.optim.lr_scheduler; give "
            'parameters={"lr": (get, set)} that moves it'
        )
    if _is_plateau(scheduler):
        return []
    places: list[Place] = [(scheduler.base_lrs, index), (group, "initial_lr")]
    if isinstance(scheduler, lr_scheduler.CyclicLR):
        places.append((scheduler.max_lrs, index))
    if isinstance(scheduler, lr_scheduler.OneCycleLR):
        places += [(group, "max_lr"), (group, "min_lr")]
    return places


def _scale(
    scheduler: Any, is_active: bool, place: Place, old: float, new: float, changes: _Changes
) -> None:
    """A schedule that falls towards `eta_min` goes on doing so, from the new rate."""
    floor = float(getattr(scheduler, "eta_min", 0.0)) if is_active else 0.0
    if old == floor or new == floor:
        if is_active and not _has_form_of(scheduler, _FOUND):
            name = type(scheduler).__name__
            why = f"gives {floor:g} now" if old == floor else f"would give {floor:g} for ever"
            raise UnsupportedError(f"the schedule {name} {why}, so it cannot be moved to {new:g}")
        return  # it goes on from what it finds
    container, key = place
    if key in container if isinstance(container, dict) else True:
        value = float(container[key])
        changes.write(place, floor + (value - floor) * ((new - floor) / (old - floor)))


def _probe(scheduler: Any, index: int) -> float | None:
    """What a scheduler of a form that is not known computes now; None for one of torch's."""
    if _is_plateau(scheduler) or _has_form_of(scheduler, _FOUND + _OWN):
        return None
    if not isinstance(scheduler, LRScheduler):
        return None  # refused by _places
    was = scheduler._get_lr_called_within_step
    scheduler._get_lr_called_within_step = True  # else it warns
    try:
        return float(scheduler.get_lr()[index])
    finally:
        scheduler._get_lr_called_within_step = was


def _is_moved(was: float, now: float | None, old: float, new: float) -> bool:
    return now is not None and bool(old) and math.isclose(now, was * (new / old), rel_tol=1e-6)


def stretch(schedulers: Iterable[Any], old: int, new: int) -> dict[str, str]:
    """Tells schedulers whose end is that of the training that it has `new` epochs instead of `old`.
    What became of each; `UnsupportedError` when one would end the training by an exception."""
    plans: list[tuple[Callable[[], None], str, str]] = []
    for leaf, _ in leaves(schedulers):
        name, key = type(leaf).__name__, _length_of(leaf)
        length = getattr(leaf, key, 0)
        if key and length % old == 0:
            longer = length // old * new
            plans.append((_stretching(leaf, key, longer), name, f"{key} {length} -> {longer}"))
        elif isinstance(leaf, lr_scheduler.OneCycleLR):
            raise UnsupportedError(
                f"OneCycleLR ends the training by an exception after its {length} steps, which are "
                f"no multiple of the {old} epochs"
            )
        else:
            plans.append((lambda: None, name, f"goes on as it is{_warning(leaf)}"))
    for act, _, _ in plans:
        act()
    return {name: text for _, name, text in plans}


def _length_of(scheduler: Any) -> str:
    """The attribute that says where a schedule ends, "" where it does not."""
    if isinstance(scheduler, lr_scheduler.CosineAnnealingLR):
        return "T_max"
    if isinstance(scheduler, lr_scheduler.PolynomialLR):
        return "total_iters"
    return "total_steps" if isinstance(scheduler, lr_scheduler.OneCycleLR) else ""


def _stretching(scheduler: Any, key: str, length: int) -> Callable[[], None]:
    def act() -> None:
        setattr(scheduler, key, length)
        if isinstance(scheduler, lr_scheduler.OneCycleLR):
            scheduler._schedule_phases[-1]["end_step"] = length - 1

    return act


def _warning(scheduler: Any) -> str:
    if isinstance(scheduler, lr_scheduler.CosineAnnealingLR):
        return f": after T_max {scheduler.T_max} its rate rises again"
    if isinstance(scheduler, lr_scheduler.PolynomialLR):
        return f": after total_iters {scheduler.total_iters} its rate is 0"
    return ""
