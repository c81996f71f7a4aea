"""Learning a table while acting: the loop around a rule.

A rule is a function of tables, a transition and random numbers (:mod:`polyak.algorithms.tabular.walking`). If the
transitions of the environments are known (:mod:`polyak.envs.tabular.known`), one loop over arrays makes many steps at
once, which numba compiles; other environments are stepped one by one. Callbacks are called after every step.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from polyak.algorithms.tabular.choosing import choose
from polyak.algorithms.tabular.table import TableAlgorithm
from polyak.algorithms.tabular.walking import (
    EXPLORES,
    NEXT_EXPLORES,
    NEXT_WHICH,
    WHICH,
    WIDTH,
    EpisodeEnds,
    LastSteps,
    Learn,
    Places,
    Rule,
    TableTransition,
    Walk,
    compiled,
    make_walk,
)
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.saved import Saved, prefixed
from polyak.collecting.runner import Acted
from polyak.data.step import Step
from polyak.envs.tabular.known import KnownEnvs
from polyak.hyperparameters.changing import Fixed
from polyak.hyperparameters.declaration import Count, Fraction, fitted, require
from polyak.loops.training import Loop, restart_if_interrupted
from polyak.schedules import Schedule

_STRETCH = 10_000
"""Steps that are made at once where no callback needs each of them."""
_FEW = 50_000
"""Steps that are over before a loop is compiled."""
_WALKED: Counter[Learn] = Counter()
"""Steps that this process has made by each rule: many short runs count as a long one."""


class EndedEpisodes(NamedTuple):
    """Episodes in the order of their ends."""

    returns: np.ndarray
    """[n] sums of rewards."""
    lengths: np.ndarray
    """[n] steps."""


class TableLoop:
    """Learns from one stretch of steps after another.

    Args:
        model: the algorithm.
        callback: asked whether to continue, after every step unless it is idle.
        log_interval: episodes between two tables.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback, self.log_interval = model, callback, log_interval

    def iterate(self) -> bool:
        """A stretch, or a step where a callback looks. False: it asked to stop."""
        model, callback, clock, every = self.model, self.callback, self.model.clock, self.log_interval
        before = clock.episodes
        if model._known is None:
            names = model._ask()
        else:
            remaining = max(1, -(-(clock.total - clock.steps) // model.n_envs))
            steps = min(_STRETCH, remaining) if callback.is_idle else 1
            ends, n_ended, _ = model._stretch(model._known, steps)
            names = {} if callback.is_idle else model._as_step(model._known, ends, n_ended)
        clock.tick_within()
        if not callback.is_idle:
            if callback.needs_locals:
                callback.update_locals(model._callback_locals(callback=callback, **names))
            if not callback.on_step():
                return False
        if every is not None and clock.episodes // every > before // every:
            model.dump_logs()
        restart_if_interrupted(model)
        return True


@dataclass(eq=False, repr=False)
class TabularLearning(TableAlgorithm):
    """Algorithms that learn a table while they act."""

    learning_rate: Literal["1/n"] | Fraction | Schedule = 0.1
    """Step size: a number in [0, 1], a function of the remaining progress (1 at the start, 0 at the end), or ``"1/n"``:
    one over the number of times that the pair was updated, so that values are averages."""
    _: KW_ONLY
    epsilon: Fraction | Schedule = 0.1
    """Probability of a random action: a number in [0, 1] or a function of the remaining progress."""
    initial_value: Annotated[float, Fixed("the table is filled with it. Set model.q, or make a new model.")] = 0.0
    """Initial action values; optimistic ones let every action be tried."""
    compile: bool | Literal["auto"] = "auto"
    """Run the inner loop as machine code (needs ``polyak[fast]``), with the same results to the last bit. ``"auto"``
    does so in long runs, if numba is installed. Only for known transitions: those of a table ``P``."""

    loop: ClassVar[Callable[..., Loop]] = TableLoop
    explores_starts: ClassVar[bool] = False
    """Whether episodes begin with a random action, and if possible in a random state."""

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if self.compile is True and compiled(self._rule()) is None:
            raise ImportError("compile=True needs numba: pip install 'polyak[fast]', or leave compile='auto'.")

    # -- declared by a rule --------------------------------------------------------------------------------------------

    def _rule(self) -> Rule:
        """The rule, which updates the tables by a transition."""
        raise NotImplementedError

    def _tables(self) -> dict[str, np.ndarray]:
        """Arrays by state and action, besides ``q`` and ``legal``."""
        return {"visits": np.zeros(self.q.shape, np.int64)}

    def _memory(self) -> dict[str, np.ndarray]:
        """Arrays of the running episodes, [N, ...]: empty when all is 0."""
        return {}

    def _numbers(self) -> dict[str, Any]:
        """Hyper-parameters that the rule reads."""
        return {"gamma": float(self.gamma)}

    def _carries(self) -> bool:
        """Whether the next action is chosen before the rule is applied, and then taken."""
        return False

    def _n_draws(self) -> int:
        """Random numbers of one step."""
        return WIDTH

    # -- construction --------------------------------------------------------------------------------------------------

    def _setup_model(self) -> None:
        self._stream = np.random.default_rng()
        self._known: KnownEnvs | None = None
        self._by_episodes = False
        super()._setup_model()
        self.q[...] = self.initial_value
        self._make_tables()

    def _make_tables(self) -> None:
        numbers = np.zeros(self.n_envs, np.int64), np.zeros(self.n_envs)
        states, actions, lengths = (numbers[0].copy() for _ in range(3))
        self.places = Places(states, actions, numbers[1].copy(), lengths, numbers[1].copy())
        arrays = {"q": self.q, "legal": self.legal, **self._tables(), **self._memory()}
        self.tables: Any = self._rule().tables(**arrays, **self._numbers())

    def make_actor(self) -> "TableActor":
        """The actor for environments that are stepped one by one."""
        return TableActor(self)

    def _make_runner(self) -> None:
        super()._make_runner()
        assert self.env is not None
        self._known = KnownEnvs.behind(self.env)
        if self._known is not None:
            self._world = self._known.world(self.explores_starts)
            self.legal[...] = self._known.legal

    def _seed(self, seed: int) -> None:
        super()._seed(seed)
        self._stream = np.random.default_rng(seed)

    def _explores(self) -> float:
        return float(self.epsilon(self._current_progress_remaining) if callable(self.epsilon) else self.epsilon)

    # -- learning ------------------------------------------------------------------------------------------------------

    def _prepare_to_learn(self, reset: bool) -> None:
        super()._prepare_to_learn(reset)
        self._by_episodes = False
        self._walk = self._choose_walk(self._total_timesteps - self.num_timesteps)

    def _choose_walk(self, steps: int) -> Walk:
        rule = self._rule()
        wanted = self.compile is True or (self.compile == "auto" and steps > _FEW)
        walk = compiled(rule) if wanted else None
        return make_walk(rule.learn) if walk is None else walk

    def _start_episodes(self) -> None:
        super()._start_episodes()
        assert self.runner is not None
        self.places.states[:] = self.numbering.states(self.runner.obs)[0]
        if self._known is not None and self.explores_starts:
            draws = self._stream.random(self.n_envs)
            self.places.states[:] = np.searchsorted(self._world.starts, draws, "right")
        self.places.actions[:] = -1
        for numbers in (self.places.lengths, self.places.returns, *map(vars_of(self.tables).get, self._memory())):
            numbers[...] = 0  # type: ignore[index]

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        with super()._while_learning():
            try:
                yield
            finally:
                self._sync_environments()

    def learn_episodes(self, n_episodes: int) -> EndedEpisodes:
        """Train for whole episodes, without callbacks and logs, and return their statistics.

        New ones begin; schedules follow the share of episodes that have ended.

        Args:
            n_episodes: how many; with several environments those that end first.

        Returns:
            their returns and lengths.

        Raises:
            ValueError: ``n_episodes`` is less than 1, or there is no environment.
        """
        n_episodes = fitted("n_episodes", n_episodes, Count)
        self._check_ready()
        self._prepare_to_learn(reset=True)
        self._by_episodes = True
        returns, lengths = np.zeros(n_episodes), np.zeros(n_episodes, np.int64)
        done = 0
        with self._while_learning():
            while done < n_episodes:
                self._current_progress_remaining = 1 - done / n_episodes
                if self._known is None:
                    self._ask()
                    new = np.reshape(self._finished, (-1, 2))[: n_episodes - done]
                else:
                    self._walk = self._choose_walk(_WALKED[self._rule().learn])
                    steps = min(_STRETCH, 64 * (n_episodes - done))
                    ends, n_ended, _ = self._stretch(self._known, steps, n_episodes - done)
                    n_ended = min(n_ended, n_episodes - done)
                    new = np.stack([ends.returns[:n_ended], ends.lengths[:n_ended]], 1)
                returns[done : done + len(new)], lengths[done : done + len(new)] = new.T
                done += len(new)
        self._by_episodes = False
        return EndedEpisodes(returns, lengths)

    # -- steps that are known ------------------------------------------------------------------------------------------

    def _stretch(self, known: KnownEnvs, steps: int, n_episodes: int = 2**62) -> tuple[EpisodeEnds, int, int]:
        """Walk up to ``steps`` steps, or until ``n_episodes`` have ended.

        Returns:
            the episodes that ended, how many, and the steps made.
        """
        self._make_room(steps)
        self.tables = self.tables._replace(**self._numbers())
        n, rows = self.n_envs, steps * self.n_envs
        ints = [np.zeros(rows, np.int64) for _ in range(3)]
        ends = EpisodeEnds(ints[0], ints[1], np.zeros(rows), ints[2], np.zeros(rows, bool))
        self._last = LastSteps(np.zeros(n, np.int64), np.zeros(n), np.zeros(n, np.int64))
        draws = self._stream.random((steps, n, self._n_draws()))
        alphas, epsilons = (self._along(name, steps) for name in ("learning_rate", "epsilon"))
        with self._split.update:
            made, n_ended = self._walk(
                self.tables,
                self._world,
                self.places,
                ends,
                self._last,
                alphas,
                epsilons,
                draws,
                n_episodes,
                self._carries(),
                self.explores_starts,
            )
        if unused := draws[made:].size:  # unused numbers are drawn again
            self._stream.bit_generator.advance(2**128 - unused)  # type: ignore[attr-defined]
        _WALKED[self._rule().learn] += made * n
        self._count(made)
        self._episode_num += n_ended
        self._note(known, ends, n_ended)
        return ends, n_ended, made

    def _make_room(self, steps: int) -> None:
        """Make the arrays large enough for so many steps."""

    def _along(self, name: str, steps: int) -> np.ndarray:
        """A hyper-parameter that may be a schedule at each of the next steps, [T]; -1 for averages."""
        value = getattr(self, name)
        if not callable(value):
            return np.full(steps, -1.0 if value == "1/n" else float(value))
        if self._by_episodes:
            values = np.full(steps, float(value(self._current_progress_remaining)))
        else:
            total = max(1, self._total_timesteps)
            numbers = range(self.num_timesteps, self.num_timesteps + steps * self.n_envs, self.n_envs)
            values = np.array([value(1.0 - min(number, total) / total) for number in numbers], float)
        low, high = values.min(), values.max()
        require(0 <= low <= high <= 1, name, value, f"it gives {low:g} to {high:g}, which must lie in [0, 1].")
        return values

    def _count(self, steps: int) -> None:
        self.num_timesteps += steps * self.n_envs
        self._n_updates += steps * self.n_envs

    def _note(self, known: KnownEnvs, ends: EpisodeEnds, n_ended: int) -> None:
        """Record the episodes that ended in monitors, and set the states of environments."""
        assert self.runner is not None
        columns = (ends.envs, ends.returns, ends.lengths)
        self._ended: dict[int, dict[str, Any]] = {}
        for env, total, length in zip(*(column[:n_ended].tolist() for column in columns), strict=True):
            if (episode := known.note_episode(env, total, length)) is not None:
                self.ep_info_buffer.append(episode)
                self._ended[env] = {"episode": episode}
        for env, state in enumerate(self.places.states.tolist()):
            known.put(env, state, int(self._last.actions[env]) if self.places.lengths[env] else None)
        self.runner.obs = self._observations(self.places.states)
        self.runner.episode_starts = self.places.lengths == 0

    def _observations(self, states: np.ndarray) -> np.ndarray:
        """Observations of known environments, which are Discrete. states [N] -> [N]"""
        return (states + int(self.observation_space.start)).astype(self.observation_space.dtype)  # type: ignore[attr-defined]

    def _as_step(self, known: KnownEnvs, ends: EpisodeEnds, n_ended: int) -> dict[str, Any]:
        """The one step of a stretch, under the names that callbacks read."""
        assert self.runner is not None
        dones = np.zeros(self.n_envs, bool)
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in range(self.n_envs)]
        for row, env in enumerate(ends.envs[:n_ended].tolist()):
            last = self._observations(self._last.successors)[env]
            dones[env] = True
            infos[env] = {"TimeLimit.truncated": bool(ends.truncated[row]), "terminal_observation": last}
            infos[env] |= self._ended.get(env, {})
        actions = self._as_actions(self._last.actions)
        return {
            "actions": actions,
            "buffer_actions": self._last.actions,
            "rewards": self._last.rewards.astype(np.float32),
            "dones": dones,
            "infos": infos,
            "new_obs": self.runner.obs,
        }

    def _sync_environments(self) -> None:
        """Set states and episodes in wrappers, so that other code can step the environments."""
        if self._known is None:
            return
        columns = self.places.returns.tolist(), self.places.lengths.tolist()
        for env, (total, length) in enumerate(zip(*columns, strict=True)):
            self._known.put_episode(env, total, length)

    # -- steps that must be asked for ----------------------------------------------------------------------------------

    def _ask(self) -> dict[str, Any]:
        """Make one step of the environments and learn from it; its parts, under the names that callbacks read."""
        assert self.runner is not None
        self._make_room(1)
        self.tables = self.tables._replace(**self._numbers())
        actor: Any = self.runner.actor
        actor.draws = self._stream.random((self.n_envs, self._n_draws()))
        alpha, actor.epsilon = (float(self._along(name, 1)[0]) for name in ("learning_rate", "epsilon"))
        step = self.runner.step()
        with self._split.update:
            self._learn_from(step, alpha, actor.epsilon, actor.draws)
        self._count(1)
        self._episode_num += int(np.count_nonzero(step.dones))
        if step.episodes:
            self.statistics.note(step.episodes)
        return {
            "actions": step.env_actions,
            "buffer_actions": step.actions,
            "rewards": step.rewards,
            "dones": step.dones,
            "infos": list(step.infos),
            "new_obs": step.new_obs,
        }

    def _learn_from(self, step: Step, alpha: float, epsilon: float, draws: np.ndarray) -> None:
        states, successors = (self.numbering.states(obs)[0] for obs in (step.observations, step.next_observations))
        masks = step.extras.get("next_masks")
        places, carries, learn = self.places, self._carries(), self._rule().learn
        places.states[:] = self.numbering.states(step.new_obs)[0]
        self._finished: list[tuple[float, int]] = []
        for env in range(self.n_envs):
            successor, terminated, ended = int(successors[env]), bool(step.terminated[env]), bool(step.dones[env])
            action, chance, reward = int(places.actions[env]), float(places.chances[env]), float(step.rewards[env])
            next_action, next_chance = -1, 1.0
            if masks is not None:
                self.legal[successor] = masks[env]
            if carries and not terminated:
                explores, which = draws[env, NEXT_EXPLORES], draws[env, NEXT_WHICH]
                next_action, next_chance = choose(self.q, self.legal, successor, epsilon, explores, which)
            places.lengths[env] += 1
            places.returns[env] += reward
            moment = (env, int(states[env]), action, chance, reward, successor, next_action, next_chance)
            learn(self.tables, TableTransition(*moment, terminated, ended, alpha, epsilon), draws[env])
            places.actions[env], places.chances[env] = next_action, next_chance
            if ended:
                self._finished.append((float(places.returns[env]), int(places.lengths[env])))
                places.actions[env], places.lengths[env], places.returns[env] = -1, 0, 0.0

    # -- logging and files ---------------------------------------------------------------------------------------------

    def dump_logs(self) -> None:
        """Write the statistics of finished episodes, the speed and whatever was recorded since the last dump."""
        self.logger.record("rollout/exploration_rate", self._explores())
        if callable(self.learning_rate):
            self.logger.record("train/learning_rate", float(self.learning_rate(self._current_progress_remaining)))
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self._write_logs(episodes=self._episode_num)

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "stream": self._stream.bit_generator.state}

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        super()._load_extra_state(state)
        self._stream_of_file = state["stream"]

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        self._sync_environments()
        super()._save_state(saved, include)
        tables = vars_of(self.tables)
        saved.state |= prefixed("mind", {name: tables[name].copy() for name in self._tables()})
        saved.state |= prefixed("actor/memory", {name: tables[name].copy() for name in self._memory()})
        saved.state |= prefixed("actor/places", {name: array.copy() for name, array in self.places._asdict().items()})

    def _load_state(self, saved: Saved) -> None:
        super()._load_state(saved)
        self._take_back(saved.state_of("mind"), list(self._tables()))

    def _take_back(self, arrays: Mapping[str, np.ndarray], names: list[str]) -> None:
        """Load arrays of a file, of any length, into the tables."""
        self.tables = self.tables._replace(**{name: arrays[name].copy() for name in names})

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        if resume:
            self._stream.bit_generator.state = self._stream_of_file
        if self.runner is None or self.runner.obs is None or saved.info["n_envs"] != self.n_envs:
            return  # new episodes begin
        self._take_back(saved.state_of("actor/memory"), list(self._memory()))
        for name, array in saved.state_of("actor/places").items():
            getattr(self.places, name)[...] = array


