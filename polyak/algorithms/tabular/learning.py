"""Learning a table online: the loop around an update rule.

A rule is a function of tables, a transition and random numbers (:mod:`polyak.algorithms.tabular.walking`). If the
transitions of the environments are known (:mod:`polyak.envs.tabular.known`), one loop over arrays, which numba
compiles, makes many steps at once; other environments are stepped one by one. Callbacks are called after every step.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from polyak.algorithms.tabular.choosing import choose
from polyak.algorithms.tabular.table import Solver, TableAlgorithm
from polyak.algorithms.tabular.walking import (
    EXPLORES,
    NEXT_EXPLORES,
    NEXT_WHICH,
    WHICH,
    WIDTH,
    EpisodeEnds,
    Kernel,
    LastSteps,
    Learn,
    Places,
    TableTransition,
    Walk,
    compiled,
    make_walk,
)
from polyak.arrays import under
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.saved import Saved, prefixed
from polyak.collecting.runner import Acted
from polyak.envs import VecEnv
from polyak.envs.tabular.known import KnownEnvs
from polyak.experience.step import Step
from polyak.hyperparameters.changing import Fixed
from polyak.hyperparameters.declaration import Count, Fraction, fitted, require
from polyak.hyperparameters.held import Held
from polyak.loops.training import Loop, restart_if_interrupted
from polyak.schedules import Schedule

_STRETCH = 10_000
"""Steps that are made at once if no callback needs each of them."""
_FEW = 50_000
"""Number of steps up to which compiling a loop does not pay off."""
_WALKED: Counter[Learn] = Counter()
"""Steps that this process has made by each rule: many short runs count as a long one."""
_NAMES = ("actions", "buffer_actions", "rewards", "dones", "infos", "new_obs")
"""Names of a step's values in callbacks' ``locals``."""


class EndedEpisodes(NamedTuple):
    """Ended episodes, in the order of their ends."""

    returns: np.ndarray
    """[n] sums of rewards."""
    lengths: np.ndarray
    """[n] steps."""


class Rule:
    """An update rule of a table: its kernel, the arrays that it needs, and the hyper-parameters that it reads.

    Args:
        model: the algorithm.
    """

    n_tables = 1
    """Number K of tables, which are summed."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def kernel(self) -> Kernel:
        """The function that is applied to each transition."""
        raise NotImplementedError

    @property
    def carries(self) -> bool:
        """Whether the next action is chosen before the rule is applied, and then taken."""
        return False

    @property
    def explores_starts(self) -> bool:
        """Whether episodes begin with a random action, and if possible in a random state."""
        return False

    @property
    def n_draws(self) -> int:
        """Number of random numbers per step."""
        return WIDTH

    def check(self) -> None:
        """Refuse invalid hyper-parameters."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns arrays by state and action, besides ``q`` and ``legal``."""
        return {"visits": np.zeros(self.model.q.shape, np.int64)}

    def memory(self) -> dict[str, np.ndarray]:
        """Returns arrays of the running episodes, [N, ...]: empty when all is 0."""
        return {}

    def numbers(self) -> dict[str, Any]:
        """Returns the hyper-parameters that the kernel reads."""
        return {"gamma": float(self.model.gamma)}

    def with_room(self, tables: Any, steps: int) -> Any:
        """Returns tables with room for ``steps`` further steps."""
        return tables


def steps_of_episodes(n_envs: int, steps: int) -> dict[str, np.ndarray]:
    """Returns empty arrays for the steps of N running episodes, [N, steps] each, and for their counts, [N]."""
    ints = {name: np.zeros((n_envs, steps), np.int64) for name in ("states", "actions")}
    floats = {name: np.zeros((n_envs, steps)) for name in ("chances", "rewards")}
    return {**ints, **floats, "counts": np.zeros(n_envs, np.int64)}


class Made(NamedTuple):
    """The result of some steps."""

    steps: int
    episodes: list[tuple[float, int]]
    """Return and length of each episode that ended, in the order of their ends."""
    shown: Callable[[], tuple[Any, ...]]
    """Returns the values of :data:`_NAMES`, for a single step."""


