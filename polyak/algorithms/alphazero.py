"""AlphaZero.

Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and Go through self-play"
(Science 362, arXiv:1712.01815). With ``selection="gumbel"``: Danihelka et al. 2022, "Policy improvement by planning
with Gumbel" (ICLR).

A network that evaluates positions guides a tree search, and is trained on the search's policies and the outcomes of
games. The search is in :mod:`polyak.algorithms.search.mcts`, self-play in :mod:`polyak.algorithms.search.self_play`.

Shapes: B positions, A moves. Positions and values are from the view of the player to move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from polyak.algorithm_info import Card
from polyak.algorithms.search.crew import Crew, Player
from polyak.algorithms.search.mcts import MCTS, Found, read_observation
from polyak.algorithms.search.position_buffer import PositionBuffer, Positions
from polyak.algorithms.search.rules import draw, softmax
from polyak.algorithms.search.self_play import SelfPlay, match
from polyak.arrays import under
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.exporting import not_exported
from polyak.checkpoint.saved import Saved, prefixed
from polyak.envs.games.game import Game
from polyak.envs.games.known import find_game, name_of
from polyak.envs.masks import masks_for_rows
from polyak.evaluation.elo import rating
from polyak.evaluation.undisturbed import undisturbed
from polyak.hyperparameters.changing import NewModel, Reload
from polyak.hyperparameters.declaration import (
    Becomes,
    Count,
    Fraction,
    LearningRate,
    Natural,
    NonNegative,
    Parallel,
    Positive,
    Processes,
    later,
    require,
)
from polyak.learning.learner import Learner, Objective, Tunable, Update
from polyak.loops.clock import write_logs
from polyak.loops.training import Loop, engine_checks
from polyak.loops.updates import measured, record_means
from polyak.network_algorithm import NetworkAlgorithm
from polyak.nn.catalog import PolicyRecipe
from polyak.nn.policies.game import GamePolicy
from polyak.parts.part import KeptWithExperience

# -- losses ------------------------------------------------------------------------------------------------------------


def policy_loss(logits: Tensor, legal: Tensor, policies: Tensor) -> Tensor:
    """-E[pi . log p], the second term of eq. 1, with p over legal moves only. logits, legal, policies [B, A] -> []"""
    log_p = logits.masked_fill(~legal, -1e9).log_softmax(1)
    return -(policies * log_p).sum(1).mean()


def value_loss(values: Tensor, outcomes: Tensor) -> Tensor:
    """E[(z - v)^2], the first term of eq. 1. both [B] -> []"""
    return ((outcomes - values) ** 2).mean()


def squared_norm(parameters: Iterable[Tensor]) -> Tensor:
    """||theta||^2, the third term of eq. 1. -> []"""
    return torch.stack([(p**2).sum() for p in parameters]).sum()


# -- one gradient step -------------------------------------------------------------------------------------------------


class AlphaZeroLearner(Learner):
    """Fits a network's policy to the search's, and its value to the outcomes of games."""

    optimized = ("policy",)
    policy: GamePolicy
    value_coef: Tunable[Tensor]
    l2_coef: Tunable[Tensor]

    def gradient_step(self, batch: Positions) -> Update:
        """Makes a gradient step towards search policies and outcomes."""
        logits, values = self.policy.evaluate(batch.observations)
        objective = self.objective(batch, logits, values)
        self.minimise("policy", objective.loss)
        return Update({"loss": objective.loss.detach(), **objective.metrics})

    def objective(self, batch: Positions, logits: Tensor, values: Tensor) -> Objective:
        """Returns the loss of eq. 1, with the value term weighted by ``value_coef``."""
        chosen, won = policy_loss(logits, batch.legal, batch.policies), value_loss(values, batch.values)
        loss = chosen + self.value_coef * won + self.l2_coef * squared_norm(self.policy.parameters())
        return Objective(loss, {"policy_loss": chosen.detach(), "value_loss": won.detach()})


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class SearchLoop:
    """Plays games against itself, and learns from its searches.

    Args:
        model: the algorithm.
        callback: called after every round of moves; may stop training.
        log_interval: games per board between two tables.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback, self.follow = model, callback, model._following()
        self.every = None if log_interval is None else log_interval * model.n_games
        self.between = engine_checks(model)

    def iterate(self) -> bool:
        """Make a move in each game, and gradient steps if they are due. Returns False if a callback stops training."""
        model, clock, memory = self.model, self.model.clock, self.model.replay_buffer
        model.policy.set_training_mode(False)
        with model._split.env:
            ended = model.self_play.move()
        clock.steps += model.n_games
        model._moves += 1
        memory.add(ended.observations, ended.policies, ended.legal, ended.values)
        for length, result in zip(ended.lengths, ended.results, strict=True):
            model.statistics.episodes.append({"r": float(result), "l": int(length)})
        before, clock.episodes = clock.episodes, clock.episodes + len(ended.lengths)
        clock.tick()
        if model._moves % model.train_freq == 0 and memory.size() > model.learning_starts:
            with model._split.update:
                self.learn(model.gradient_steps, model.batch_size)
        if model.rate_freq and clock.steps - model._rated_at >= model.rate_freq:
            model.rate()
        if self.every is not None and before // self.every < clock.episodes // self.every:
            write_logs(model, {"episodes": clock.episodes})
        if not self.callback.on_step():  # last, so that a file written by it holds the whole round
            return False
        for check in self.between:
            check()
        return True

    def learn(self, steps: int, rows: int) -> None:
        """Make gradient steps on played positions."""
        model, logger = self.model, self.model.logger
        model.policy.set_training_mode(True)
        self.follow()
        metrics = measured(model.learner.update(model.replay_buffer.sample(rows)) for _ in range(steps))
        model.clock.updates += steps
        record_means(metrics, logger, model.host)
        logger.record("train/n_updates", model.clock.updates, exclude="tensorboard")
        if isinstance(model.self_play, Crew):
            logger.record("train/policy_lag", model.self_play.lag)
        model.policy.set_training_mode(False)


