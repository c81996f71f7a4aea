"""Acting while experience is collected: numpy observations in, numpy actions out, without autograd or module calls.

For a few observations and a small network nearly all the time of a torch forward pass is overhead. Where the network
that acts is a plain chain of linear layers and activations, :class:`ArrayActor` repeats it with numpy on views of the
same weights. It draws from torch's global generator what the distributions draw, in the same order, so that a seed
gives the same training either way. :class:`Acting` says whether that can be done now.

Shape letters: B batch, F features, A action dimensions, N outputs of the chain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from polyak.envs.finite import is_finite
from polyak.envs.spaces import is_image_space
from polyak.nn.fast.array_layers import Call, Head, leaves, network
from polyak.nn.fast.watch import Watch
from polyak.nn.networks.encoders import one_hot, to_column, to_float
from polyak.nn.networks.noisy import NoisyLinear
from polyak.nn.networks.recurrent import Recurrent

Method = TypeVar("Method", bound=Callable[..., Any])


def plain(method: Method) -> Method:
    """Mark a policy's or network's method as one that :class:`ArrayActor` repeats.

    An override in a subclass, or a function assigned in its place, lacks the mark, so that actions come through torch.
    """
    method.plain_acting = True  # type: ignore[attr-defined]
    return method


def is_plain(owner: object, *methods: str) -> bool:
    """Whether those of these methods that an object has are marked as :func:`plain`."""
    found = (getattr(owner, name, None) for name in methods)
    return all(method is None or getattr(method, "plain_acting", False) is True for method in found)


class Chain(NamedTuple):
    """A policy's acting network: modules applied one after another to the flat observations, and what ends it."""

    owners: tuple[nn.Module, ...]
    """Modules in whose attributes the others are looked up, the policy first."""
    layers: tuple[nn.Module, ...]
    head: Callable[[Tensor, tuple[int, ...]], Head]
    """Called with the tensor [B, N] that the layers fill, and the shape of one action."""
    weights: tuple[nn.Module | Tensor, ...] = ()
    """Further linear layers, activations and parameters, which the head reads."""
    memories: Mapping[str, Recurrent] = MappingProxyType({})
    """Those among the layers that remember, by how the names of their parts of the policy's memory begin."""
    besides: tuple[nn.Module, ...] = ()
    """Layers that also read the observations, one after another, only to remember them."""


