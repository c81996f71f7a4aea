"""Augmented Random Search (ARS): finite differences of episode returns along random directions.

Mania, Guy and Recht 2018, "Simple random search of static linear policies is competitive for reinforcement learning",
arXiv:1803.07055, algorithm 2. V1 uses raw observations, V2 standardises them, which :class:`~polyak.envs.VecNormalize`
does; with ``n_top`` they are V1-t and V2-t.

Shapes: K directions, P parameters of the policy, C = 2 K candidates, N environments.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from typing_extensions import Self

from polyak.algorithm_info import Card, Search, SearchPart, Task, tune
from polyak.callbacks.callback import BaseCallback, MaybeCallback
from polyak.checkpoint.saved import Saved, prefixed
from polyak.collecting.candidates import CandidateActor
from polyak.experience.step import Step
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Becomes, Count, LearningRate, Positive, later, require
from polyak.learning.learner import Learner, OptimizerRecipe, Tunable, Update
from polyak.loops.clock import Patience
from polyak.loops.on_policy import on_policy_locals
from polyak.loops.training import Loop, engine_checks, restart_if_interrupted
from polyak.loops.updates import record_means
from polyak.network_algorithm import NetworkAlgorithm
from polyak.nn.catalog import PolicyRecipe, policy_aliases
from polyak.nn.policies.direct import DirectPolicy
from polyak.parts.part import MadeOf, Part
from polyak.schedules import Schedule

# -- the direction -----------------------------------------------------------------------------------------------------


def ascent_direction(
    deltas: Tensor, plus: Tensor, minus: Tensor, n_top: int, correction: int = 0
) -> tuple[Tensor, Tensor]:
    """1 / (b sigma_R) sum (r+ - r-) delta over the b best directions, lines 6 and 7 of algorithm 2.

    Directions are ranked by the larger of their two returns; sigma_R is the standard deviation of the 2 b returns used.
    If all returns are equal, the direction is zero.

    Args:
        deltas: [K, P].
        plus, minus: [K] returns with the parameters moved along each direction, and against it.
        n_top: b, at most K.
        correction: the divisor of sigma_R is 2 b minus this.

    Returns:
        the direction [P], and sigma_R [].
    """
    best = torch.maximum(plus, minus).topk(n_top).indices
    plus, minus, deltas = plus[best], minus[best], deltas[best]
    spread = torch.cat([plus, minus]).std(correction=correction)
    return (plus - minus) @ deltas / (n_top * (spread + 1e-6)), spread


# -- one step ----------------------------------------------------------------------------------------------------------


class Trials(NamedTuple):
    """Returns of the candidates."""

    deltas: Tensor  # [K, P]
    plus: Tensor  # [K] returns
    minus: Tensor  # [K]


class ARSLearner(Learner):
    """A policy that moves along directions that improved returns. Nothing is differentiated; the direction replaces a
    gradient: plain gradient descent makes the paper's step, other optimizers make others."""

    optimized = ("policy",)
    policy: DirectPolicy
    delta_std: Tunable[Tensor]
    n_top: Tunable[int | None]
    correction: ClassVar[int] = 0

    def theta(self) -> Tensor:
        """Returns the policy's trainable parameters. [P]"""
        return nn.utils.parameters_to_vector(p for p in self.policy.parameters() if p.requires_grad)

    @torch.no_grad()
    def candidates(self, deltas: Tensor) -> Tensor:
        """Returns parameters moved along each direction, then against each. deltas [K, P] -> [C, P]"""
        steps = self.delta_std * deltas
        return self.theta() + torch.cat([steps, -steps])

    def gradient_step(self, batch: Trials) -> Update:
        """Makes the step theta + alpha / (b sigma_R) sum (r+ - r-) delta, line 7."""
        direction, spread = ascent_direction(*batch, self.n_top or len(batch.deltas), self.correction)
        self.minimise("policy", -(self.theta() @ direction))
        return Update({"return_std": spread, "direction_norm": direction.norm()})


# -- trials ------------------------------------------------------------------------------------------------------------


