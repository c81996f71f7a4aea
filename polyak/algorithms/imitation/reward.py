"""A learned reward as a function of steps, which can be saved and used in other environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import softplus
from typing_extensions import Self

from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.building import no_larger_than
from polyak.checkpoint.saved import Saved
from polyak.checkpoint.serialise import decode, encode
from polyak.nn.compiled import plain_name
from polyak.nn.networks.rewards import RewardNet

RewardForm = Literal["positive", "negative", "logit"]
KIND = "polyak-reward"


def positive(logits: Tensor) -> Tensor:
    """-log(1 - D) >= 0, where D = sigmoid(logit). [B] -> [B]"""
    return softplus(logits)


def negative(logits: Tensor) -> Tensor:
    """log D <= 0. [B] -> [B]"""
    return -softplus(-logits)


def logit(logits: Tensor) -> Tensor:
    """log D - log(1 - D), of either sign. [B] -> [B]"""
    return logits


FORMS: dict[str, Callable[[Tensor], Tensor]] = {"positive": positive, "negative": negative, "logit": logit}


class RewardFunction:
    """A reward network as a function of numpy arrays, for :func:`~polyak.envs.with_reward`.

    It shares the network and changes while the network is trained; a :meth:`copy` does not.

    Args:
        network: returns one number per step.
        form: function of that number x: ``"logit"`` x, ``"positive"`` softplus(x), ``"negative"`` -softplus(-x).
        arguments: of the network except its spaces, so that it can be saved.

    Attributes:
        observation_space, action_space: of the environments that it is defined for.
    """

    def __init__(self, network: RewardNet, form: RewardForm = "logit", arguments: dict[str, Any] | None = None) -> None:
        self.network, self.form, self.arguments = network, form, dict(arguments or {})
        self.observation_space, self.action_space = network.observation_space, network.action_space

    @torch.no_grad()
    def __call__(self, observations: Any, actions: Any, next_observations: Any, terminated: Any) -> np.ndarray:
        """Returns the rewards [B] float32 of steps.

        Args:
            observations: [B, ...] as environments return them.
            actions: [B, ...] as environments take them.
            next_observations: [B, ...] the true successors, also at the end of an episode.
            terminated: [B] whether the successors are terminal.
        """
        return FORMS[self.form](scored(self.network, observations, actions, next_observations, terminated)).numpy(
            force=True
        )

    def copy(self) -> Self:
        """Returns the same function with a copy of the network."""
        network = type(self.network)(self.observation_space, self.action_space, **self.arguments)
        network.load_state_dict(self.network.state_dict())
        return type(self)(network, self.form, self.arguments)

    def save(self, path: Any) -> None:
        """Write it to one file. Loading the file does not run code from it.

        Args:
            path: a path (``.zip`` is added to a name without a suffix) or a file opened for writing.
        """
        info = {"form": self.form, "arguments": encode(self.arguments)}
        info |= {name: encode(getattr(self, name)) for name in ("observation_space", "action_space")}
        networks = {name: tensor.numpy(force=True) for name, tensor in self.network.state_dict().items()}
        checkpoint.write(Saved({"format": KIND, "format_version": 1, **info}, networks), path)

    @classmethod
    def load(cls, path: Any, *, trust: bool = False) -> Self:
        """Read a file of :meth:`save`.

        Args:
            path: a path or a file opened for reading.
            trust: also load pickled values, such as a class of the user's own. They can run any code: set this only
                for files that you trust.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not a reward function, or is damaged.
        """
        saved = checkpoint.read(path, kind=KIND, trust=trust)
        with checkpoint.damage_named(path):
            seen, acted = (decode(saved.info[name]) for name in ("observation_space", "action_space"))
            if not (isinstance(seen, spaces.Space) and isinstance(acted, spaces.Space)):
                raise ValueError("the file holds no spaces.")
            arguments = decode(saved.info["arguments"], trust)
            with no_larger_than(saved.networks.values(), arguments, trust):
                network = RewardNet(seen, acted, **arguments)
            _load(network, saved)
            if (form := saved.info["form"]) not in FORMS:
                raise ValueError(f"the file's form is {form!r}, which is none of {sorted(FORMS)}.")
            return cls(network, form, arguments)

    def __repr__(self) -> str:
        return f"RewardFunction({self.form}, {self.observation_space} -> {self.action_space})"


def scored(network: Any, observations: Any, actions: Any, next_observations: Any, terminated: Any) -> Tensor:
    """Returns the output [B] of a reward network for steps in arrays."""
    device = network.device
    obs, _ = network.obs_to_tensor(observations)
    then = network.obs_to_tensor(next_observations)[0] if network.needs_next else None
    ends = torch.as_tensor(np.asarray(terminated, np.float32), device=device)
    return network(obs, torch.as_tensor(np.asarray(actions), device=device), then, ends)


def _load(network: nn.Module, saved: Saved) -> None:
    own, found = network.state_dict(), {plain_name(name): array for name, array in saved.networks.items()}
    if own.keys() != found.keys() or any(own[name].shape != array.shape for name, array in found.items()):
        raise ValueError("the file's weights are not those of the network that it describes: it is damaged.")
    network.load_state_dict({name: torch.from_numpy(array) for name, array in found.items()})
