"""Games against a pool of opponents, as environments of the learning agent.

An opponent takes observations [R, ...] and masks [R, A] and returns moves [R]. Each is called once for all games in
which it is to move.

Shapes: N games, R some of them, A moves.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.games.game import Game
from polyak.envs.games.known import find_game
from polyak.envs.games.tables import Tables, tables_for
from polyak.envs.gym_batch import FINAL
from polyak.envs.validation import MASKS
from polyak.envs.vec.vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

Opponent = Callable[[np.ndarray, np.ndarray | None], np.ndarray]
"""Observations [R, ...] and masks [R, A], ``None`` where everything is allowed, to moves [R]."""
CLASSIC = "pettingzoo:"
"""Prefix of the names of PettingZoo's classics."""
OPENING = 2
"""Random moves at the start of rated games, so that deterministic players play different games."""


class RandomMoves:
    """Plays at random.

    Args:
        n_moves: A.
        rng: the random generator.
    """

    def __init__(self, n_moves: int, rng: np.random.Generator) -> None:
        self.n_moves, self.rng = n_moves, rng

    def __call__(self, observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        drawn = self.rng.random((len(observations), self.n_moves))
        return (drawn if masks is None else np.where(masks, drawn, -1)).argmax(1)


class SelfPlayVecEnv(VecEnv):
    """N games at once: the learner has one seat of each, and opponents from a pool play the others.

    Each game draws the learner's seat and the opponent. At first there is one opponent, which plays at random;
    :class:`~polyak.callbacks.past_selves.PastSelves` adds the learner's past selves. A step is one move of the
    learner and the answers of the others; rewards are those of the learner's seat. ``action_masks()`` returns its
    allowed moves, for all algorithms that support masks.

    Args:
        game: ``"connect4"``, ``"go"``, ``"tictactoe"``, a :class:`~polyak.envs.games.game.Game`, or a function that
            makes an environment of PettingZoo whose agents act in turn (AEC) and share their spaces, such as
            ``tictactoe_v3.env``; of its classics also by name, ``"pettingzoo:tictactoe_v3"``.
        n_envs: N.
        latest: probability that a game is played against the opponent that was added last, rather than any.
        past_selves: opponents kept besides the first one; the oldest ones are removed.

    Raises:
        ValueError: ``n_envs`` or ``past_selves`` below 1, ``latest`` outside [0, 1], an unknown game.
        TypeError: ``game`` is none of these.
        ImportError: PettingZoo, or the classic, is not installed.
    """

    def __init__(
        self, game: str | Game | Callable[[], Any], n_envs: int = 16, *, latest: float = 0.5, past_selves: int = 10
    ) -> None:
        for name, value in (("n_envs", n_envs), ("past_selves", past_selves)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        if not 0 <= latest <= 1:
            raise ValueError(f"latest={latest} must be a probability, from 0 to 1.")
        self.game: Game | Callable[[], Any] = _found(game)
        self.latest, self.past_selves = latest, past_selves
        self.tables = tables_for(self.game, n_envs)
        space: Any = self.tables.action_space
        if not isinstance(space, spaces.Discrete):
            raise ValueError(f"game={game!r} is played in {space}, not in a Discrete space.")
        self.first = int(space.start)
        self.rng = np.random.default_rng()
        self.opponents: list[Opponent] = [RandomMoves(int(space.n), self.rng)]
        """The pool: the random opponent, and those that were added, the latest last."""
        self.seats = np.zeros(n_envs, np.int64)
        """[N] the learner's."""
        self.against = np.zeros(n_envs, np.int64)
        """[N] which opponent of the pool the game is played against."""
        self._lengths, self._returns = np.zeros(n_envs, np.int64), np.zeros(n_envs)
        self._started = perf_counter()
        self._actions = np.zeros(n_envs, np.int64)
        super().__init__(n_envs, self.tables.observation_space, space)

    def add_opponent(self, opponent: Opponent) -> None:
        """Add to the pool; games that begin from now on may meet it."""
        self.opponents.append(opponent)
        if len(self.opponents) > self.past_selves + 1:  # the first one stays
            self.opponents.pop(1)
            self.against = np.where(self.against > 1, self.against - 1, self.against)

    # -- stepping ------------------------------------------------------------------------------------------------------

    def reset(self) -> VecEnvObs:
        self.resets += 1
        if self._seeds[0] is not None:
            self.rng = np.random.default_rng(self._seeds[0])
            for opponent in self.opponents:
                if isinstance(opponent, RandomMoves):
                    opponent.rng = self.rng
        self._begin(np.arange(self.num_envs), self._seeds)
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return self._seen(np.arange(self.num_envs))

    def step_async(self, actions: Any) -> None:
        self._actions = np.asarray(self._batch_of_actions(actions)).reshape(-1).astype(np.int64) - self.first

    def step_wait(self) -> VecEnvStepReturn:
        every, tables = np.arange(self.num_envs), self.tables
        tables.play(every, self._actions)
        self._answer(every)
        rewards, dones = tables.earned(every, self.seats), tables.ended[every, self.seats]
        cut = tables.cut[every, self.seats]
        self._lengths += 1
        self._returns += rewards
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in every]
        over = np.flatnonzero(dones)
        if len(over):
            elapsed = round(perf_counter() - self._started, 6)
            for row, last in zip(over, self._seen(over), strict=True):
                episode = {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": elapsed}
                infos[row] = {
                    "TimeLimit.truncated": bool(cut[row]),
                    "terminal_observation": last,
                    "episode": episode,
                    "opponent": int(self.against[row]),
                }
                if tables.masked and cut[row]:  # masks are unknown there
                    infos[row][FINAL] = np.ones(tables.action_space.n, bool)
            self._begin(over, [None] * len(over))
        return self._seen(every), rewards, dones, infos

    def _begin(self, rows: np.ndarray, seeds: Any) -> None:
        """Begin games [R] in which the learner has the next move."""
        self._lengths[rows], self._returns[rows] = 0, 0
        while len(rows):
            self.tables.begin(rows, seeds)
            self.seats[rows] = self.rng.integers(self.tables.n_seats, size=len(rows))
            drawn = self.rng.integers(len(self.opponents), size=len(rows))
            newest = self.rng.random(len(rows)) < self.latest
            self.against[rows] = np.where(newest, len(self.opponents) - 1, drawn)
            self._answer(rows)
            rows = rows[self.tables.ended[rows, self.seats[rows]]]  # over before it could move
            seeds = [None] * len(rows)

    def _answer(self, rows: np.ndarray) -> None:
        """Let the others move in games [R] until the learner is to move, or its game is over."""
        tables = self.tables
        while True:
            waits = ~tables.ended[rows, self.seats[rows]] & (tables.movers[rows] != self.seats[rows])
            rows = rows[waits]
            if len(rows) == 0:
                return
            moves = np.zeros(len(rows), np.int64)
            for number in np.unique(self.against[rows]):
                mine = self.against[rows] == number
                moves[mine] = asked(self.opponents[number], tables, rows[mine])
            tables.play(rows, moves)

    def _seen(self, rows: np.ndarray) -> Any:
        return self.tables.seen(rows, self.seats[rows])

    def action_masks(self) -> np.ndarray:
        """Returns the learner's legal moves in each game [N, A]."""
        return self.tables.legal(np.arange(self.num_envs))

    # -- reaching into the environments --------------------------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        rows = list(self._get_indices(indices))
        if attr_name == "render_mode":
            return [None] * len(rows)
        if attr_name == MASKS and self.tables.masked:
            return [lambda row=row: self.tables.legal(np.array([row]))[0] for row in rows]
        raise AttributeError(f"games of {type(self).__name__} have no {attr_name!r}.")

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise AttributeError(f"games of {type(self).__name__} have no {attr_name!r} that could be set.")

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        if method_name == MASKS and self.tables.masked:
            return list(self.tables.legal(np.array(list(self._get_indices(indices)))))
        raise AttributeError(f"games of {type(self).__name__} have no method {method_name!r}.")

    def env_is_wrapped(self, wrapper_class: Any, indices: VecEnvIndices = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]

    def close(self) -> None:
        for env in getattr(self.tables, "envs", []):
            env.close()


def _found(game: Any) -> Game | Callable[[], Any]:
    if callable(game):
        made: Callable[[], Any] = game
        return made
    if isinstance(game, str) and game.startswith(CLASSIC):
        try:
            made = import_module(f"pettingzoo.classic.{game[len(CLASSIC) :]}").env
        except ImportError as error:
            raise ImportError(
                f"game={game!r} needs PettingZoo's classics ({error}): pip install 'polyak[games]', and check its name."
            ) from error
        return made
    return find_game(game)


def asked(player: Opponent, tables: Tables, rows: np.ndarray) -> np.ndarray:
    """The moves of a player in games [R] in which it is to move, counted from 0. -> [R]"""
    masks = tables.legal(rows) if tables.masked else None
    return np.asarray(player(tables.seen(rows, tables.movers[rows]), masks))


def points(
    game: Game | Callable[[], Any], one: Opponent, others: Opponent, n_games: int, rng: np.random.Generator
) -> float:
    """Points in [0, n_games] that ``one`` makes against ``others``, which have all other seats.

    It has each seat equally often. It wins a game if it earns more than the mean of the others; a draw is half a point.

    Args:
        game: as :class:`SelfPlayVecEnv` has it.
        one, others: the players.
        n_games: played at once.
        rng: draws the first moves.
    """
    tables, every = tables_for(game, n_games), np.arange(n_games)
    tables.begin(every, rng.integers(2**31, size=n_games).tolist())
    seats = every % tables.n_seats
    earned = np.zeros((n_games, tables.n_seats))
    chance = RandomMoves(int(tables.action_space.n), rng)
    moved, playing = 0, every
    while len(playing):
        moves = np.zeros(len(playing), np.int64)
        mine = tables.movers[playing] == seats[playing]
        for player, theirs in ((one, mine), (others, ~mine)):
            if theirs.any():
                moves[theirs] = asked(player if moved >= OPENING else chance, tables, playing[theirs])
        tables.play(playing, moves)
        moved, playing = moved + 1, playing[~tables.ended[playing].all(1)]
    for seat in range(tables.n_seats):
        earned[:, seat] = tables.earned(every, np.full(n_games, seat))
    own = earned[every, seats]
    rest = (earned.sum(1) - own) / (tables.n_seats - 1)
    return float(np.where(np.isclose(own, rest), 0.5, own > rest).sum())