class Acting:
    """The quick way to the actions of one policy, while there is one.

    Args:
        policy: whose actions.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self._arrays: ArrayActor | None = None
        self._looked = False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.policy,)  # a copy of a model looks at the copy's weights

    def prepare(self, obs: Any) -> None:
        """Look for the quick way to actions for observations like these [B, ...]."""
        self.refresh()
        if self._arrays is not None and type(obs) is np.ndarray:
            self._arrays.plan_for(obs)

    def begin(self) -> None:
        """A series of actions begins: the first of them looks closely, those after it only at what they rely on."""
        self._looked = False

    def refresh(self) -> None:
        """Look closely whether there is a quick way."""
        if self._arrays is None or not self._arrays.unchanged():
            self._arrays = array_actor(self.policy)
        self._looked = True

    def __call__(
        self,
        obs: Any,
        deterministic: bool = False,
        masks: np.ndarray | None = None,
        memory: Mapping[str, Tensor] | None = None,
    ) -> np.ndarray | None:
        """Finite observations [B, ...], and masks [B, M] of what is allowed or None -> new array of actions [B, ...] in
        the network's units. ``memory``: of a policy that has one, which is :meth:`remembered` afterwards.

        Returns:
            the actions; ``None`` where only torch gives them.

        Raises:
            ValueError: an observation is too large for float32.
        """
        if not self._looked:
            self.refresh()
        elif self._arrays is not None and not self._arrays.current():
            self._arrays = array_actor(self.policy)
        arrays = self._arrays
        return None if arrays is None else arrays.act(obs, deterministic, masks, memory)

    def remembered(self) -> dict[str, Tensor]:
        """New tensors: the memory after the last step."""
        assert self._arrays is not None
        return self._arrays.remembered()


def array_actor(policy: Any) -> ArrayActor | None:
    """An :class:`ArrayActor` for the policy as it is now; ``None`` if only torch gives its actions."""
    found = readable_chain(policy)
    return None if found is None else ArrayActor(policy, *found)


def readable_chain(policy: Any) -> tuple[Chain, Watch] | None:
    """The network behind the policy's actions as it is now, and what notices that it is no longer; ``None`` if only
    torch gives its actions."""
    if not is_plain(policy, "obs_to_tensor", "preprocess", "decide") or is_image_space(policy.observation_space):
        return None
    chain = policy.acting_chain()
    if chain is None or not all(map(_preprocesses_plainly, chain.owners)):
        return None
    parts = (part for part in chain.weights if isinstance(part, nn.Module))
    if leaves((*chain.layers, *chain.besides)) is None or leaves(parts) is None:
        return None
    watch = _watch(chain)
    return (chain, watch) if _readable(watch) else None


class ArrayActor:
    """The acting network on views of the policy's weights, so that steps of the optimizer are seen.

    Args:
        policy: whose network it is.
        chain: the network.
        watch: notices when the views are no longer the policy's network.
    """

    def __init__(self, policy: Any, chain: Chain, watch: Watch) -> None:
        self._policy, self._chain = policy, chain
        self.current, self.unchanged = watch.current, watch.unchanged
        self._obs_shape: tuple[int, ...] = tuple(policy.observation_space.shape)
        self._action_shape: tuple[int, ...] = policy.codec.shape
        self._one_hot = _OneHot.of(policy)
        self._kinds = "fiub" if self._one_hot is None else "iu"
        self._draws = any(isinstance(part, NoisyLinear) for layer in chain.layers for part in layer.modules())
        self._plans: dict[int, Plan] = {}
        self._quiet: dict[int, Plan] = {}
        self._plan: Plan
        self._batch_shape: tuple[int, ...] | None = None
        self._dtype: np.dtype | None = None
        self._wide = False

    def act(
        self,
        obs: Any,
        deterministic: bool = False,
        masks: np.ndarray | None = None,
        memory: Mapping[str, Tensor] | None = None,
    ) -> np.ndarray | None:
        """Finite observations [B, ...], and masks [B, M] of what is allowed or None -> new array of actions [B, ...].

        Returns:
            the actions; ``None`` if ``obs`` is not a batch of numbers, or masks are not for these actions, and so for
            the policy to convert or to refuse.

        Raises:
            ValueError: an observation is too large for float32.
        """
        if type(obs) is not np.ndarray:
            return None
        if (obs.shape != self._batch_shape or obs.dtype != self._dtype) and not self.plan_for(obs):
            return None
        plan = self._plan
        if deterministic and self._draws:
            plan = self._quiet_plan(len(obs))
        inputs, calls, head, memories = plan
        for name, before in (memory or {}).items():
            memories[name].copy_(before)
        if masks is not None and not (head.takes_masks and self._policy.heeds_masks):
            return None
        if self._one_hot is not None:
            if not self._one_hot(obs, inputs):
                return None
        elif self._wide:  # beyond float32 it becomes infinite
            with np.errstate(over="ignore", invalid="ignore"):
                inputs[...] = obs
                refused = not is_finite(inputs)
            if refused:
                self._policy.obs_to_tensor(obs)  # raises, naming the entry
        else:
            inputs[...] = obs
        for call in calls:
            call()
        if masks is not None:
            head.allow(masks)
        return head.mode() if deterministic else head.sample()

    def remembered(self) -> dict[str, Tensor]:
        """New tensors: the memory after the last step."""
        return {name: value.clone() for name, value in self._plan.memories.items()}

    def plan_for(self, obs: np.ndarray) -> bool:
        """Make the plan for observations like this one the present plan; False if they cannot have one."""
        if obs.ndim == 0 or obs.shape[1:] != self._obs_shape or obs.size == 0 or obs.dtype.kind not in self._kinds:
            return False
        if len(obs) not in self._plans:
            self._plans[len(obs)] = self._make_plan(len(obs))
        self._plan, self._batch_shape, self._dtype = self._plans[len(obs)], obs.shape, obs.dtype
        self._wide = obs.dtype.kind == "f" and obs.dtype.itemsize > 4
        return True

    def _quiet_plan(self, batch: int) -> Plan:
        """Without the noise of noisy layers."""
        if batch not in self._quiet:
            self._quiet[batch] = self._make_plan(batch, draws=False)
        return self._quiet[batch]

    def _make_plan(self, batch: int, draws: bool = True) -> Plan:
        chain, inputs = self._chain, self._blank(batch)
        memories: dict[nn.Module, dict[str, Tensor]] = {core: core.initial(batch) for core in chain.memories.values()}
        values, calls = network(chain.layers, inputs, draws, memories)
        calls += network(chain.besides, inputs, draws, memories)[1]
        head = chain.head(values, self._action_shape)
        named = {prefix + name: t for prefix, core in chain.memories.items() for name, t in memories[core].items()}
        return Plan(self._as_given(inputs), calls, head, named)

    def _blank(self, batch: int) -> Tensor:
        """Where the network's flat inputs go."""
        return torch.zeros(batch, math.prod(self._obs_shape) if self._one_hot is None else self._one_hot.width)

    def _as_given(self, inputs: Tensor) -> np.ndarray:
        """The same memory in the shape of the observations, or of their one-hot rows."""
        return inputs.numpy().reshape(len(inputs), *(self._obs_shape if self._one_hot is None else [-1]))


