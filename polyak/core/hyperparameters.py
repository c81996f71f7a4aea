"""Hyper-parameters: how bad ones are refused, and how constructors show theirs."""

import inspect
from typing import Any


class HyperparameterError(ValueError, AssertionError):
    """A bad hyper-parameter. Also an AssertionError, which is what Stable-Baselines3 raises in most such places."""


def require(condition: bool, name: str, value: Any, fix: str) -> None:
    """Refuse a bad hyper-parameter.

    Raises:
        HyperparameterError: ``condition`` does not hold; the message names the argument, its value and the fix.
    """
    if not condition:
        raise HyperparameterError(f"{name}={value!r} cannot be used: {fix}")


class Signature:
    """``inspect.signature(SAC)`` and ``help(SAC)`` as a reader wants them: no ``InitVar``, no ``self``."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        parameters = list(inspect.signature(owner.__init__).parameters.values())[1:]  # type: ignore[misc]
        return inspect.Signature(
            [p.replace(annotation=getattr(p.annotation, "type", p.annotation)) for p in parameters]
        )
