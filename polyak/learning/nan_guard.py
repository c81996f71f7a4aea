"""Training stops at the first value that is not finite, and keeps the last good model: :class:`Guard` checks learned
values, :mod:`polyak.envs.nan_checks` actions, observations and rewards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from polyak.envs.nan_checks import SCALE, NonFiniteError
from polyak.learning.learner import Learner
from polyak.nn.compiled import plain_name
from polyak.warning import warn_user

UPDATES_PER_COPY = 500
"""Gradient steps between two copies of the learner: a copy takes as long as one or two of them."""
UPDATES_PER_WAIT = 100
"""Gradient steps between two checks of losses on an accelerator, which must synchronise."""


class Guard:
    """Checks a learner's values, and keeps a copy of it from when all of them were finite.

    Args:
        learner: its tensors and those of its optimizers are checked, copied and restored.
        rarely: check losses at intervals, even on the CPU; always true for devices that need synchronisation.

    Raises:
        NonFiniteError: a parameter is not finite from the start.
    """

    def __init__(self, learner: Learner, rarely: bool = False) -> None:
        self._learner = learner
        self._device = next((p.device for p in learner.parameters()), torch.device("cpu"))
        self._rarely = rarely or self._device.type != "cpu"
        self._looked = learner.steps
        self._constants: set[str] = set()
        self._constants = set(self.broken())  # a buffer of a user's network may hold infinities
        if lost := sorted(self._constants & {plain_name(name) for name, _ in learner.named_parameters()}):
            raise NonFiniteError(
                f"There is NaN or infinity in {_listed(lost)} before training begins. Load or make another model."
            )
        self._keep()

    def after_update(self, metrics: Mapping[str, Tensor]) -> None:
        """Check the losses of some gradient steps, and at intervals all learned values.

        Args:
            metrics: those whose names end with "loss" must be finite.

        Raises:
            NonFiniteError: a loss or a tensor of the learner is not finite.
        """
        steps = self._learner.steps
        if not self._rarely or steps - self._looked >= UPDATES_PER_WAIT:
            self._looked = steps
            for name, value in metrics.items():
                if name.endswith("loss") and not math.isfinite(value):
                    raise NonFiniteError(f"{name} is {float(value)} after {steps} gradient steps. {SCALE}")
        if steps - self.copied >= UPDATES_PER_COPY:
            self._renew_copy()

    def _renew_copy(self) -> None:
        """Copy the learner, all of whose values must be finite."""
        if broken := self.broken():
            steps = self._learner.steps
            raise NonFiniteError(f"After {steps} gradient steps {_listed(broken)} held NaN or infinity. {SCALE}")
        self._keep()

    def broken(self) -> list[str]:
        """Returns the names of the tensors of learner and optimizers that are not finite."""
        tensors = _tensors(self._learner)
        floats = {n: t for n, t in tensors.items() if t.is_floating_point() and t.numel() and n not in self._constants}
        largest = torch.stack([t.abs().max().to(self._device) for t in floats.values()]).tolist() if floats else []
        return [name for name, size in zip(floats, largest, strict=True) if not math.isfinite(size)]

    @torch.no_grad()
    def _keep(self) -> None:
        self.copied = self._learner.steps
        """The learner's gradient steps at the copy."""
        self._copy = {name: tensor.clone() for name, tensor in _tensors(self._learner).items()}

    @torch.no_grad()
    def put_back(self) -> bool:
        """Restore the copy. Returns False if the learner has other tensors by now."""
        tensors = _tensors(self._learner)
        if any(name not in tensors or tensors[name].shape != copy.shape for name, copy in self._copy.items()):
            return False
        for name, copy in self._copy.items():
            tensors[name].copy_(copy)
        for name in tensors.keys() - self._copy.keys():  # the state of an optimizer that had none
            self._learner.optimizers[name.split(" optimizer, ")[0]].state.clear()
        return True


@contextmanager
def guarding(guard: Guard | None) -> Iterator[None]:
    """Train a learner under ``guard`` inside the block; afterwards all its values are finite.

    Raises:
        NonFiniteError: a value is not finite; the last good state has been restored, if the message says so. If Ctrl-C
            or ``sys.exit()`` ends the block, that is raised, and the message becomes a warning.
    """
    try:
        yield
    except BaseException as error:
        _repair(guard, error)
        raise
    else:
        _repair(guard, None)


def _repair(guard: Guard | None, error: BaseException | None) -> None:
    if guard is None or not (broken := guard.broken()):
        return
    steps = guard._learner.steps
    found = f"{error} " if isinstance(error, Exception) else ""
    found += f"Gradient step {steps} of the learner left NaN or infinity in {_listed(broken)}. "
    if guard.put_back():
        found += f"Everything learned was put back to what it was after gradient step {guard.copied}, and can be saved."
    else:
        found += "It could not be put back: networks or optimizers were exchanged during training."
    if error is not None and not isinstance(error, Exception):
        warn_user(found)  # Ctrl-C is not replaced
        return
    raise NonFiniteError(found) from error


def broken_parameters(model: Any) -> list[str]:
    """Returns the names of the parameters of a model's networks that hold NaN or infinity; empty without networks."""
    networks = getattr(model, "learner", None)
    if not isinstance(networks, torch.nn.Module):
        networks = getattr(model, "policy", None)
    if not isinstance(networks, torch.nn.Module):
        return []
    return [name for name, parameter in networks.named_parameters() if not bool(torch.isfinite(parameter).all())]


def _tensors(learner: Learner) -> dict[str, Tensor]:
    """Returns every tensor that gradient steps change: those of the networks and the optimizers' state."""
    tensors = learner.networks()
    for name, optimizer in learner.optimizers.items():
        for i, state in enumerate(optimizer.state.values()):
            for key, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"{name} optimizer, {key} of parameter {i}"] = value
    return tensors


def _listed(names: list[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