def log_learning(model: Any) -> None:
    """Logs the exploration rate and the counters."""
    rate, clock, logger = model.learning_rate, model.clock, model.logger
    logger.record("rollout/exploration_rate", model.solver.explores)
    if callable(rate):
        logger.record("train/learning_rate", float(rate(clock.remaining)))
    logger.record("train/n_updates", clock.updates, exclude="tensorboard")
    logger.record("time/episodes", clock.episodes, exclude="tensorboard")


class Walker(Solver):
    """Acts, and applies a rule to each step.

    Args:
        rule: the class of the rule.
        model: the algorithm.
    """

    acts = True
    logs: ClassVar = (log_learning,)

    def __init__(self, rule: type[Rule], model: Any) -> None:
        super().__init__(model)
        self.rule = rule(model)
        self.n_tables = rule.n_tables
        self.stream = np.random.default_rng()
        self.known: KnownEnvs | None = None
        """The environments, if their transitions are known."""

    def check(self) -> None:
        self.rule.check()
        if self.model.compile is True and compiled(self.rule.kernel) is None:
            raise ImportError("compile=True needs numba: pip install 'polyak[fast]', or leave compile='auto'.")

    def meet(self, env: VecEnv) -> None:
        self.known = KnownEnvs.behind(env)
        if self.known is not None:
            self.world = self.known.world(self.rule.explores_starts)
            self.model.legal[...] = self.known.legal

    def build(self) -> None:
        model, n = self.model, self.model.n_envs
        model.q[...] = model.initial_value
        states, actions, lengths = (np.zeros(n, np.int64) for _ in range(3))
        self.places = Places(states, actions, np.zeros(n), lengths, np.zeros(n))
        arrays, memory = self.rule.arrays(), self.rule.memory()
        self.learned, self.under_way = list(arrays), list(memory)
        """Names of the rule's arrays: learned ones, and those of running episodes."""
        self.tables = self.rule.kernel.tables(q=model.q, legal=model.legal, **arrays, **memory, **self.rule.numbers())

    def seed(self, seed: int) -> None:
        self.stream = np.random.default_rng(seed)

    @property
    def explores(self) -> float:
        epsilon = self.model.epsilon
        return float(epsilon(self.model.clock.remaining) if callable(epsilon) else epsilon)

    # -- learning ------------------------------------------------------------------------------------------------------

    def walk_for(self, steps: int) -> Walk:
        """Returns the function that makes many steps at once: machine code if ``steps`` are worth compiling it."""
        wanted = self.model.compile is True or (self.model.compile == "auto" and steps > _FEW)
        walk = compiled(self.rule.kernel) if wanted else None
        return make_walk(self.rule.kernel.learn) if walk is None else walk

    def begin_episodes(self) -> None:
        places = self.places
        places.states[:] = self.model.numbering.states(self.model.runner.obs)[0]
        if self.known is not None and self.rule.explores_starts:
            places.states[:] = np.searchsorted(self.world.starts, self.stream.random(self.model.n_envs), "right")
        places.actions[:] = -1
        for numbers in (places.lengths, places.returns, *(getattr(self.tables, name) for name in self.under_way)):
            numbers[...] = 0

    def learn_episodes(self, n_episodes: int) -> EndedEpisodes:
        """Train for whole episodes, without callbacks and logs, and return their statistics.

        New episodes start; schedules follow the share of episodes that have ended.

        Args:
            n_episodes: number of episodes; with several environments those that end first.

        Returns:
            their returns and lengths.

        Raises:
            ValueError: ``n_episodes`` is less than 1, or there is no environment.
        """
        n_episodes = fitted("n_episodes", n_episodes, Count)
        model = self.model
        model._check_ready()
        model._prepare_to_learn(reset=True)
        found: list[tuple[float, int]] = []
        with model._while_learning():
            while (missing := n_episodes - len(found)) > 0:
                left = model.clock.remaining = 1 - len(found) / n_episodes
                walk = self.walk_for(_WALKED[self.rule.kernel.learn])
                found += self.advance(walk, min(_STRETCH, 64 * missing), missing, left).episodes
        return EndedEpisodes(*map(np.array, zip(*found[:n_episodes], strict=True)))

    def advance(self, walk: Walk, steps: int, n_episodes: int = 2**62, left: float | None = None) -> Made:
        """Make up to ``steps`` steps in each environment, or until ``n_episodes`` have ended.

        Args:
            walk: makes steps of known environments.
            steps: number of steps; one is made in environments that must be stepped.
            n_episodes: at least 1.
            left: remaining share of the training, if it does not follow from the number of steps.
        """
        clock, n = self.model.clock, self.model.n_envs
        steps = 1 if self.known is None else steps
        self.tables = self.rule.with_room(self.tables, steps)._replace(**self.rule.numbers())
        draws = self.stream.random((steps, n, self.rule.n_draws))
        rates = [self.along(name, steps, left) for name in ("learning_rate", "epsilon")]
        made = self.ask(rates, draws) if self.known is None else self.stretch(walk, n_episodes, rates, draws)
        if unused := draws[made.steps :].size:  # unused numbers are drawn again
            self.stream.bit_generator.advance(2**128 - unused)  # type: ignore[attr-defined]
        _WALKED[self.rule.kernel.learn] += made.steps * n
        clock.steps += made.steps * n
        clock.updates += made.steps * n
        clock.episodes += len(made.episodes)
        return made

    def along(self, name: str, steps: int, left: float | None = None) -> np.ndarray:
        """Returns a hyper-parameter, possibly a schedule, at each of the next steps, [T]; -1 for averages."""
        value, clock, n = getattr(self.model, name), self.model.clock, self.model.n_envs
        if not callable(value):
            return np.full(steps, -1.0 if value == "1/n" else float(value))
        if left is not None:
            values = np.full(steps, float(value(left)))
        else:
            total = max(1, clock.total)
            numbers = range(clock.steps, clock.steps + steps * n, n)
            values = np.array([value(1.0 - min(number, total) / total) for number in numbers], float)
        low, high = values.min(), values.max()
        require(0 <= low <= high <= 1, name, value, f"it gives {low:g} to {high:g}, which must lie in [0, 1].")
        return values

    # -- known environments --------------------------------------------------------------------------------------------

    def stretch(self, walk: Walk, n_episodes: int, rates: list[np.ndarray], draws: np.ndarray) -> Made:
        """Walk T steps with step sizes and exploration rates [T] and random numbers [T, N, W], or until ``n_episodes``
        have ended."""
        known: Any = self.known
        model, rule, places, n = self.model, self.rule, self.places, self.model.n_envs
        ints = [np.zeros(len(draws) * n, np.int64) for _ in range(3)]
        ends = EpisodeEnds(ints[0], ints[1], np.zeros(len(ints[0])), ints[2], np.zeros(len(ints[0]), bool))
        last = LastSteps(np.zeros(n, np.int64), np.zeros(n), np.zeros(n, np.int64))
        arrays = (self.tables, self.world, places, ends, last, *rates, draws)
        with model._split.update:
            steps, n_ended = walk(*arrays, n_episodes, rule.carries, rule.explores_starts)
        episodes = list(zip(ends.returns[:n_ended].tolist(), ends.lengths[:n_ended].tolist(), strict=True))
        entries = {}
        for env, (total, length) in zip(ends.envs[:n_ended].tolist(), episodes, strict=True):
            if (entry := known.note_episode(env, total, length)) is not None:
                model.ep_info_buffer.append(entry)
                entries[env] = {"episode": entry}
        for env, state in enumerate(places.states.tolist()):
            known.put(env, state, int(last.actions[env]) if places.lengths[env] else None)
        model.runner.obs = self.observations(places.states)
        model.runner.episode_starts = places.lengths == 0

        def shown() -> tuple[Any, ...]:
            dones = np.zeros(n, bool)
            infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in range(n)]
            for env, truncated in zip(ends.envs[:n_ended].tolist(), ends.truncated.tolist(), strict=False):
                final = {"terminal_observation": self.observations(last.successors)[env], **entries.get(env, {})}
                dones[env], infos[env] = True, {"TimeLimit.truncated": truncated, **final}
            rewards = last.rewards.astype(np.float32)
            return model._as_actions(last.actions), last.actions, rewards, dones, infos, model.runner.obs

        return Made(steps, episodes, shown)

    def observations(self, states: np.ndarray) -> np.ndarray:
        """Converts states [N] of known environments to their Discrete observations [N]."""
        space = self.model.observation_space
        seen: np.ndarray = (states + int(space.start)).astype(space.dtype)
        return seen

    def rest(self) -> None:
        """Write states and episodes back to the wrappers, so that other code can step the environments."""
        if self.known is None:
            return
        columns = self.places.returns.tolist(), self.places.lengths.tolist()
        for env, (total, length) in enumerate(zip(*columns, strict=True)):
            self.known.put_episode(env, total, length)

    # -- other environments --------------------------------------------------------------------------------------------

    def ask(self, rates: list[np.ndarray], draws: np.ndarray) -> Made:
        """Make one step of the environments and learn from it; arguments as of :meth:`stretch`, T = 1."""
        model = self.model
        alpha, self.epsilon = (float(rate[0]) for rate in rates)
        self.draws = draws[0]
        step = model.runner.step()
        with model._split.update:
            ended = self.learn_from(step, alpha)
        if step.episodes:
            model.statistics.note(step.episodes)
        values = (step.env_actions, step.actions, step.rewards, step.dones, list(step.infos), step.new_obs)
        return Made(1, ended, lambda: values)

    def act(self, observations: Any, episode_starts: Any = None, masks: np.ndarray | None = None) -> Acted:
        """Returns epsilon-greedy actions [N] for N observations, by the random numbers of the step."""
        model, places = self.model, self.places
        places.states[:] = model.numbering.states(observations)[0]
        for env, state in enumerate(places.states.tolist()):
            if places.actions[env] < 0:
                if masks is not None:
                    model.legal[state] = masks[env]
                epsilon = 1.0 if self.rule.explores_starts and places.lengths[env] == 0 else self.epsilon
                explores, which = self.draws[env, EXPLORES], self.draws[env, WHICH]
                chosen = choose(model.q, model.legal, state, epsilon, explores, which)
                places.actions[env], places.chances[env] = chosen
        actions = places.actions.copy()
        return Acted(model._as_actions(actions), actions, {})

    def learn_from(self, step: Step, alpha: float) -> list[tuple[float, int]]:
        """Apply the rule to a step; returns return and length of each episode that ended."""
        model, rule, places, draws, epsilon = self.model, self.rule, self.places, self.draws, self.epsilon
        states, successors = (model.numbering.states(obs)[0] for obs in (step.observations, step.next_observations))
        masks = step.extras.get("next_masks")
        carries, learn = rule.carries, rule.kernel.learn
        places.states[:] = model.numbering.states(step.new_obs)[0]
        finished = []
        for env in range(model.n_envs):
            successor, terminated, ended = int(successors[env]), bool(step.terminated[env]), bool(step.dones[env])
            action, chance, reward = int(places.actions[env]), float(places.chances[env]), float(step.rewards[env])
            next_action, next_chance = -1, 1.0
            if masks is not None:
                model.legal[successor] = masks[env]
            if carries and not terminated:
                explores, which = draws[env, NEXT_EXPLORES], draws[env, NEXT_WHICH]
                next_action, next_chance = choose(model.q, model.legal, successor, epsilon, explores, which)
            places.lengths[env] += 1
            places.returns[env] += reward
            moment = (env, int(states[env]), action, chance, reward, successor, next_action, next_chance)
            learn(self.tables, TableTransition(*moment, terminated, ended, alpha, epsilon), draws[env])
            places.actions[env], places.chances[env] = next_action, next_chance
            if ended:
                finished.append((float(places.returns[env]), int(places.lengths[env])))
                places.actions[env], places.lengths[env], places.returns[env] = -1, 0, 0.0
        return finished

    # -- logging and files ---------------------------------------------------------------------------------------------

    def save(self, saved: Saved, include: set[str]) -> None:
        tables = self.tables._asdict()
        kept = {"mind": self.learned, "actor/memory": self.under_way}
        arrays = {f"{what}/{name}": tables[name] for what, names in kept.items() for name in names}
        arrays |= prefixed("actor/places", self.places._asdict())
        saved.state |= {name: array.copy() for name, array in arrays.items()}

    def state(self) -> dict[str, Any]:
        return {"stream": self.stream.bit_generator.state}

    def load(self, saved: Saved) -> None:
        self.take_back(under("mind", saved.state), self.learned)

    def take_back(self, arrays: Mapping[str, np.ndarray], names: list[str]) -> None:
        """Load arrays of a file, of any length, into the tables."""
        self.tables = self.tables._replace(**{name: arrays[name].copy() for name in names})

    def resume(self, saved: Saved, resume: bool) -> None:
        runner = self.model.runner
        if resume:
            self.stream.bit_generator.state = saved.info["extra_state"]["stream"]
        if runner is None or runner.obs is None or saved.info["n_envs"] != self.model.n_envs:
            return  # new episodes start
        self.take_back(saved.state_of("actor/memory"), self.under_way)
        for name, array in saved.state_of("actor/places").items():
            getattr(self.places, name)[...] = array


