"""Games of Go played at random by OpenSpiel's rules: every legal move of every position, and how they ended.

``go_games.npz`` beside this file holds what :func:`played` makes of :data:`RECORDED`:

    python -m tests.envs.games.go_games

OpenSpiel (Lanctot et al. 2019) has the same rules but for one: a game ends with a draw when a board has been before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

FILE = Path(__file__).with_name("go_games.npz")
RECORDED = [(5, 0.5, 60), (7, 4.0, 4), (9, 7.5, 3), (19, 6.5, 1)]
"""Size of the board, komi and number of games."""
REPEATED = 2
"""In the place of the result of a game that OpenSpiel ended because a board had been before."""


class Record(NamedTuple):
    """One game of T moves."""

    size: int
    komi: float
    moves: np.ndarray
    """[T] int16."""
    legal: np.ndarray
    """[T, A] bool, before each move."""
    result: int
    """To black: 1 won, 0 drawn, -1 lost, ``REPEATED``."""


def played(kinds: Sequence[tuple[int, float, int]], seed: int = 0, passing: float = 0.02) -> Iterator[Record]:
    """Games played at random with OpenSpiel.

    Args:
        kinds: sizes, komis and numbers of games.
        seed: of the moves.
        passing: the probability of a pass; other moves are equally likely.
    """
    import pyspiel

    rng = np.random.default_rng(seed)
    for size, komi, n in kinds:
        game = pyspiel.load_game("go", {"board_size": size, "komi": float(komi)})
        for _ in range(n):
            state, moves, legal, boards = game.new_initial_state(), [], [], set[str]()
            repeated = False
            while not state.is_terminal():
                legal.append(np.array(state.legal_actions_mask(), bool))
                fields = np.flatnonzero(legal[-1][:-1])
                moves.append(size**2 if len(fields) == 0 or rng.random() < passing else int(rng.choice(fields)))
                state.apply_action(moves[-1])
                board = str(state).partition("\n")[2]
                repeated = moves[-1] != size**2 and board in boards
                boards.add(board)
            result = REPEATED if repeated else int(state.returns()[0])
            yield Record(size, komi, np.array(moves, np.int16), np.stack(legal), result)


def load() -> list[Record]:
    """The recorded games."""
    with np.load(FILE) as file:
        moves, legal, start, records = file["moves"], file["legal"], 0, list[Record]()
        for size, komi, length, result in zip(
            *(file[k] for k in ("sizes", "komis", "lengths", "results")), strict=True
        ):
            rows, bits = slice(start, start + length), int(size) ** 2 + 1
            unpacked = np.unpackbits(legal[rows], axis=1, count=bits).astype(bool)
            records.append(Record(int(size), float(komi), moves[rows], unpacked, int(result)))
            start += length
    return records


def save(records: Sequence[Record]) -> None:
    """Write :data:`FILE`."""
    packed = [np.packbits(record.legal, axis=1) for record in records]
    width = max(bits.shape[1] for bits in packed)
    np.savez_compressed(
        FILE,
        sizes=np.array([record.size for record in records], np.int8),
        komis=np.array([record.komi for record in records], np.float32),
        lengths=np.array([len(record.moves) for record in records], np.int16),
        results=np.array([record.result for record in records], np.int8),
        moves=np.concatenate([record.moves for record in records]),
        legal=np.concatenate([np.pad(bits, ((0, 0), (0, width - bits.shape[1]))) for bits in packed]),
    )


if __name__ == "__main__":
    save(list(played(RECORDED)))
