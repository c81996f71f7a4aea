"""Learning rates and clip ranges that change while learning; a schedule gets what remains, from 1 down to 0."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import LinearSchedule


def falling(start: float) -> Callable[[float], float]:
    """From ``start`` to 0, along a line."""

    def at(progress_remaining: float) -> float:
        return progress_remaining * start

    return at


class Watch(BaseCallback):
    """Notes the learning rate that each rollout is learned with."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.rates.append(float(self.model.policy.optimizer.param_groups[0]["lr"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_024)
    parser.add_argument("--out", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    watch = Watch()
    model = PPO("MlpPolicy", "CartPole-v1", learning_rate=falling(1e-3), n_steps=256, device="cpu")
    model.learn(options.steps, callback=watch)
    print("PPO:", [f"{rate:.1e}" for rate in watch.rates])
    model.learn(options.steps, reset_num_timesteps=False)  # goes on counting: the schedule begins anew over the rest
    print("steps in all:", model.num_timesteps)

    schedules = {"learning_rate": LinearSchedule(1e-3, 1e-4, 0.5), "clip_range": LinearSchedule(0.3, 0.1, 1.0)}
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=256, device="cpu", **schedules).learn(options.steps)
    print("clip range at the half:", round(model.clip_range(0.5), 3), "learning rate:", model.lr_schedule(0.5))
    model.save(out / "with_schedules")

    # Other values for what a file holds; also the way out if a schedule of the file cannot be read here.
    replaced = {"learning_rate": 1e-5, "lr_schedule": lambda _: 1e-5, "clip_range": 0.05}
    loaded = PPO.load(out / "with_schedules", env=model.get_env(), custom_objects=replaced, device="cpu")
    print("after loading:", loaded.lr_schedule(1.0), loaded.clip_range(1.0) if callable(loaded.clip_range) else None)

    explorer = DQN("MlpPolicy", "CartPole-v1", exploration_fraction=0.5, exploration_final_eps=0.1, device="cpu")
    explorer.learn(options.steps)
    print("DQN ends with exploration rate", round(explorer.exploration_rate, 3))


if __name__ == "__main__":
    main()
