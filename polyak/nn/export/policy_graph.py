"""Reader, policy and action transform as one graph."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polyak.envs.masks import mask_size
from polyak.nn.distributions.exploration_noise import ExplorationNoise
from polyak.nn.errors import PolicyError
from polyak.nn.export.actions import EnvironmentActions
from polyak.nn.export.noise import Drawing, HandedOut, noise_ports, redraw_matrices
from polyak.nn.export.observations import Reader
from polyak.nn.export.ports import Graph, Port, compact
from polyak.nn.networks.recurrent import Recurrent
from polyak.nn.policies.base import Decision, Policy, State


class PolicyGraph(Graph):
    """Raw observations [B, ...], and masks and recurrent state if used -> actions, and the state after them.

    It holds a copy of the policy, on the CPU and in evaluation mode. Recurrent states have the batch first, [B, K, H].

    Args:
        policy: the policy.
        reader: from raw observations to those that it reads.
        masks: whether action masks [B, M] are an input.
        masks_in: the key of a Dict observation that holds the masks instead; ``None``: none does.
        stochastic: sample actions, with the random numbers as inputs.

    Raises:
        PolicyError: masks for a policy that does not support them, or ``stochastic`` for one that draws nothing.
    """

    def __init__(
        self,
        policy: Policy,
        reader: Reader,
        masks: bool = False,
        masks_in: str | None = None,
        stochastic: bool = False,
    ) -> None:
        super().__init__()
        size = mask_size(policy.action_space) if policy.supports_masks else None
        if masks and size is None:
            raise PolicyError(f"masks=True: {type(policy).__name__} does not support action masks. Leave masks out.")
        self.policy, self.reader, self.stochastic = _standing_alone(policy), reader, stochastic
        self.to_env = EnvironmentActions(policy.codec)
        self.observation_space, self.action_space = reader.raw_space, policy.action_space
        self._masks, self._masks_in, self._names = masks, masks_in, []
        self.inputs, self.outputs = list(reader.ports), list(self.to_env.ports)
        if masks:
            self.inputs.append(Port("action_masks", "action_masks", (size or 0,), "bool"))
        for name, value in (self.policy.acting_memory(1) or {}).items():
            self._names.append(name)
            shape, dtype = tuple(value.shape[1:]), value.numpy().dtype.name
            details = {"initial": compact(value[0].numpy()), "becomes": f"next_state.{name}"}
            self.inputs.append(Port(f"state.{name}", "state", shape, dtype, details))
            self.outputs.append(Port(f"next_state.{name}", "state", shape, dtype))
        self._noise: list[Port] = []
        if stochastic:
            redraw_matrices(self.policy)
            self._noise = noise_ports(lambda rows: self._forward([port.example(rows) for port in self.inputs]))
            if not self._noise:
                raise PolicyError(
                    f"stochastic=True: {type(policy).__name__} draws nothing, so that its actions are deterministic. "
                    "Leave stochastic out."
                )
            self.inputs += self._noise

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Maps tensors, one for each of ``inputs``, to one for each of ``outputs``."""
        if not self._noise:
            return self._forward(inputs)
        given = len(inputs) - len(self._noise)
        with Drawing(HandedOut(self._noise, inputs[given:])):
            return self._forward(inputs[:given])

    def _forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Computes :meth:`forward` with noise drawn by the policy."""
        seen = len(self.reader.ports)
        raw, rest = inputs[:seen], list(inputs[seen:])
        masks = rest.pop(0) if self._masks else None
        if self._masks_in is not None:
            masks = (self.reader.of(raw, self._masks_in) != 0).flatten(1)
        state = dict(zip(self._names, rest, strict=True)) or None
        outcome = self._decide(self.reader(raw), raw[0].shape[0], state, masks)
        after = outcome.state or {}
        return (*self.to_env(outcome.actions), *(after[name] for name in self._names))

    def _decide(self, observations: Any, rows: int, state: State | None, masks: Tensor | None) -> Decision:
        """The outcome of the policy, as in :meth:`Policy.predict`."""
        if state is None and masks is None:
            return Decision(torch.as_tensor(self.policy._predict(observations, not self.stochastic)))
        noise = self.policy.draw_noise(rows) if self.stochastic else None
        return self.policy.decide(observations, noise, state, masks)


def _standing_alone(policy: Policy) -> Policy:
    """A copy on the CPU, in evaluation mode, made of operations that every runtime has."""
    alone = copy.deepcopy(policy).to("cpu")
    alone.set_training_mode(False)
    alone.requires_grad_(False)
    for module in alone.modules():
        if isinstance(module, Recurrent):
            module.in_operations = True
        elif isinstance(module, ExplorationNoise):
            module.own = module.own[:0]  # one matrix for each environment of training, which deterministic actions skip
    return alone
