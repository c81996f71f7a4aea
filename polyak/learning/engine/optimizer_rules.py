"""Optimizer steps as plain tensor operations, so that a whole gradient step can become one graph.

torch's optimizers read numbers and look up dictionaries while they step. :class:`TracedOptimizer` computes only their
arithmetic, on their own state; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from polyak.nn.backends.tracing import UntraceableError
from polyak.nn.optim import RMSpropTFLike

State = Mapping[str, Tensor]
Rule = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[State], Tensor, Mapping[str, Any]], None]
"""(parameters, gradients, their states, the tensor of :func:`factors`, the group's options): updates parameters and
states."""


class UnsteppedError(UntraceableError):
    """Raised for an optimizer without state, which it creates in its first step."""


def adam(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], by: Tensor, options: Mapping[str, Any]
) -> None:
    """Adam, Kingma and Ba 2015 (arXiv:1412.6980) algorithm 1; weight decay is added to the gradient."""
    _adam(params, _with_decay(params, grads, options), states, by, options)


def adamw(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], by: Tensor, options: Mapping[str, Any]
) -> None:
    """Adam with decoupled weight decay, Loshchilov and Hutter 2019 (arXiv:1711.05101) algorithm 2."""
    if options["weight_decay"]:
        for param in params:
            param.mul_(1 - by[0] * options["weight_decay"])
    _adam(params, grads, states, by, options)


def _adam(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], by: Tensor, options: Mapping[str, Any]
) -> None:
    beta1, beta2 = options["betas"]
    rate, scale = by[1], by[2]
    for param, grad, state in zip(params, grads, states, strict=True):
        state["step"].add_(1)
        mean = state["exp_avg"].lerp_(grad, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        param.sub_(rate * mean / (square.sqrt() / scale + options["eps"]))


def radam(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], by: Tensor, options: Mapping[str, Any]
) -> None:
    """Adam that divides by the root of the second moment only once its variance is small enough, Liu et al. 2020
    (arXiv:1908.03265) algorithm 2; weight decay is added to the gradient."""
    beta1, beta2 = options["betas"]
    rate, scale, plain = by[1], by[2], by[3]
    for param, grad, state in zip(params, _with_decay(params, grads, options), states, strict=True):
        state["step"].add_(1)
        mean = state["exp_avg"].lerp_(grad, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        param.sub_(rate * mean * (scale / (square.sqrt() + options["eps"]) + plain))


def rectification(beta2: float, step: float) -> float:
    """Returns r_t of that algorithm: the smaller, the larger the variance of the second moment; 0 while that is
    infinite."""
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / (1 - beta2**step)
    if length <= 5:
        return 0.0
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))


def rmsprop(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], by: Tensor, options: Mapping[str, Any]
) -> None:
    """RMSprop (Tieleman and Hinton 2012) as in torch: ``eps`` outside the root."""
    _rmsprop(params, grads, states, by, options, lambda variance: variance.sqrt() + options["eps"])


def rmsprop_tf_like(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], by: Tensor, options: Mapping[str, Any]
) -> None:
    """RMSprop as in TensorFlow 1: ``eps`` inside the root."""
    _rmsprop(params, grads, states, by, options, lambda variance: (variance + options["eps"]).sqrt())


def _rmsprop(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[State],
    by: Tensor,
    options: Mapping[str, Any],
    root: Callable[[Tensor], Tensor],
) -> None:
    alpha = options["alpha"]
    for param, grad, state in zip(params, _with_decay(params, grads, options), states, strict=True):
        if isinstance(state["step"], Tensor):
            state["step"].add_(1)
        variance = state["square_avg"].mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if options["centered"]:
            mean = state["grad_avg"].lerp_(grad, 1 - alpha)
            variance = variance - mean * mean
        step = grad / root(variance)
        if options["momentum"]:
            step = state["momentum_buffer"].mul_(options["momentum"]).add_(step)
        param.sub_(by[0] * step)


def sgd(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], by: Tensor, options: Mapping[str, Any]
) -> None:
    """Stochastic gradient descent, with torch's momentum."""
    momentum = options["momentum"]
    for param, grad, state in zip(params, _with_decay(params, grads, options), states, strict=True):
        if momentum:
            running = state["momentum_buffer"].mul_(momentum).add_(grad, alpha=1 - options["dampening"])
            grad = grad + momentum * running if options["nesterov"] else running
        param.sub_(by[0] * grad)


def _with_decay(params: Sequence[Tensor], grads: Sequence[Tensor], options: Mapping[str, Any]) -> Sequence[Tensor]:
    decay = options["weight_decay"]
    return [grad + decay * param for param, grad in zip(params, grads, strict=True)] if decay else grads


RULES: dict[type[Optimizer], Rule] = {
    torch.optim.Adam: adam,
    torch.optim.AdamW: adamw,
    torch.optim.RAdam: radam,
    torch.optim.RMSprop: rmsprop,
    torch.optim.SGD: sgd,
    RMSpropTFLike: rmsprop_tf_like,
}
"""Optimizers with a rule; subclasses are excluded, since they may step differently."""


def _fused_adam(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], by: Tensor, options: Mapping[str, Any]
) -> None:
    _fused(torch._fused_adam_, params, grads, states, by, options)