class TableActor:
    """Epsilon-greedy actions of a table, by given random numbers.

    Args:
        model: whose table.
    """

    def __init__(self, model: TabularLearning) -> None:
        self.model = model
        self.draws = np.zeros((model.n_envs, WIDTH))
        """[N, W] of the step to come."""
        self.epsilon = 1.0

    def act(self, observations: Any, episode_starts: Any = None, masks: np.ndarray | None = None) -> Acted:
        """Actions [N] for N observations."""
        model, places = self.model, self.model.places
        places.states[:] = model.numbering.states(observations)[0]
        for env, state in enumerate(places.states.tolist()):
            if places.actions[env] < 0:
                if masks is not None:
                    model.legal[state] = masks[env]
                epsilon = 1.0 if model.explores_starts and places.lengths[env] == 0 else self.epsilon
                explores, which = self.draws[env, EXPLORES], self.draws[env, WHICH]
                chosen = choose(model.q, model.legal, state, epsilon, explores, which)
                places.actions[env], places.chances[env] = chosen
        actions = places.actions.copy()
        return Acted(model._as_actions(actions), actions, {})

    def state(self) -> dict[str, np.ndarray]:
        """Empty: the model holds the state."""
        return {}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Nothing to load."""


def vars_of(tables: Any) -> dict[str, Any]:
    """The fields of the tables."""
    fields: dict[str, Any] = tables._asdict()
    return fields
