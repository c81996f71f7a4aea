"""Observations with their history, for recurrent networks.

A replayed sequence becomes rows like those of any other batch: the features of a row are the output of the recurrent
layers after the steps up to it. So losses see rows, and are the same for recurrent networks. Burn-in and stored
recurrent state as in R2D2 (Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement
Learning").

Shapes: B sequences of L steps, n rows of each to learn from, K layers of H units, F features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Extractor, Obs
from polyak.nn.networks.recurrent import Recurrent, check_memory, part_of, prefixed


class Recalled(NamedTuple):
    """Observations, and the recurrent state before each of them."""

    observations: Any  # [B, ...]
    memory: dict[str, Tensor]  # name -> [B, K, H]


class Sequences(NamedTuple):
    """Observations in sequences, of which some rows are needed."""

    observations: Any  # [B, L, ...]
    memory: dict[str, Tensor]  # name -> [B, K, H] before the first
    keep: Tensor  # [B, L] 0 where the recurrent state is reset, elsewhere 1
    rows: Tensor  # [B, n] int64, in [0, L)


class FollowingObservations(NamedTuple):
    """Observations that follow certain rows of sequences."""

    sequences: Sequences
    observations: Any  # [B, n, ...] after the sequences' ``rows``


DEFAULTS = {"memory_size": 256, "memory_layers": 1, "memory_dropout": 0.0, "max_seq_len": 32, "burn_in": 8}
"""Prefix of the options of recurrent policies for replay."""


class Recurrence(NamedTuple):
    """The recurrent layers of a policy's networks: see :class:`~polyak.nn.policies.base.Policy`."""

    kind: str
    units: int
    layers: int
    length: int
    """Rows of a replayed sequence to learn from, n."""
    burn_in: int
    """Rows before them."""
    dropout: float = 0.0

    def __call__(self, extractor: Extractor) -> RecurrentExtractor:
        """A recurrent features extractor around another one."""
        core = Recurrent(self.kind, extractor.features_dim, self.units, self.layers, self.dropout)
        return RecurrentExtractor(extractor, core, self.burn_in)


def recurrence(
    memory: str | None, size: int, layers: int, max_seq_len: int, burn_in: int, dropout: float
) -> Recurrence | None:
    """The recurrent layers that ``policy_kwargs`` describe; ``None`` without ``memory``.

    Raises:
        PolicyError: naming the option, its value and its range; or it would have no effect.
    """
    if memory is None:
        given: dict[str, float] = {"memory_size": size, "memory_layers": layers, "max_seq_len": max_seq_len}
        given |= {"burn_in": burn_in, "memory_dropout": dropout}
        for name, value in given.items():
            if value != DEFAULTS[name]:
                raise PolicyError(f"{name}={value!r} has no effect without memory. Add memory='lstm', or leave it out.")
        return None
    check_memory(memory, size, layers, max_seq_len, dropout)
    if not isinstance(burn_in, int) or burn_in < 0:
        raise PolicyError(f"burn_in must be an integer of at least 0, got {burn_in!r}.")
    return Recurrence(memory, size, layers, max_seq_len, burn_in, dropout)


class RecurrentExtractor(Extractor):
    """Features of observations and of their history.

    Args:
        extractor: makes features of single observations.
        core: the recurrent layers that read these.
        burn_in: steps at the beginning of a sequence through which no gradient goes.

    Attributes:
        prefix: prefix of the core's recurrent state among the policy's.
    """

    features_dim: int

    def __init__(self, extractor: nn.Module, core: Recurrent, burn_in: int = 0) -> None:
        super().__init__()
        self.extractor, self.core, self.burn_in = extractor, core, burn_in
        self.features_dim, self.prefix = core.units, ""

    def initial(self, batch: int) -> dict[str, Tensor]:
        """The recurrent state at the start of B episodes, by name: [B, K, H]."""
        return prefixed(self.prefix, self.core.initial(batch))

    def forward(self, obs: Obs) -> Tensor:
        """Preprocessed first observations of episodes [B, ...] -> features [B, H]."""
        features = self.extractor(obs)
        return self.core.step(features, self.core.initial(len(features)))[0]

    def recall(self, given: Recalled | Sequences | FollowingObservations, network: Any) -> Tensor:
        """Features [rows, H] of raw observations that ``network`` preprocesses."""
        if isinstance(given, Recalled):
            return self.step(given, network)[0]
        if isinstance(given, Sequences):
            outputs, _ = self._unrolled(given, network)
            rows = (given.rows - self.burn_in)[..., None].expand(-1, -1, self.features_dim)
            return outputs.transpose(0, 1).gather(1, rows).flatten(0, 1)
        with torch.no_grad():
            sequences = given.sequences
            _, states = self._unrolled(sequences, network)
            rows = (sequences.rows - self.burn_in).t()[..., None, None]
            memory = {
                name: state.gather(0, rows.expand(-1, -1, *state.shape[2:])).transpose(0, 1).flatten(0, 1)
                for name, state in states.items()
            }
            features = self.extractor(network.preprocess(_flat(given.observations)))
            return self.core.step(features, memory)[0]

    def step(self, given: Recalled, network: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Features [B, H], and the recurrent state after the step."""
        features = self.extractor(network.preprocess(given.observations))
        outputs, memory = self.core.step(features, part_of(self.prefix, given.memory))
        return outputs, prefixed(self.prefix, memory)

    def _unrolled(self, given: Sequences, network: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Outputs [L - burn_in, B, H] of the steps after the burn-in, and the recurrent state after each of them, by
        name [L - burn_in, B, K, H]."""
        before, memory, keep = self.burn_in, part_of(self.prefix, given.memory), given.keep.t()
        if before:
            with torch.no_grad():
                early = self._features(given.observations, slice(before), network)
                _, states = self.core(early, memory, keep[:before])
                memory = {name: state[-1] for name, state in states.items()}
        return self.core(self._features(given.observations, slice(before, None), network), memory, keep[before:])

    def _features(self, observations: Any, steps: slice, network: Any) -> Tensor:
        """Returns the features of some steps of sequences: [steps, B, F]"""
        if isinstance(observations, dict):
            some: Any = {key: part[:, steps].transpose(0, 1) for key, part in observations.items()}
            shape = next(iter(some.values())).shape[:2]
        else:
            some = observations[:, steps].transpose(0, 1)
            shape = some.shape[:2]
        return self.extractor(network.preprocess(_flat(some))).unflatten(0, shape)


def _flat(observations: Any) -> Any:
    """[B, L, ...], or a dict of such, -> [B * L, ...]"""
    if isinstance(observations, dict):
        return {key: part.flatten(0, 1) for key, part in observations.items()}
    return observations.flatten(0, 1)