def _fused_adamw(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], by: Tensor, options: Mapping[str, Any]
) -> None:
    _fused(torch._fused_adamw_, params, grads, states, by, options)


def _fused(
    kernel: Callable[..., Any],
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[State],
    by: Tensor,
    options: Mapping[str, Any],
) -> None:
    """Make a step by torch's kernel for all parameters together."""
    means, squares, steps = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step"))
    for step in steps:
        step.add_(1)
    beta1, beta2 = options["betas"]
    kernel(
        *(list(params), list(grads), means, squares, [], steps),
        lr=by[0], beta1=beta1, beta2=beta2, weight_decay=options["weight_decay"], eps=options["eps"],
        amsgrad=False, maximize=False,
    )  # fmt: skip


FUSED: dict[type[Optimizer], Rule] = {**RULES, torch.optim.Adam: _fused_adam, torch.optim.AdamW: _fused_adamw}
"""The rules with torch's fused kernels, which step all parameters of an optimizer at once."""


def factors(optimizer: Optimizer, group: Mapping[str, Any], params: Sequence[Tensor] | None = None) -> list[float]:
    """Returns the factors of a group's next step.

    They depend on the step count, and are computed outside of the graph: inside, the compiler would compute powers of
    Adam's decay rates again for every few parameters.

    Args:
        optimizer: owns the group.
        group: one of its groups.
        params: a subset of the group with equal step counts; None: the whole group.

    Returns:
        The learning rate; for Adam also lr / (1 - beta1**t) and sqrt(1 - beta2**t) of the next step t; for RAdam the
        latter is multiplied by r_t, and a fourth factor is 1 while r_t is 0, otherwise 0.
    """
    lr = float(group["lr"])
    if not _corrects_bias(optimizer):
        return [lr]
    step = 1.0
    for param in group["params"] if params is None else params:
        if state := optimizer.state.get(param):
            step += float(state["step"])
            break
    beta1, beta2 = group["betas"]
    rate, scale = lr / (1 - beta1**step), math.sqrt(1 - beta2**step)
    if type(optimizer) is not torch.optim.RAdam:
        return [lr, rate, scale]
    rectified = rectification(beta2, step)
    return [lr, rate, scale * rectified, float(rectified == 0)]


def cohorts(optimizer: Optimizer, group: Mapping[str, Any]) -> list[list[Tensor]]:
    """Returns a group's trainable parameters, partitioned by equal :func:`factors`: frozen ones miss steps."""
    free = [param for param in group["params"] if param.requires_grad]
    if not _corrects_bias(optimizer):
        return [free] if free else []
    parts: dict[float, list[Tensor]] = {}
    for param in free:
        parts.setdefault(float(optimizer.state.get(param, {}).get("step", -1.0)), []).append(param)
    return list(parts.values())


def device_factors(optimizer: Optimizer, group: Mapping[str, Any], lr: Tensor, t: Tensor | None) -> Tensor:
    """Returns :func:`factors` as a float32 tensor, computed on the device without synchronisation.

    Args:
        optimizer: owns the group.
        group: one of its groups.
        lr: [] the learning rate, float64: Adam's corrections are differences of numbers close to 1.
        t: [] the step count; only Adam's factors depend on it.
    """
    if t is None or not _corrects_bias(optimizer):
        return lr.float().reshape(1)
    step = t.double() + 1
    beta1, beta2 = group["betas"]
    rate, scale = lr / (1 - beta1**step), (1 - beta2**step).sqrt()
    if type(optimizer) is not torch.optim.RAdam:
        return torch.stack([lr, rate, scale]).float()
    longest = 2 / (1 - beta2) - 1  # as in rectification()
    length = longest - 2 * step * beta2**step / (1 - beta2**step)
    square = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    rectified = torch.where(length > 5, square, 0.0).sqrt()
    return torch.stack([lr, rate, scale * rectified, (length <= 5).double()]).float()


