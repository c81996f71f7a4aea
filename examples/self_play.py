"""A board game by self-play: PPO against a pool of its past policies, and against a tree search that looks ahead."""

import numpy as np

from polyak import MCTS, PPO
from polyak.callbacks import PastSelves
from polyak.envs import SelfPlayVecEnv


def main(steps: int = 60_000, games: int = 50) -> float:
    """The share of points against a search of 20 simulations, half of the games as the first player."""
    envs = SelfPlayVecEnv("tictactoe", n_envs=32)
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=256, learning_rate=1e-3, ent_coef=0.02, seed=0)
    pool = PastSelves(freq=max(steps // 5, 1), rated_games=20)
    model.learn(steps, callback=pool)
    print("Elo of each policy of the pool, where random play has 0:", pool.ratings)

    search = MCTS("tictactoe", simulations=20, seed=0)
    game, points = search.game, 0.0
    for number in range(games):
        position, mover = game.start(1), number % 2  # 0: the policy moves
        while np.isnan(result := game.outcome(position)[0]):
            if mover == 0:
                legal = game.legal(position)
                move, _ = model.predict(game.observe(position), action_masks=legal, deterministic=True)
            else:
                move = search.search(position).moves
            position, mover = game.play(position, np.asarray(move)), 1 - mover
        points += 0.5 + 0.5 * result * (1 if mover == 0 else -1)  # the result is that of the player to move
    print(f"{points} points of {games} against the search")
    return points / games


if __name__ == "__main__":
    main()
