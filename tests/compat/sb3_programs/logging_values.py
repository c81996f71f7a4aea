"""Values of your own in the log, a logger with several outputs, hyper-parameters, pictures and text for TensorBoard."""

import argparse
import csv
import json
import tempfile
from pathlib import Path

import numpy as np
from stable_baselines3 import A2C, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import HParam, Image, configure


class LogMore(BaseCallback):
    """Adds values to the table: one a rollout, a mean over steps, hyper-parameters once, a picture sometimes."""

    def _on_training_start(self) -> None:
        settings = {"algorithm": type(self.model).__name__, "learning rate": self.model.learning_rate}
        shown = {"rollout/ep_len_mean": 0, "train/value_loss": 0.0}  # TensorBoard draws these beside the settings
        self.logger.record("hparams", HParam(settings, shown), exclude=("stdout", "log", "json", "csv"))

    def _on_step(self) -> bool:
        self.logger.record_mean("mine/mean_reward", float(np.mean(self.locals["rewards"])))
        return True

    def _on_rollout_end(self) -> None:
        self.logger.record("mine/random", float(np.random.random()))
        noise = np.random.randint(0, 255, (16, 16, 3), dtype=np.uint8)
        self.logger.record("mine/picture", Image(noise, "HWC"), exclude=("stdout", "log", "json", "csv"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--out", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    logger = configure(str(out / "several"), ["stdout", "csv", "json", "log", "tensorboard"])
    model = A2C("MlpPolicy", "CartPole-v1", device="cpu")
    model.set_logger(logger)
    model.learn(options.steps, callback=LogMore(), log_interval=40)
    with open(out / "several" / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    print("columns:", sorted(rows[0]))
    lines = (out / "several" / "progress.json").read_text().splitlines()
    print(len(lines), "lines of JSON, the last at", json.loads(lines[-1])["time/total_timesteps"], "steps")

    # Without callbacks: by hand, at any time.
    model.logger.record("evaluation/by_hand", 12.5)
    model.logger.info("a line of text")
    model.logger.dump(step=model.num_timesteps)

    # TensorBoard's own folder, one run after another: A2C_1, then A2C_2.
    for _ in range(2):
        A2C("MlpPolicy", "CartPole-v1", tensorboard_log=str(out / "board"), device="cpu").learn(100)
    named = SAC("MlpPolicy", "Pendulum-v1", tensorboard_log=str(out / "board"), learning_starts=50, device="cpu")
    named.learn(100, tb_log_name="first", log_interval=1)
    named.learn(100, tb_log_name="second", reset_num_timesteps=False)
    print("runs:", sorted(path.name for path in (out / "board").iterdir()))


if __name__ == "__main__":
    main()
