"""Acting: a policy, the exploration around it, and the way from its units to those of the environments.

An actor knows neither environment nor learner, so that the same object acts beside the learner, whose policy it holds,
and in another process, with a copy of it.

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

    Pickling takes the policy along without its optimizers; what is unpickled gives the same actions from equal states
    of the random generators. A deep copy of a model has an actor that holds the copy's policy.

    Args:
        policy: chooses.
        exploration: what is done to its actions, by name, in the order in which it is asked.
        deterministic: the policy's likeliest actions rather than samples.
        in_tensors: observations, masks and actions are tensors on the policy's device, none of which the host reads.

    Attributes:
        policy, exploration: change them through :meth:`adopt` and :meth:`explore`.
        memory: the policy's recurrent state, by name [N, ...]; ``None`` of one without, or before the first step.
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
        """Act with another policy, whose recurrent state is not set yet."""
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
        """Act from now on by a copy of the policy, to which newer weights are brought."""
        self._act_by(copy_of(self.policy))

    def use(self, policy: Policy) -> None:
        """Act with this policy, which may be the present one."""
        if policy is not self.policy:
            self.adopt(policy)

    def explore_next(self, exploration: Mapping[str, Exploration]) -> None:
        """Explore in another way from the next series of steps on."""
        self._begin: list[Any] = [partial(self._explore_and_begin, exploration)]

    def _explore_and_begin(self, exploration: Mapping[str, Exploration], policy: Policy, rows: int) -> None:
        self.explore(exploration)
        for begin in self._begin:
            begin(policy, rows)

    def explore(self, exploration: Mapping[str, Exploration]) -> None:
        """Explore in another way from now on."""
        if self.in_tensors:
            exploration = {name: part.made_for_tensors(self.policy) for name, part in exploration.items()}
        self.exploration = dict(exploration)
        parts = self.exploration.values()
        self._begin = [part.begin for part in parts if type(part).begin is not Exploration.begin]
        self._before = [part.before for part in parts if type(part).before is not Exploration.before]
        self._after = [part.after for part in parts if type(part).after is not Exploration.after]

    def prepare(self, observations: Observations) -> None:
        """Make ready for observations like these [N, ...], so that the first step takes no longer than any other."""
        self.policy.set_training_mode(False)
        self._decide.prepare(observations)

    def begin(self, rows: int, restart: bool = True) -> None:
        """Make policy and exploration ready for a series of steps in N environments.

        Args:
            rows: N.
            restart: ``False`` continues with a series that was interrupted.
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
        """Actions for observations, and what is to be stored with them.

        Args:
            observations: finite, [N, ...] or a dict of them.
            episode_starts: [N] bool, where an episode begins, so that memory and noise start again; ``None``: nowhere.
            masks: [N, M] bool, which choices are allowed; ``None``: all.

        Raises:
            PolicyError: masks for a policy that does not support them.
            ValueError: an observation is of another shape than the policy's space, or too large for float32.
        """
        starts = np.zeros(n_rows(observations), dtype=bool) if episode_starts is None else episode_starts
        actions: Any = None
        extras: dict[str, Any] = {}
        for before in self._before:
            if (actions := before(self.policy, starts, masks)) is not None:
                break
        if actions is None or self._recurrent:  # a recurrent state advances whatever acts
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
        """The policy's recurrent state before the next step: nothing of episodes that are over. ``starts`` [N]: where
        episodes begin. ``None`` of a policy without memory."""
        if not self._recurrent or (self.memory is not None and not (self.in_tensors or np.count_nonzero(starts))):
            return self.memory
        fresh, begun = self.policy.initial_memory(len(starts)), torch.as_tensor(starts, device=self.policy.device)
        return fresh if self.memory is None else mapped(partial(where, begun), fresh, self.memory)

    # -- weights and state ---------------------------------------------------------------------------------------------

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take newer weights, a state dict of the policy; an actor beside its learner has them anyway."""
        self.policy.load_state_dict(weights)

    def state(self) -> Arrays:
        """Memory and the state of exploration, as arrays by name; weights and random generators are not in it."""
        state = {f"memory/{name}": value.numpy(force=True) for name, value in (self.memory or {}).items()}
        for name, part in self.exploration.items():
            state |= {f"{name}/{key}": value for key, value in part.state(self.policy).items()}
        return state

    def load_state(self, state: Arrays) -> None:
        """Continue from what :meth:`state` returned; parts of exploration that it does not name stay as they are."""
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
    """Another policy with the same weights, to act with elsewhere: without the optimizers that hang on it."""
    found = [value for module in policy.modules() for value in vars(module).values() if isinstance(value, Optimizer)]
    return copy.deepcopy(policy, {id(optimizer): None for optimizer in found})
