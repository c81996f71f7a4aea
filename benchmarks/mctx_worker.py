"""Simulations per second of mctx's MuZero search, for ``search.py``: rules and network as polyak's, in JAX, compiled.

    python mctx_worker.py tictactoe 50 3.0 64 256 1024        # game, simulations, seconds, numbers of positions

Runs in a virtual environment that has neither torch nor polyak; prints JSON, number of positions -> simulations per
second of processor time.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import mctx
import numpy as np
from jax import numpy as jnp


class Rules(NamedTuple):
    """A board on which discs make lines."""

    rows: int
    columns: int
    line: int
    falls: bool
    """Whether a move is a column, in which a disc falls, rather than a field."""


RULES = {"tictactoe": Rules(3, 3, 3, False), "connect4": Rules(6, 7, 4, True)}
WIDTH = 64


def lines(rules: Rules) -> np.ndarray:
    """All lines, [L, rows * columns] of 0 and 1."""
    found = []
    for row in range(rules.rows):
        for column in range(rules.columns):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                fields = [(row + i * down, column + i * right) for i in range(rules.line)]
                if all(0 <= r < rules.rows and 0 <= c < rules.columns for r, c in fields):
                    board = np.zeros((rules.rows, rules.columns), np.float32)
                    board[tuple(zip(*fields, strict=True))] = 1
                    found.append(board.reshape(-1))
    return np.stack(found)


def legal(rules: Rules, boards: Any) -> Any:
    """[B, 2, rows * columns] own and other's -> [B, A] bool."""
    free = boards.sum(1) == 0
    return free.reshape(-1, rules.rows, rules.columns)[:, -1] if rules.falls else free


def play(rules: Rules, boards: Any, moves: Any) -> Any:
    """The boards after moves [B], as the other player sees them."""
    fields = moves
    if rules.falls:
        taken = boards.sum(1).reshape(-1, rules.rows, rules.columns).sum(1).astype(jnp.int32)
        height = jnp.take_along_axis(taken, moves[:, None], 1)[:, 0]
        fields = jnp.minimum(height, rules.rows - 1) * rules.columns + moves
    own = boards[:, 0].at[jnp.arange(len(moves)), fields].set(1.0)
    return jnp.stack([boards[:, 1], own], 1)


def judged(weights: Any, boards: Any) -> tuple[Any, Any]:
    """Two hidden layers, logits of moves [B, A] and values [B]."""
    x = boards.reshape(len(boards), -1)
    for weight in weights[:2]:
        x = jax.nn.relu(x @ weight)
    return x @ weights[2], jnp.tanh(x @ weights[3])[:, 0]


@partial(jax.jit, static_argnames=("rules", "simulations"))
def search(rules: Rules, simulations: int, weights: Any, made_of: Any, key: Any, boards: Any) -> Any:
    """One search of all boards; how often each move was looked at [B, A]."""

    def follow(weights: Any, key: Any, moves: Any, boards: Any) -> tuple[Any, Any]:
        after = play(rules, boards, moves)
        won = (after[:, 1] @ made_of.T >= rules.line).any(1)
        over = won | (after.sum((1, 2)) == rules.rows * rules.columns)
        logits, values = judged(weights, after)
        logits = jnp.where(legal(rules, after), logits, -1e9)
        discount = jnp.where(over, 0.0, -1.0)
        values = jnp.where(over, 0.0, values)
        won = won.astype(jnp.float32)
        said = mctx.RecurrentFnOutput(reward=won, discount=discount, prior_logits=logits, value=values)
        return said, after

    logits, values = judged(weights, boards)
    allowed = legal(rules, boards)
    root = mctx.RootFnOutput(prior_logits=jnp.where(allowed, logits, -1e9), value=values, embedding=boards)
    out = mctx.muzero_policy(weights, key, root, follow, simulations, ~allowed, dirichlet_fraction=0.0)
    return out.search_tree.summary().visit_counts


def speed(game: str, simulations: int, seconds: float, positions: int) -> float:
    """Simulations per second of processor time."""
    rules = RULES[game]
    fields, moves = rules.rows * rules.columns, rules.columns if rules.falls else rules.rows * rules.columns
    keys = jax.random.split(jax.random.PRNGKey(0), 5)
    sizes = (2 * fields, WIDTH), (WIDTH, WIDTH), (WIDTH, moves), (WIDTH, 1)
    weights = [jax.random.normal(key, size) / size[0] ** 0.5 for key, size in zip(keys, sizes, strict=False)]
    boards, made_of = jnp.zeros((positions, 2, fields)), jnp.asarray(lines(rules))
    visits = search(rules, simulations, weights, made_of, keys[4], boards)  # which compiles it
    assert np.asarray(visits).sum() == positions * simulations
    started, made = time.process_time(), 0
    while time.process_time() - started < seconds:
        search(rules, simulations, weights, made_of, keys[4], boards).block_until_ready()
        made += positions * simulations
    return made / (time.process_time() - started)


if __name__ == "__main__":
    game, simulations, seconds, *numbers = sys.argv[1:]
    print(json.dumps({n: speed(game, int(simulations), float(seconds), int(n)) for n in numbers}))
