"""Training stops at the first value that is not finite, and leaves the last good model: :class:`Guard` looks at what is
learned, :mod:`polyak.envs.nan_checks` at what goes to the environments and comes from them."""

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
"""Gradient steps between two looks at losses on an accelerator, which must wait for it."""


class Guard:
    """Looks at what a learner learns, and keeps a copy of it from when all of it was finite.

    Args:
        learner: whose tensors, and those of its optimizers, are looked at, copied and put back.
        rarely: look at losses now and then only, also on the CPU; on a device it is always so, which the host has to
            wait for.

    Raises:
        NonFiniteError: a parameter is not finite from the start.
    """

    def __init__(self, learner: Learner, rarely: bool = False) -> None:
        self._learner = learner
        self._device = next((p.device for p in learner.parameters()), torch.device("cpu"))
        self._rarely = rarely or self._device.type != "cpu"
        self._looked = learner.steps
        self._constants: set[str] = set()
        self._constants = set(self.broken())  # a buffer of a user's network may hold infinities, as a mask
        if lost := sorted(self._constants & {plain_name(name) for name, _ in learner.named_parameters()}):
            raise NonFiniteError(
                f"There is NaN or infinity in {_listed(lost)} before training begins. Load or make another model."
            )
        self._keep()

    def after_update(self, metrics: Mapping[str, Tensor]) -> None:
        """Look at the losses of some gradient steps, and sometimes at all that was learned.

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
        """Copy the learner, all of which must be finite."""
        if broken := self.broken():
            steps = self._learner.steps
            raise NonFiniteError(f"After {steps} gradient steps {_listed(broken)} held NaN or infinity. {SCALE}")
        self._keep()

    def broken(self) -> list[str]:
        """Names of the tensors of learner and optimizers that are not finite."""
        tensors = _tensors(self._learner)
        floats = {n: t for n, t in tensors.items() if t.is_floating_point() and t.numel() and n not in self._constants}
        largest = torch.stack([t.abs().max().to(self._device) for t in floats.values()]).tolist() if floats else []
        return [name for name, size in zip(floats, largest, strict=True) if not math.isfinite(size)]

    @torch.no_grad()
    def _keep(self) -> None:
        self.copied = self._learner.steps
        """Gradient steps of the learner when it was copied."""
        self._copy = {name: tensor.clone() for name, tensor in _tensors(self._learner).items()}

    @torch.no_grad()
    def put_back(self) -> bool:
        """Give the learner what it had when it was copied; False if it is made of other tensors by now."""
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
    """While the block runs, a learner learns under ``guard``; afterwards all of it is finite.

    Raises:
        NonFiniteError: it is not; the last good state has been put back, as far as the message says. Where Ctrl-C or
            ``sys.exit()`` ends the block, that is raised, and a warning has the message.
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
        warn_user(found)  # Ctrl-C stays what it is
        return
    raise NonFiniteError(found) from error


def broken_parameters(model: Any) -> list[str]:
    """Names of the parameters of a model's networks that hold NaN or infinity; none of a model without networks."""
    networks = getattr(model, "learner", None)
    if not isinstance(networks, torch.nn.Module):
        networks = getattr(model, "policy", None)
    if not isinstance(networks, torch.nn.Module):
        return []
    return [name for name, parameter in networks.named_parameters() if not bool(torch.isfinite(parameter).all())]


def _tensors(learner: Learner) -> dict[str, Tensor]:
    """Every tensor that gradient steps change: those of the networks and the optimizers' state."""
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
