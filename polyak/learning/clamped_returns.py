"""A warning where distributions of returns do not fit between their first and last atom."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from polyak.warning import advise

_LOOK_EVERY = 1_000
"""Gradient steps between two looks at how much is clamped."""
_TOO_MUCH = 0.25
"""Share of the targets' probability from which on clamping is worth a warning."""


def warn_of_clamping(model: Any, metrics: Mapping[str, list[Tensor]]) -> None:
    """Warn, once, if a good share of what a model learns towards lies outside of its atoms.

    Args:
        model: has ``v_min`` and ``v_max``, and has just made the gradient steps that ``metrics`` are about.
        metrics: of these steps; ``"clamped_share"`` is [] each, see :func:`~polyak.ops.distributional.clamped_share`.
    """
    shares, made = metrics["clamped_share"], model._n_updates
    if made // _LOOK_EVERY == (made - len(shares)) // _LOOK_EVERY:  # seldom, since a GPU waits for it
        return
    share = float(shares[-1])
    if share < _TOO_MUCH:
        return
    returns = [episode["r"] for episode in model.ep_info_buffer]
    met = f" Recent episodes returned {min(returns):.4g} to {max(returns):.4g} (undiscounted)." if returns else ""
    advise(
        "clamped returns",
        f"{share:.0%} of what {type(model).__name__} learns towards lies outside of its atoms, from "
        f"v_min={model.v_min:g} to v_max={model.v_max:g}, and counts as an end: it cannot distinguish such returns."
        f"{met} Set v_min and v_max so that discounted returns lie between them.",
    )