@dataclass(eq=False, repr=False)
class AlphaZero(NetworkAlgorithm):
    """AlphaZero: self-play by a tree search that a network guides and is trained on (arXiv:1712.01815).

    ``learn(total_timesteps)`` counts positions played. Logged rewards are the results of games for the player of the
    first move that was not random; ratings are those of :meth:`rate`.
    """

    env: NewModel[Becomes[Game | str | None, Game | None]] = later()  # type: ignore[assignment]
    """A game: ``"connect4"``, ``"go"``, ``"tictactoe"``, or a :class:`~polyak.envs.games.game.Game`; ``None`` for a
    model that only predicts."""
    learning_rate: LearningRate = 1e-3
    """Step size of the optimizer: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    simulations: Reload[Count] = 50
    """Positions evaluated in each search."""
    n_games: Reload[Parallel] = 128
    """Games that are played in parallel."""
    n_workers: Reload[Processes] = 0
    """Processes that play these games while this one learns; 0: this one plays them itself. With processes, moves use
    weights that are one round of learning old, equal seeds still give equal games, and the program that calls ``learn``
    must be guarded by ``if __name__ == "__main__":``."""
    crew_class: Reload[type[Crew] | None] = None
    """The kind of these processes: on this machine (:class:`~polyak.algorithms.search.crew.Crew`, the default of
    ``None``), or :class:`~polyak.algorithms.search.ray_crew.RayCrew`, on Ray. The games are the same."""
    buffer_size: Reload[Count] = 100_000
    """Positions that the replay buffer holds."""
    learning_starts: Natural = 2_000
    """Positions collected before learning begins."""
    batch_size: Count = 256
    """Positions per minibatch."""
    train_freq: Count = 1
    """Moves of every game between two rounds of gradient steps."""
    gradient_steps: Count = 4
    """Gradient steps per round."""
    value_coef: NonNegative = 1.0
    """Weight of the value loss."""
    l2_coef: NonNegative = 1e-5
    """Weight of the sum of squared weights."""
    selection: Reload[Literal["puct", "gumbel"]] = "puct"
    """How the search selects moves."""
    exploration: Reload[NonNegative] = 1.25
    """Weight of the network's prior in the search, relative to the values found."""
    solves: Reload[bool] = True
    """Whether the search detects forced wins and losses exactly; the paper's does not."""
    dirichlet_alpha: Reload[Positive | None] = None
    """Concentration of the Dirichlet noise at the root during training; ``None``: 10 / number of moves."""
    dirichlet_fraction: Reload[Fraction] = 0.25
    """Weight of the Dirichlet noise."""
    warm_moves: Reload[Natural] = 10
    """Moves at the start of each training game that are drawn in proportion to visits; later ones are the best moves.
    ``opening_moves`` do not count."""
    opening_moves: Reload[Natural] = 0
    """Largest number of random moves before a game is played and learned from; the number is drawn uniformly from 0 for
    each game. None of these moves ends a game."""
    keeps_trees: Reload[bool] = True
    """Whether a search continues from the subtree of the previous one."""
    symmetric: Reload[bool] = True
    """Whether positions are augmented by the game's symmetries."""
    rate_freq: Natural = 0
    """Positions played between two matches against past versions, which rate the present one; 0: none."""
    rated_games: Count = 40
    """Games against each past version."""
    past_selves: Count = 3
    """Number of past versions that are kept."""

    loop: ClassVar[Callable[..., Loop]] = SearchLoop
    learner_class: ClassVar[type[Learner]] = AlphaZeroLearner
    policies: ClassVar = {
        "MlpPolicy": PolicyRecipe("MlpPolicy", GamePolicy),
        "CnnPolicy": PolicyRecipe("CnnPolicy", GamePolicy, {"tower": True}),
    }
    made_of: ClassVar = {
        "kept": partial(KeptWithExperience, names={"elo": "elo", "moves": "_moves", "rated_at": "_rated_at"})
    }
    steps_environments: ClassVar = False
    supports_masks: ClassVar = True

    def _read_arguments(self) -> None:
        super()._read_arguments()
        self.past: list[tuple[GamePolicy, float]] = []
        """Past versions and their ratings, the latest last."""
        self.elo = 0.0
        """The latest rating; the first version has 0."""
        self._rated_at = self._moves = 0

    # -- construction --------------------------------------------------------------------------------------------------

    def _attach_env(self, env: Any) -> None:
        self.env = game = find_game(env)
        self.observation_space, self.action_space = game.observation_space, game.action_space

    def _summary(self) -> dict[str, str]:
        return {"game": "none" if vars(self).get("env") is None else repr(self.env), **super()._summary()}

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.env is None:
            return
        game = self.env
        self.search = self._searcher(self.policy)
        self.self_play = self._games()
        self.replay_buffer = PositionBuffer(
            self.buffer_size,
            game.observation_shape,
            game.n_moves,
            game.symmetries() if self.symmetric else Game.symmetries(game),
            self.device,
        )

    acting_graph = not_exported(
        "it looks ahead by the rules of its game before each move, and no graph of tensors holds these. Save the "
        "model, and load it beside the game"
    )

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = f"each needs a game to play: at most n_games={self.n_games}."
        require(self.n_workers <= self.n_games, "n_workers", self.n_workers, fix)
        fix = "with n_workers=0 this process plays by itself. Say how many others there are: n_workers=2."
        require(self.crew_class is None or self.n_workers > 0, "crew_class", self.crew_class, fix)

    def _searcher(self, policy: Any) -> MCTS:
        """Returns a tree search guided by a network."""
        return searcher(policy, self.env, **self._search_settings())

    def _search_settings(self) -> dict[str, Any]:
        return {
            "simulations": self.simulations,
            "selection": self.selection,
            "exploration": self.exploration,
            "solves": self.solves,
            "dirichlet_alpha": self.dirichlet_alpha,
            "dirichlet_fraction": self.dirichlet_fraction,
        }

    def _play_settings(self) -> dict[str, Any]:
        return {
            "warm_moves": self.warm_moves,
            "keeps_trees": self.keeps_trees,
            "opening_moves": self.opening_moves,
        }

    def _games(self) -> SelfPlay | Crew:
        """Returns the self-play of this process or of several others."""
        if self.n_workers == 0:
            return SelfPlay(self.search, self.n_games, **self._play_settings())
        make = partial(make_player, self.make_policy(), self.env, self._search_settings(), self._play_settings())
        seeds = np.random.randint(2**31, size=self.n_workers)
        return (self.crew_class or Crew)(make, self.n_games, self.n_workers, self._weights, seeds)

    def _weights(self, known: int | None) -> tuple[int, list[np.ndarray] | None]:
        """Returns the version of the weights, and the weights unless ``known`` is that version."""
        if self.learner.steps == known:
            return self.learner.steps, None
        return self.learner.steps, [tensor.numpy(force=True).copy() for tensor in self.policy.state_dict().values()]

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        rounds = -(-timesteps // (self.n_games * self.train_freq))
        return rounds * self.gradient_steps, self.batch_size

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        super()._check_ready()
        if self.env is None:
            raise ValueError(
                "env=None: this model has no game to learn. Pass one: `AlphaZero.load(path, env=...)` or "
                "`AlphaZero('MlpPolicy', 'connect4')`."
            )

    def _prepare_to_learn(self, reset: bool) -> None:
        super()._prepare_to_learn(reset)
        if reset:
            self._rated_at = 0

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        with super()._while_learning():
            if not isinstance(self.self_play, Crew):
                yield
                return
            try:
                self.self_play.start()
                yield
            finally:
                self.self_play.rest()

    def rate(self) -> float:
        """Play against past versions; returns the present one's Elo rating, and keeps a copy of the policy."""
        self._rated_at = self.num_timesteps
        self.policy.set_training_mode(False)
        games = [self.rated_games] * len(self.past)
        with undisturbed(self):
            points = [match(self.search, self._searcher(past), self.rated_games) for past, _ in self.past]
        if games:
            self.elo = rating([elo for _, elo in self.past], points, games)
            if self._logger is not None:
                self.logger.record("eval/score_against_last", points[-1] / games[-1])
        if self._logger is not None:
            self.logger.record("eval/elo", self.elo)
        self.past = [*self.past, (_frozen(self.policy), self.elo)][-self.past_selves :]
        return self.elo

    # -- acting --------------------------------------------------------------------------------------------------------

    def look_ahead(self, positions: np.ndarray, simulations: int | None = None) -> Found:
        """Returns the search results for positions [B, ...] of the game; ``simulations``: None for the model's."""
        self.policy.set_training_mode(False)
        return self._searching().search(positions, simulations)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        *,
        action_masks: np.ndarray | None = None,
        simulations: int | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Returns the move for one observation or a batch of them.

        Args:
            observation: result of :meth:`Game.observe` for a position, [*observation_shape], or a batch [B, ...]. For
                Connect-4: planes [2, 6, 7] of the player's discs and the opponent's, row 0 at the bottom.
            state, episode_start: ignored; ``state`` is returned.
            deterministic: the best move; False draws in proportion to visits.
            action_masks: [A] or [B, A] bool, to forbid moves; illegal moves are never taken, and at least one legal
                move must be allowed.
            simulations: positions evaluated by the search; None: the model's own number; 0: the network alone.

        Returns:
            the move or moves, and ``state``.

        Raises:
            ValueError: a position is impossible, or its game is over; masks have a shape that does not fit the
                observations, have entries other than 0 and 1, or forbid all legal moves.
        """
        search = self._searching()
        self.policy.set_training_mode(False)
        single, positions = read_observation(search.game, observation)
        if simulations == 0:
            shares, _ = evaluated(self.policy, search.game, positions, search.game.legal(positions))
        else:
            shares = search.search(positions, simulations).policy
        if action_masks is not None:
            allowed = masks_for_rows(action_masks, len(positions), search.game.n_moves, search.game.action_space)
            shares = _of_allowed(shares, allowed & search.game.legal(positions))
        moves = shares.argmax(1) if deterministic else draw(shares, np.random)
        return (moves[0] if single else moves), state

    def _searching(self) -> MCTS:
        require(self.env is not None, "env", None, "a search needs the rules. Pass the game: load(path, env=...).")
        return self.search

    # -- files ---------------------------------------------------------------------------------------------------------

    def _description(self) -> dict[str, Any]:
        return {**super()._description(), "game": None if self.env is None else name_of(self.env)}

    def _enter(self, saved: Saved, env: Any) -> None:
        game = saved.info.get("game") if env is None else env
        if game is None:
            return
        game = find_game(game)
        for name in ("observation_space", "action_space"):
            mine, theirs = getattr(self, name), getattr(game, name)
            require(mine == theirs, "env", game, f"its {name} is {theirs}, that of the file {mine}.")
        self._attach_env(game)

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        if self.env is None:
            return
        for i, (policy, _) in enumerate(self.past):
            saved.state |= prefixed(f"past/{i}", {k: v.numpy(force=True) for k, v in policy.state_dict().items()})
        if "replay_buffer" in include:
            saved.replay = prefixed("positions", self.replay_buffer.state_dict())
            saved.replay |= prefixed("self_play", self.self_play.state())

    def _load_state(self, saved: Saved) -> None:
        super()._load_state(saved)
        past = saved.state_of("past")
        for i in range(len({name.partition("/")[0] for name in past})):
            policy = _frozen(self.policy)
            policy.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in under(str(i), past).items()})
            self.past.append((policy, 0.0))

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "past_elo": [elo for _, elo in self.past]}

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        super()._load_extra_state(state)
        self.past = [(policy, elo) for (policy, _), elo in zip(self.past, state["past_elo"], strict=True)]

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        if resume and saved.replay and self.env is not None:
            self.replay_buffer.load_state_dict(under("positions", saved.replay))
            self.self_play.load_state(under("self_play", saved.replay))

    card: ClassVar[Card] = Card(
        idea="a search that a network guides, and a network that learns from it",
        learns_from="games against itself",
        observations='boards (`"MlpPolicy"`, `"CnnPolicy"`)',
        needs="game",
    )


def searcher(policy: Any, game: Any, **settings: Any) -> MCTS:
    """Returns a tree search of a game, guided by a network."""
    return MCTS(game, partial(evaluated, policy, game), **settings)


def make_player(
    make_policy: Callable[[], Any], game: Any, searching: dict[str, Any], playing: dict[str, Any], n_games: int
) -> Player:
    """Returns the player of a worker process, which runs on one thread.

    Args:
        make_policy: creates the network.
        game: the rules.
        searching: options of the search.
        playing: options of :class:`~polyak.algorithms.search.self_play.SelfPlay`.
        n_games: games of this process.
    """
    torch.set_num_threads(1)
    policy = make_policy().requires_grad_(False)
    policy.set_training_mode(False)

    def take(weights: Sequence[np.ndarray]) -> None:
        copies = map(torch.tensor, weights)  # the arrays may be read-only
        policy.load_state_dict(dict(zip(policy.state_dict(), copies, strict=True)))

    return Player(SelfPlay(searcher(policy, game, **searching), n_games, **playing), take)


def evaluated(policy: Any, game: Any, positions: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the network's probabilities of legal moves [B, A] and values [B] of positions [B, ...]."""
    with torch.inference_mode():
        logits, values = policy.evaluate(torch.from_numpy(game.observe(positions)).to(policy.device))
    return softmax(np.where(legal, logits.numpy(force=True), -np.inf)), values.numpy(force=True)


def _of_allowed(shares: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Restricts shares [B, A] to allowed moves [B, A]; if the search visited none of these, they get equal shares.

    Raises:
        ValueError: no legal move is allowed.
    """
    if not allowed.any(1).all():
        at = int(np.argmin(allowed.any(1)))
        raise ValueError(f"action_masks forbid all that is legal in position {at}. Allow at least one legal move.")
    shares = np.where(allowed, shares, 0)
    return np.where(shares.sum(1, keepdims=True) > 0, shares, allowed)


def _frozen(policy: Any) -> Any:
    """Returns a copy without gradients and optimizer."""
    copy: Any = deepcopy(policy)
    copy.__dict__.pop("optimizer", None)
    return copy.requires_grad_(False)
