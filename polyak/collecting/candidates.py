"""Acting with many candidates at once, each a parameter vector of one policy.

Shape letters: N environments, P parameters.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from polyak.collecting.runner import Acted
from polyak.experience.step import Observations
from polyak.nn.backends.inputs import Seen, parts
from polyak.nn.backends.numpy import kind_of
from polyak.nn.backends.program import TracedProgram
from polyak.nn.backends.watch import Watch
from polyak.nn.policies.base import Policy


class CandidateActor:
    """Acts in each environment with a parameter vector of its own.

    Args:
        policy: the policy that the parameters belong to.

    Attributes:
        weights: [N, P] values of the policy's trainable parameters, in their order. Change its rows in place.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.weights = torch.empty(0)
        self._quick: _Quick | None = None
        self._translates = True

    def begin(self, policy: Policy, weights: Tensor) -> None:
        """Act with parameters [N, P] of this policy from now on."""
        policy.set_training_mode(False)
        fits = policy is self.policy and weights.shape == self.weights.shape and weights.device == self.weights.device
        if fits and self._quick is not None and self._quick.watch.unchanged():
            self.weights.copy_(weights)
        else:
            self.policy, self.weights, self._quick, self._translates = policy, weights.clone(), None, True

    def prepare(self, observations: Observations) -> None:
        """Does nothing: the candidates arrive later, by :meth:`begin`."""

    def act(
        self, observations: Observations, episode_starts: np.ndarray | None = None, masks: np.ndarray | None = None
    ) -> Acted:
        """Returns actions for observations [N, ...]."""
        if self._quick is None or not self._quick.suits(observations):
            self._quick = None
            if self._translates:
                try:
                    self._quick = _Quick(self, observations)
                except Exception:  # torch computes them, or raises the error
                    self._translates = False
        if self._quick is None:
            actions = self.choose(self.policy.obs_to_tensor(observations)[0]).numpy(force=True)
        else:
            actions = self._quick(observations)
        return Acted(self.policy.codec.to_env(actions), actions, {})

    @torch.no_grad()
    def choose(self, seen: Any) -> Tensor:
        """Computes actions [N, ...] for preprocessed observations in torch."""
        chooser = _Chooser(self.policy)
        named = {name: p for name, p in chooser.named_parameters() if p.requires_grad}
        columns = self.weights.split([p.numel() for p in named.values()], dim=1)
        rows = {name: part.unflatten(1, p.shape) for (name, p), part in zip(named.items(), columns, strict=True)}

        def choose(parameters: dict[str, Tensor], observation: Any) -> Tensor:
            return functional_call(chooser, parameters, (observation,))

        if not any(isinstance(module, nn.Conv2d) for module in chooser.modules()):
            return vmap(choose)(rows, seen)
        # The memory layout that is fastest for convolutions is not available inside vmap.
        each = [choose(_row(rows, n), _row(seen, n)) for n in range(len(self.weights))]
        return torch.stack(each)

    def state(self) -> dict[str, np.ndarray]:
        """Returns an empty dict: the algorithm assigns candidates to environments."""
        return {}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Does nothing: :meth:`state` is empty."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_quick": None}  # it watches the weights of this object


class _Quick:
    """Computes candidates' actions for observations of one kind in numpy.

    Args:
        actor: provides the candidates.
        observations: examples of the observations.

    Raises:
        UntraceableError: torch is required.
    """

    def __init__(self, actor: CandidateActor, observations: Observations) -> None:
        self._seen, self._kind = Seen(actor.policy, observations), kind_of(observations)
        inputs = [actor.weights, *parts(self._seen.tensors)]
        self._program = TracedProgram(lambda: actor.choose(self._seen.tensors), inputs)
        self._actions = self._program.result.numpy()
        self.watch = Watch([actor.policy, *self._program.modules], self._program.reads)
        self._is_current = self.watch.unchanged if self._program.has_own_code else self.watch.current

    def suits(self, observations: Observations) -> bool:
        """Whether it fits such observations and the present policy."""
        return bool(kind_of(observations) == self._kind) and self._is_current()

    def __call__(self, observations: Observations) -> np.ndarray:
        """Returns actions [N, ...], a new array."""
        self._seen.read(observations)
        self._program()
        return self._actions.copy()


def _row(tensors: Any, n: int) -> Any:
    """Returns row `n` of a tensor, or of each tensor in a dict."""
    return {key: part[n] for key, part in tensors.items()} if isinstance(tensors, dict) else tensors[n]


class _Chooser(nn.Module):
    """Calls a policy for one observation, as a module."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Any) -> Tensor:
        several = isinstance(observation, dict)
        batch = {key: part[None] for key, part in observation.items()} if several else observation[None]
        return torch.as_tensor(self.policy._predict(batch, deterministic=True))[0]