def _corrects_bias(optimizer: Optimizer) -> bool:
    return type(optimizer) in (torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam)


def check_traceable(optimizer: Optimizer, device: torch.device) -> None:
    """Refuse optimizers and options without a rule.

    Args:
        optimizer: with its state.
        device: of the parameters.

    Raises:
        UntraceableError: another optimizer, or an option without a rule.
        UnsteppedError: the optimizer has no state yet.
    """
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise UntraceableError(f"a function is hooked to the optimizer {type(optimizer).__name__}")
    if type(optimizer) not in RULES:
        raise UntraceableError(f"the optimizer {type(optimizer).__name__} is not one of {[c.__name__ for c in RULES]}")
    for group in optimizer.param_groups:
        for option in ("amsgrad", "maximize", "decoupled_weight_decay"):
            if group.get(option) and not (option == "decoupled_weight_decay" and type(optimizer) is torch.optim.AdamW):
                raise UntraceableError(f"the optimizer's option {option}={group[option]!r} has no rule")
        free = [p for p in group["params"] if p.requires_grad]
        if free and _is_stateful(optimizer, group) and not any(optimizer.state.get(p) for p in free):
            raise UnsteppedError(f"the optimizer {type(optimizer).__name__} has not stepped yet")
        counts = [optimizer.state[p]["step"] for p in free if "step" in optimizer.state.get(p, {})]
        if _corrects_bias(optimizer) and any(count.device != device for count in counts):
            option = "capturable" if type(optimizer) is torch.optim.RAdam else "fused"
            raise UntraceableError(
                f"the optimizer counts its steps on another device (optimizer_kwargs: {option}=True)"
            )


def _is_stateful(optimizer: Optimizer, group: Mapping[str, Any]) -> bool:
    return type(optimizer) is not torch.optim.SGD or group["momentum"] != 0


class TracedOptimizer:
    """Stands in for an optimizer while its step is traced.

    Args:
        optimizer: its rule and options are followed.
        params: for each cohort, see :func:`cohorts`, the tensors that stand for its parameters.
        states: for each cohort and parameter, the tensors that stand for its state.
        by: for each cohort, the tensor that stands for its :func:`factors`.
        groups: for each cohort, its group; None: each group is one cohort.
        rules: optimizer class -> rule.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        params: Sequence[Sequence[Tensor]],
        states: Sequence[Sequence[State]],
        by: Sequence[Tensor],
        groups: Sequence[Mapping[str, Any]] | None = None,
        rules: Mapping[type[Optimizer], Rule] = RULES,
    ) -> None:
        self._optimizer, self._rule = optimizer, rules[type(optimizer)]
        self._options = optimizer.param_groups if groups is None else groups
        self._states, self._by = states, by
        self.param_groups: list[dict[str, Any]] = [
            {"params": list(part), "l1": options.get("l1")} for part, options in zip(params, self._options, strict=True)
        ]
        self.stepped = False
        """Whether :meth:`step` was called."""

    @torch.no_grad()
    def step(self, unless: Tensor | None = None) -> None:
        """Update the parameters that have a gradient.

        Args:
            unless: [] bool; where true, nothing changes.

        Raises:
            UnsteppedError: a parameter has no state in the optimizer, for example since it was frozen until now.
        """
        self.stepped = True
        for part, states, by, options in zip(self.param_groups, self._states, self._by, self._options, strict=True):
            moved = [(p, p.grad, s) for p, s in zip(part["params"], states, strict=True) if p.grad is not None]
            params, grads, kept = [p for p, _, _ in moved], [g for _, g, _ in moved], [s for _, _, s in moved]
            if _is_stateful(self._optimizer, options) and not all(kept):
                raise UnsteppedError("the optimizer has yet to step some of its parameters")
            touched = [*params, *(t for state in kept for t in state.values() if isinstance(t, Tensor))]
            before = [t.clone() for t in touched] if unless is not None else []
            self._rule(params, grads, kept, by, options)
            if unless is not None:
                for old, tensor in zip(before, touched, strict=True):
                    tensor.copy_(torch.where(unless, old, tensor))