class Tournament:
    """Assigns candidates to environments and records their returns: all play equally many episodes.

    Args:
        deltas: [K, P] directions.
        candidates: [C, P]
        episodes: number per candidate.
        n_envs: N; environments without an episode left make steps that do not count.
    """

    def __init__(self, deltas: Tensor, candidates: Tensor, episodes: int, n_envs: int) -> None:
        self.deltas, self.candidates, self.episodes = deltas, candidates, episodes
        self.returns = np.zeros(len(candidates))
        self.seats = np.minimum(np.arange(n_envs), self.total)  # indices of episodes; ``total`` for none
        self.running = np.zeros(n_envs)
        self.begun, self.ended = min(n_envs, self.total), 0

    @property
    def total(self) -> int:
        """Number of episodes to play."""
        return len(self.candidates) * self.episodes

    @property
    def is_over(self) -> bool:
        """Whether all episodes have ended."""
        return self.ended == self.total

    def players(self, rows: Any = slice(None)) -> Tensor:
        """Returns the parameters of the candidates in these environments [rows, P]; the last one's for those without
        episode."""
        playing = np.minimum(self.seats[rows], self.total - 1) // self.episodes
        return self.candidates[torch.from_numpy(playing).to(self.candidates.device)]

    def take(self, rewards: np.ndarray, dones: np.ndarray) -> np.ndarray:
        """Count a step of the environments: rewards [N], dones [N]. Returns the environments whose episode has ended,
        so that another begins."""
        self.running += rewards
        over = np.flatnonzero(dones)
        for i in over:
            if self.seats[i] < self.total:
                self.returns[self.seats[i] // self.episodes] += self.running[i] / self.episodes
                self.seats[i], self.begun, self.ended = self.begun, min(self.begun + 1, self.total), self.ended + 1
        self.running[over] = 0
        return over

    def trials(self) -> Trials:
        """Returns the directions, and the mean return of each candidate."""
        plus, minus = torch.from_numpy(self.returns).to(self.deltas).chunk(2)
        return Trials(self.deltas, plus, minus)

    def state(self) -> tuple[list[int], dict[str, np.ndarray]]:
        """Returns the state as JSON values and arrays."""
        arrays = {"returns": self.returns, "seats": self.seats, "running": self.running}
        tensors = {"deltas": self.deltas, "candidates": self.candidates}
        return [self.episodes, self.begun, self.ended], {
            **arrays,
            **{name: tensor.numpy(force=True) for name, tensor in tensors.items()},
        }

    @classmethod
    def from_state(cls, numbers: list[int], arrays: dict[str, np.ndarray], device: torch.device) -> "Tournament":
        """Restores the tournament that :meth:`state` returned."""
        episodes, begun, ended = numbers
        deltas, candidates = (torch.from_numpy(arrays[name].copy()).to(device) for name in ("deltas", "candidates"))
        again = cls(deltas, candidates, episodes, len(arrays["seats"]))
        again.returns, again.seats, again.running = (arrays[name].copy() for name in ("returns", "seats", "running"))
        again.begun, again.ended = begun, ended
        return again


# -- hyper-parameters --------------------------------------------------------------------------------------------------


def _top(trial: Any, task: Task, drawn: Mapping[str, Any]) -> dict[str, Any]:
    return {"n_top": max(1, round(drawn["n_delta"] * tune.draw_uniform(trial, "top_fraction", 0.1, 1.0)))}


def note_episodes(model: Any, step: Step) -> None:
    """Add the statistics of the episodes that ended in a step."""
    if step.episodes:
        model.statistics.note(step.episodes)


class TournamentLoop:
    """Evaluates candidates, then moves along the directions that improved returns.

    Args:
        model: the algorithm.
        callback: called after every step; may stop training.
        log_interval: tournaments between two tables.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback, self.log_interval, self.follow = (model, callback, log_interval, model._following())
        self.between = engine_checks(model)
        self.tick: Callable[[], None] = model.clock.tick_within
        self.note: Callable[[Any], None] = partial(note_episodes, model)
        model.clock.iterations = 0

    def iterate(self) -> bool:
        """Play a tournament and make a step. Returns False if a callback stops training."""
        model, clock, learner, logger = self.model, self.model.clock, self.model.learner, self.model.logger
        self.follow()
        model._tournament = model._tournament or model.begin_tournament(learner)
        if not self.play(model._tournament):
            return False
        trials, model._tournament = model._tournament.trials(), None
        clock.iterations += 1
        with model._split.update:
            update = learner.update(trials)
        clock.updates += 1
        record_means({name: [value] for name, value in update.metrics.items()}, logger, model.host)
        logger.record("train/delta_std", learner.tunables["delta_std"])
        logger.record("train/n_updates", clock.updates, exclude="tensorboard")
        self.tick()
        if self.log_interval is not None and clock.iterations % self.log_interval == 0:
            model.dump_logs(clock.iterations)
        restart_if_interrupted(model)
        for check in self.between:
            check()
        return True

    def play(self, tournament: Tournament) -> bool:
        """Let all candidates play their episodes, in all environments in parallel. Returns False if a callback stops
        training; the tournament can be continued later."""
        model, callback, runner = self.model, self.callback, self.model.runner
        actor: CandidateActor = runner.actor
        actor.begin(model.policy, tournament.players())
        callback.on_rollout_start()
        patience = Patience(model.clock)
        while not tournament.is_over:
            patience.wait(tournament.ended)
            step = runner.step()
            model.clock.steps += model.n_envs
            self.note(step)
            changed = tournament.take(step.rewards + model.alive_bonus_offset, step.dones)
            if len(changed):
                actor.weights[changed] = tournament.players(changed)
            if callback.needs_locals:
                callback.update_locals(model._callback_locals(callback=callback, **on_policy_locals(step)))
            if not (callback.is_idle or callback.on_step()):
                return False
            if runner.interrupted:  # interrupted episodes start again
                runner.reset()
                tournament.running[:] = 0
        callback.on_rollout_end()
        return True


class Tournaments(Part):
    """The tournament that is under way, or that was restored from a file; returns are raw throughout."""

    raw: ClassVar = True

    def why_numpy(self) -> str:
        return "it tries candidates out by a loop of its own"

    def save(self, saved: Saved, include: set[str]) -> None:
        if self.model._tournament is not None:
            saved.info["tournament"], arrays = self.model._tournament.state()
            saved.state |= prefixed("tournament", arrays)

    def resume(self, saved: Saved, resume: bool) -> None:
        model = self.model
        goes_on = resume and model.runner is not None and saved.info["n_envs"] == model.n_envs
        if goes_on and "tournament" in saved.info:
            arrays = saved.state_of("tournament")
            model._tournament = Tournament.from_state(saved.info["tournament"], arrays, model.device)


@dataclass(eq=False, repr=False)
class ARS(NetworkAlgorithm):
    """Augmented Random Search: a step along random directions weighted by their returns, without gradients
    (arXiv:1803.07055)."""

    n_delta: Count = 8
    """Random directions per update; the policy is evaluated along each of them and against it."""
    n_top: Count | None = None
    """Number of best directions that the update uses; ``None``: all."""
    _: KW_ONLY
    learning_rate: LearningRate = 0.02
    """Step size in units of the direction: a number, or a function of the remaining progress (1 at the start, 0 at the
    end)."""
    delta_std: Positive | Schedule = 0.05
    """Standard deviation of the perturbation of each parameter."""
    zero_policy: WithNetworks[bool] = True
    """Start with all parameters zero."""
    alive_bonus_offset: float = 0.0
    """Added to the reward of every step: -1 cancels an alive bonus of 1."""
    n_eval_episodes: Count = 1
    """Episodes per candidate, over which returns are averaged."""
    device: Becomes[torch.device | str | int, torch.device] = later("cpu")
    """``"cpu"``, ``"cuda"`` or another torch device. For these small policies the CPU is usually faster."""

    loop: ClassVar[Callable[..., Loop]] = TournamentLoop
    learner_class: ClassVar[type[Learner]] = ARSLearner
    policies: ClassVar = {
        "LinearPolicy": PolicyRecipe(
            "LinearPolicy", DirectPolicy, {"net_arch": [], "with_bias": False, "squash_output": False}
        ),
        **policy_aliases(DirectPolicy),
    }
    action_spaces: ClassVar = (spaces.Box, spaces.Discrete)
    made_of: ClassVar[MadeOf] = {"tournament": Tournaments}
    _tournament = cast("Tournament | None", None)  # under way, or restored from a file

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = f"there are only n_delta={self.n_delta} directions. Use {self.n_delta} or less, or None for all."
        require(self.n_top is None or self.n_top <= self.n_delta, "n_top", self.n_top, fix)

    def _default_optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.SGD)

    def _after_setup(self) -> None:
        super()._after_setup()
        if self.zero_policy:
            with torch.no_grad():
                for parameter in self.policy.parameters():
                    parameter.zero_()

    def make_actor(self) -> CandidateActor:
        """Returns an actor with the parameters of the candidates."""
        return CandidateActor(self.policy)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def begin_tournament(self, learner: ARSLearner) -> Tournament:
        """Draw new directions and start new episodes in all environments."""
        assert self.runner is not None
        if not np.all(self.runner.episode_starts):
            self._start_episodes()
        deltas = torch.randn(self.n_delta, len(learner.theta()), device=self.device)
        return Tournament(deltas, learner.candidates(deltas), self.n_eval_episodes, self.n_envs)

    def _start_episodes(self) -> None:
        super()._start_episodes()
        self._tournament = None

    def learn(  # type: ignore[override]  # in sb3_contrib's order
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        async_eval: None = None,
        progress_bar: bool = False,
    ) -> Self:
        """Train: see :meth:`Algorithm.learn`.

        Args:
            async_eval: must be ``None``. All environments of a vector play in parallel, each with its own candidate;
                those of a ``SubprocVecEnv`` in separate processes.

        Raises:
            ValueError: ``async_eval`` is not ``None``.
        """
        fix = "give the model several environments instead: make_vec_env(..., n_envs=8, vec_env_cls=SubprocVecEnv)."
        require(async_eval is None, "async_eval", async_eval, fix)
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    card: ClassVar[Card] = Card(
        idea="a step along random directions that were worth it, without gradients",
        learns_from="its own episodes",
        search=Search(
            tune.power_of_two("n_delta", 2, 32),
            tune.rate(1e-3, 0.2),
            tune.log_uniform("delta_std", 0.01, 0.5),
            SearchPart("n_top", _top),
        ),
    )
