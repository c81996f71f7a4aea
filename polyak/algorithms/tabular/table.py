"""The base of tabular algorithms: states and actions as indices, and a table of action values.

Shapes: K tables, S states, A actions, N environments.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, cast

import numpy as np
from gymnasium import spaces

from polyak.algorithm import Algorithm, GymEnv
from polyak.algorithms.tabular.graph import TableGraph
from polyak.arrays import Flags, Memory, Predicted
from polyak.checkpoint.saved import Saved
from polyak.envs import VecEnv
from polyak.envs.masks import masks_for_rows
from polyak.envs.spaces import SpaceError
from polyak.envs.tabular.numbering import Numbering
from polyak.envs.tabular.process import FiniteProcess
from polyak.envs.tabular.table_env import TableEnv
from polyak.hyperparameters.declaration import Becomes, Fraction, later
from polyak.nn.export.ports import Graph
from polyak.parts.part import Part


class Solver(Part):
    """Fills a table of action values: the base of planners and of online learning.

    The model owns the table, ``model.q`` [K, S, A], which exists when :meth:`build` is called, after :meth:`meet`.
    """

    acts = False
    """Whether it steps environments, as their actor."""
    n_tables = 1
    """Number K of tables, which are summed."""

    def meet(self, env: VecEnv) -> None:
        """Use these environments from now on; the table exists."""

    def seed(self, seed: int) -> None:
        """Seed its own random generator."""

    def begin_episodes(self) -> None:
        """Handle new episodes in all environments."""

    def rest(self) -> None:
        """Finish at the end of ``learn``."""

    @property
    def explores(self) -> float:
        """The probability of a random action in stochastic predictions."""
        return 0.0

    def preferences(self) -> np.ndarray:
        """[S, A] the preferences whose argmax is the greedy action."""
        preferred: np.ndarray = self.model.q.sum(0)
        return preferred


@dataclass(eq=False, repr=False)
class TableAlgorithm(Algorithm):
    """Base class of algorithms that fill a table of action values. A family has fields and a loop; an algorithm has a
    :class:`Solver` among its parts, ``made_of = {"solver": ...}``, with its own update."""

    env: Becomes[GymEnv | FiniteProcess | Mapping[int, Any] | tuple[Any, Any] | str | None, VecEnv | None] = later(None)
    """The environment: a Gymnasium environment or its name; or a known model: a table ``P`` as in Gymnasium's toy
    texts, arrays ``(transitions [S, A, S], rewards [S, A])``, or a :class:`~polyak.envs.tabular.process.FiniteProcess`.
    Observations are enumerated automatically, if there are finitely many."""
    _: KW_ONLY
    gamma: Fraction = 0.99
    """Discount factor, in [0, 1]; 1 is for tasks whose episodes end."""

    action_spaces: ClassVar = (spaces.Discrete,)
    supports_masks: ClassVar[bool] = True
    solver = cast(Any, None)  # a part, no hyper-parameter

    def __post_init__(self, _init_setup_model: bool) -> None:
        model: Any = self.env
        if isinstance(model, FiniteProcess | Mapping | tuple):
            self.env = TableEnv(model)
        super().__post_init__(_init_setup_model)

    # -- construction --------------------------------------------------------------------------------------------------

    def _setup_model(self) -> None:
        self.numbering = _numbering(type(self).__name__, self.observation_space)
        self.q = np.zeros(self._shape)
        self.legal = np.ones(self._shape[1:], bool)
        super()._setup_model()

    @property
    def _shape(self) -> tuple[int, int, int]:
        """[K, S, A]"""
        assert isinstance(self.action_space, spaces.Discrete)
        n_states = _numbering(type(self).__name__, self.observation_space).n_states
        return self.solver.n_tables, n_states, int(self.action_space.n)

    def _make_runner(self) -> None:
        if self.solver.acts:
            super()._make_runner()
        self.solver.meet(self.env)

    def make_actor(self) -> Any:
        return self.solver

    def _seed(self, seed: int) -> None:
        super()._seed(seed)
        self.solver.seed(seed)

    # -- learning ------------------------------------------------------------------------------------------------------

    def _prepare_to_learn(self, reset: bool) -> None:
        if self.solver.acts:
            super()._prepare_to_learn(reset)

    def _start_episodes(self) -> None:
        super()._start_episodes()
        self.solver.begin_episodes()

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        with super()._while_learning():
            try:
                yield
            finally:
                self.solver.rest()

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    def table(self) -> np.ndarray:
        """[S, A] action values; NaN for actions that a state does not have."""
        return np.where(self.legal, self.q.mean(0), np.nan)

    @property
    def values(self) -> np.ndarray:
        """[S] state values under the greedy policy: those of their best actions."""
        return np.nanmax(self.table, 1)

    @property
    def greedy(self) -> np.ndarray:
        """[S] the action of each state in deterministic :meth:`predict`."""
        return self._as_actions(np.where(self.legal, self.solver.preferences(), -np.inf).argmax(1))

    def _as_actions(self, chosen: np.ndarray) -> np.ndarray:
        """Converts table actions [N], counted from 0, to the environment's actions."""
        assert isinstance(self.action_space, spaces.Discrete)
        return (chosen + int(self.action_space.start)).astype(self.action_space.dtype)

    def predict(
        self,
        observation: Any,
        state: Memory = None,
        episode_start: Flags = None,
        deterministic: bool = False,
        *,
        action_masks: Flags = None,
    ) -> Predicted:
        """Returns the action for one observation or a batch of them.

        Args:
            observation: as the environment returns it; a batch as a vector of environments returns it.
            state, episode_start: not used: a table has no recurrent state.
            deterministic: the best action, the first of ties; otherwise epsilon-greedy as in training, with ties broken
                uniformly.
            action_masks: [N, A] allowed actions, or [A] for all; ``None``: all actions of the state.

        Returns:
            the action, or [N] actions; and ``state``.

        Raises:
            ValueError: the observation is not in the observation space, or masks have a shape that does not fit the
                observations, have other entries than 0 and 1, or forbid everything.
        """
        states, single = self.numbering.states(observation)
        allowed = self.legal[states]
        if action_masks is not None:
            allowed = masks_for_rows(action_masks, len(states), self.legal.shape[1], self.action_space)
        preferences = np.where(allowed, self.solver.preferences()[states], -np.inf)
        actions = self._as_actions(preferences.argmax(1) if deterministic else self._draw(preferences, allowed))
        return (actions[0, ...] if single else actions), state

    def _draw(self, preferences: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """Draw actions as in training. preferences (-inf for forbidden ones), allowed [N, A] -> [N]"""
        explores = np.random.rand(len(allowed), 1) < self.solver.explores
        any_of = np.where(explores, allowed, preferences == preferences.max(1, keepdims=True))
        drawn: np.ndarray = np.where(any_of, np.random.rand(*any_of.shape), -1.0).argmax(1)
        return drawn

    def acting_graph(
        self, masks: bool | None = None, channels_last: bool | None = None, stochastic: bool = False
    ) -> Graph:
        if channels_last:
            raise ValueError("channels_last=True: a table reads no images. Leave channels_last out.")
        if stochastic:
            raise ValueError("stochastic=True: a table is exported with its best actions alone. Leave stochastic out.")
        assert isinstance(self.action_space, spaces.Discrete)
        masks = not self._allows_everything if masks is None else masks
        preferences = self.solver.preferences()
        if not masks:
            preferences = np.where(self.legal, preferences, -np.inf)
        return TableGraph(self.numbering, self.action_space, preferences, masks)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _enter(self, saved: Saved, env: Any) -> None:
        super()._enter(saved, env)
        if self._shape != (found := saved.networks["q"].shape):  # before the table exists
            raise ValueError(f"the file holds a table of {list(found)}, where {list(self._shape)} is meant.")

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        self.solver.rest()  # writes the environments' states back
        super()._save_state(saved, include)
        saved.networks["q"] = self.q.copy()
        saved.state["legal"] = self.legal.copy()

    def _load_state(self, saved: Saved) -> None:
        super()._load_state(saved)
        for name, ours, theirs in (("q", self.q, saved.networks["q"]), ("legal", self.legal, saved.state["legal"])):
            if ours.shape != theirs.shape or ours.dtype.kind != theirs.dtype.kind:
                raise ValueError(
                    f"the file holds {name} as {theirs.dtype}{list(theirs.shape)}, where "
                    f"{ours.dtype}{list(ours.shape)} is meant."
                )
            ours[...] = theirs

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        self.solver.resume(saved, resume)


def _numbering(name: str, space: spaces.Space[Any]) -> Numbering:
    try:
        return Numbering(space)
    except ValueError as error:
        raise SpaceError(f"{name}: {error}") from None