class TableLoop:
    """Learns from series of steps.

    Args:
        model: the algorithm.
        callback: called after every step unless it is idle; may stop training.
        log_interval: episodes between two tables.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback, self.log_interval = model, callback, log_interval
        self.walker: Walker = model.solver
        self.walk = self.walker.walk_for(model.clock.total - model.clock.steps)

    def iterate(self) -> bool:
        """Make a series of steps, or one if a callback reads it. Returns False if it stops training."""
        model, walker, callback, clock, every = (
            self.model,
            self.walker,
            self.callback,
            self.model.clock,
            self.log_interval,
        )
        before = clock.episodes
        remaining = max(1, -(-(clock.total - clock.steps) // model.n_envs))
        made = walker.advance(self.walk, min(_STRETCH, remaining) if callback.is_idle else 1)
        clock.tick_within()
        if not callback.is_idle:
            if callback.needs_locals:
                names = dict(zip(_NAMES, made.shown(), strict=True))
                callback.update_locals(model._callback_locals(callback=callback, **names))
            if not callback.on_step():
                return False
        if every is not None and clock.episodes // every > before // every:
            model.dump_logs()
        restart_if_interrupted(model)
        return True


@dataclass(eq=False, repr=False)
class TabularLearning(TableAlgorithm):
    """Algorithms that learn a table online by an update rule: ``partial(Walker, rule)`` is their solver."""

    learning_rate: Literal["1/n"] | Fraction | Schedule = 0.1
    """Step size: a number in [0, 1], a function of the remaining progress (1 at the start, 0 at the end), or ``"1/n"``:
    one over the number of updates of the pair, so that values are averages."""
    _: KW_ONLY
    epsilon: Fraction | Schedule = 0.1
    """Probability of a random action: a number in [0, 1] or a function of the remaining progress."""
    initial_value: Annotated[float, Fixed("the table is filled with it. Set model.q, or make a new model.")] = 0.0
    """Initial action values; optimistic ones cause every action to be tried."""
    compile: bool | Literal["auto"] = "auto"
    """Run the inner loop as machine code (needs ``polyak[fast]``), with bitwise equal results. ``"auto"`` does so in
    long runs, if numba is installed. Only for known transitions: those of a table ``P``."""

    loop: ClassVar[Callable[..., Loop]] = TableLoop
    learn_episodes = Held[Callable[[int], EndedEpisodes]]("solver.learn_episodes")
    """Trains for whole episodes: see :meth:`Walker.learn_episodes`."""
