"""Optimizers that torch does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class RMSpropTFLike(Optimizer):
    """RMSprop as TensorFlow 1 computes it: ``eps`` inside the square root, and the mean square starting at 1.

    With torch's own RMSprop the first steps are many times larger, which can upset A2C.

    Args:
        params: parameters, or groups of them.
        lr: learning rate; a 0-d tensor may be changed in place.
        alpha: decay of the running mean of squares.
        eps: added to the mean square before the root.
        weight_decay: L2 penalty.
        momentum: decay of the accumulated steps; 0 for none.
        centered: divide by the standard deviation of the gradient instead of its root mean square.

    Raises:
        ValueError: an argument is negative.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
        }
        titles = {"lr": "learning rate", "eps": "epsilon"}
        for name, value in defaults.items():
            if not value >= 0:
                raise ValueError(f"Invalid {titles.get(name, name)}: {name} must not be negative, got {value}.")
        super().__init__(params, {**defaults, "centered": centered})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for param, values in self.state.items():
            if "step" in values:  # a plain number in files of Stable-Baselines3
                values["step"] = torch.as_tensor(values["step"], dtype=torch.float32, device=param.device)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: computes the loss again, with gradients; its value is returned.

        Raises:
            RuntimeError: a sparse gradient.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._update(param, param.grad, group)
        return loss

    def _update(self, param: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if grad.is_sparse:
            raise RuntimeError("RMSpropTFLike does not support sparse gradients: use torch.optim.SparseAdam.")
        state = self.state[param]
        if not state:
            # A tensor on the parameter's device: a compiled step updates counter and parameter together, or neither.
            state["step"] = torch.zeros((), device=param.device)
            state["square_avg"] = torch.ones_like(param)
            if group["momentum"] > 0:
                state["momentum_buffer"] = torch.zeros_like(param)
            if group["centered"]:
                state["grad_avg"] = torch.zeros_like(param)
        state["step"] += 1

        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        alpha = group["alpha"]
        mean_square = state["square_avg"]
        mean_square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            state["grad_avg"].lerp_(grad, 1 - alpha)
            mean_square = mean_square - state["grad_avg"] ** 2
        step = grad / (mean_square + group["eps"]).sqrt()
        if group["momentum"] > 0:
            step = state["momentum_buffer"].mul_(group["momentum"]).add_(step)
        param.sub_(step * group["lr"])