class Plan(NamedTuple):
    """The network for one batch size."""

    inputs: np.ndarray
    """[B, ...] like observations; of discrete ones, which come one-hot, [B, F]."""
    calls: list[Call]
    """What fills the arrays one after another."""
    head: Head
    memories: Mapping[str, Tensor] = MappingProxyType({})
    """Of the policy, by name [B, K, H]: moved on by the calls."""


class _OneHot:
    """Discrete observations as the networks read them.

    Args:
        sizes: number of values of each.
        starts: the least of each.
    """

    def __init__(self, sizes: tuple[int, ...], starts: tuple[int, ...]) -> None:
        self.width = sum(sizes)
        self._sizes, self._starts = np.array(sizes), np.array(starts)
        self._places = np.cumsum([0, *sizes[:-1]])

    @classmethod
    def of(cls, policy: Any) -> _OneHot | None:
        """That of a policy; ``None`` where observations are numbers."""
        preprocess = vars(policy).get("_preprocess")
        return cls(**preprocess.keywords) if isinstance(preprocess, partial) else None

    def __call__(self, obs: np.ndarray, inputs: np.ndarray) -> bool:
        """Fill inputs [B, F] from integers [B, ...]; False, and nothing: one of them is not in the space."""
        indices = obs.reshape(len(obs), -1).astype(np.int64, copy=False) - self._starts
        if not ((indices >= 0) & (indices < self._sizes)).all():
            return False
        inputs.fill(0)
        inputs[np.arange(len(obs))[:, None], indices + self._places] = 1
        return True


def _preprocesses_plainly(owner: nn.Module) -> bool:
    """Whether what a module does to observations is to take numbers as they are, or to make choices one-hot."""
    preprocess = vars(owner).get("_preprocess", to_float)
    return preprocess in (to_float, to_column) or (isinstance(preprocess, partial) and preprocess.func is one_hot)


def _watch(chain: Chain) -> Watch:
    """What notices that a chain is no longer what it is now."""
    layers = [
        m
        for part in (*chain.layers, *chain.besides, *chain.weights)
        if isinstance(part, nn.Module)
        for m in part.modules()
    ]
    tensors = [t for m in dict.fromkeys(layers) for t in (*m._parameters.values(), *m._buffers.values())]
    weights: list[Tensor] = [t for t in tensors if t is not None and t.is_floating_point()]  # no counters
    weights += [part for part in chain.weights if isinstance(part, Tensor)]
    return Watch((*chain.owners, *layers), weights)


def _readable(watch: Watch) -> bool:
    """Whether numpy can stand in: ordinary float32 tensors of the CPU, no hooks, no ``forward`` of one module."""
    plain_tensors = all(
        type(weight) in (nn.Parameter, Tensor)
        and weight.device.type == "cpu"
        and weight.dtype is torch.float32
        and weight.layout is torch.strided
        for weight in watch.views
    )
    return plain_tensors and not any(watch.hooks) and not any("forward" in vars(module) for module in watch.modules)
