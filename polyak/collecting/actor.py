"""The actor: a policy, its exploration, and the conversion of its actions to the environment's units.

An actor holds neither environment nor learner, so that the same object acts beside the learner, whose policy it shares,
and in another process, with a copy of the policy.

Shape letters: N environments.
"""

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from polyak.arrays import mapped, place, under, where
from polyak.collecting.exploration import Arrays, Exploration
from polyak.collecting.runner import Acted
from polyak.experience.step import Observations
from polyak.nn.backends.choice import backend_of
from polyak.nn.backends.eager import InTensors
from polyak.nn.export.actions import EnvironmentActions
from polyak.nn.policies.base import Policy, State, n_rows


class Actor:
    """Chooses actions for N environments.

    Pickling includes the policy without its optimizers; the unpickled actor gives the same actions from equal states of
    the random generators. A deep copy of a model has an actor that shares the copied policy.

    Args:
        policy: chooses actions.
        exploration: modifies or replaces them; name -> exploration, in the order of calls.
        deterministic: take the policy's most likely actions instead of samples.
        in_tensors: observations, masks and actions are tensors on the policy's device that the host does not read.

    Attributes:
        policy, exploration: change them through :meth:`adopt` and :meth:`explore`.
        memory: the policy's recurrent state, by name [N, ...]; ``None`` without recurrence, or before the first step.
    """

    def __init__(
        self,
        policy: Policy,
        exploration: Mapping[str, Exploration] | None = None,
        deterministic: bool = False,
        in_tensors: bool = False,
    ) -> None:
        self.deterministic, self.in_tensors = deterministic, in_tensors
        self.adopt(policy)
        self.explore(exploration or {})

    def adopt(self, policy: Policy) -> None:
        """Act with another policy, whose recurrent state starts anew."""
        self._act_by(policy)
        self._recurrent = policy.initial_memory(1) is not None
        self.memory: State | None = None

    def _act_by(self, policy: Policy) -> None:
        self.policy = policy
        self._backend = policy.backend
        self._device = policy.device if self.in_tensors else None
        if self.in_tensors:
            self._decide: Any = InTensors(policy)
            self.codec: Any = EnvironmentActions(policy.codec).to(policy.device)
        else:
            self._decide, self.codec = backend_of(policy), policy.codec

    def act_by_copy(self) -> None:
        """Act from now on with a copy of the policy, which is updated by newer weights."""
        self._act_by(copy_of(self.policy))

    def use(self, policy: Policy) -> None:
        """Act with this policy, which may be the present one."""
        if policy is not self.policy:
            self.adopt(policy)

    def explore_next(self, exploration: Mapping[str, Exploration]) -> None:
        """Use another exploration from the next series of steps on."""
        self._begin: list[Any] = [partial(self._explore_and_begin, exploration)]

    def _explore_and_begin(self, exploration: Mapping[str, Exploration], policy: Policy, rows: int) -> None:
        self.explore(exploration)
        for begin in self._begin:
            begin(policy, rows)

    def explore(self, exploration: Mapping[str, Exploration]) -> None:
        """Use another exploration from now on."""
        if self.in_tensors:
            exploration = {name: part.made_for_tensors(self.policy) for name, part in exploration.items()}
        self.exploration = dict(exploration)
        parts = self.exploration.values()
        self._begin = [part.begin for part in parts if type(part).begin is not Exploration.begin]
        self._before = [part.before for part in parts if type(part).before is not Exploration.before]
        self._after = [part.after for part in parts if type(part).after is not Exploration.after]

    def prepare(self, observations: Observations) -> None:
        """Warm up for observations like these [N, ...], so that the first step is as fast as any other."""
        self.policy.set_training_mode(False)
        self._decide.prepare(observations)

    def begin(self, rows: int, restart: bool = True) -> None:
        """Prepare policy and exploration for a series of steps in N environments.

        Args:
            rows: N.
            restart: ``False`` continues an interrupted series.
        """
        self.policy.set_training_mode(False)
        if self._backend != self.policy.backend:
            self._act_by(self.policy)
        self._decide.begin()
        for begin in self._begin if restart else ():
            begin(self.policy, rows)

    def act(
        self, observations: Observations, episode_starts: np.ndarray | None = None, masks: np.ndarray | None = None
    ) -> Acted:
        """Returns actions for observations, and the columns to store with them.

        Args:
            observations: finite, [N, ...] or a dict of them.
            episode_starts: [N] bool, where an episode begins, so that recurrent state and noise are reset; ``None``:
                nowhere.
            masks: [N, M] bool, which choices are allowed; ``None``: all.

        Raises:
            PolicyError: masks for a policy that does not support them.
            ValueError: an observation does not have the shape of the policy's space, or is too large for float32.
        """
        starts = np.zeros(n_rows(observations), dtype=bool) if episode_starts is None else episode_starts
        actions: Any = None
        extras: dict[str, Any] = {}
        for before in self._before:
            if (actions := before(self.policy, starts, masks)) is not None:
                break
        if actions is None or self._recurrent:  # a recurrent state advances with every step
            memory = self.recall(starts) if self._recurrent else None
            chosen, found, self.memory = self._decide(observations, self.deterministic, masks, memory)
            extras = {**self._columns_of(memory), **found} if memory else dict(found)
            actions = chosen if actions is None else actions
        for after in self._after:
            actions = after(actions)
        return Acted(self.codec.to_env(actions), actions, extras)

    def _columns_of(self, memory: State) -> Arrays:
        return {name: place(part, self._device) for name, part in memory.items()}

    def recall(self, starts: np.ndarray) -> State | None:
        """Returns the policy's recurrent state before the next step, reset where ``starts`` [N] marks new episodes;
        ``None`` without recurrence."""
        if not self._recurrent or (self.memory is not None and not (self.in_tensors or np.count_nonzero(starts))):
            return self.memory
        fresh, begun = self.policy.initial_memory(len(starts)), torch.as_tensor(starts, device=self.policy.device)
        return fresh if self.memory is None else mapped(partial(where, begun), fresh, self.memory)

    # -- weights and state ---------------------------------------------------------------------------------------------

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load newer weights, a state dict of the policy; an actor that shares the learner's policy does not need it."""
        self.policy.load_state_dict(weights)

    def state(self) -> Arrays:
        """Returns the recurrent state and the state of exploration as arrays by name; without weights and random
        generators."""
        state = {f"memory/{name}": value.numpy(force=True) for name, value in (self.memory or {}).items()}
        for name, part in self.exploration.items():
            state |= {f"{name}/{key}": value for key, value in part.state(self.policy).items()}
        return state

    def load_state(self, state: Arrays) -> None:
        """Restore what :meth:`state` returned; parts of exploration that it lacks are unchanged."""
        device = self.policy.device
        memory = {key: torch.from_numpy(np.array(value)).to(device) for key, value in under("memory", state).items()}
        self.memory = memory or None
        for name, part in self.exploration.items():
            if own := under(name, state):
                part.load_state(self.policy, own)

    # -- copies --------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        other._act_by(copy_of(self.policy))
        return vars(other)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Actor":
        memo[id(self)] = copied = type(self).__new__(type(self))
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied


def copy_of(policy: Policy) -> Policy:
    """Returns a copy of a policy without its optimizers, to act with elsewhere."""
    found = [value for module in policy.modules() for value in vars(module).values() if isinstance(value, Optimizer)]
    return copy.deepcopy(policy, {id(optimizer): None for optimizer in found})
