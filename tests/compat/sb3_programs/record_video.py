"""A film of an agent: the first steps of it, and of another that does what comes to mind."""

import argparse
import sys
import tempfile
from pathlib import Path

import gymnasium as gym
from stable_baselines3 import A2C
from stable_baselines3.common.vec_env import DummyVecEnv, VecVideoRecorder


def film(folder: Path, name: str, length: int, model: A2C | None = None) -> None:
    """Record ``length`` steps; without a model, of random actions."""
    env = DummyVecEnv([lambda: gym.make("CartPole-v1", render_mode="rgb_array")])
    recorder = VecVideoRecorder(
        env, str(folder), record_video_trigger=lambda step: step == 0, video_length=length, name_prefix=name
    )
    observations = recorder.reset()
    for _ in range(length + 1):
        actions = [recorder.action_space.sample()] if model is None else model.predict(observations)[0]
        observations, _, _, _ = recorder.step(actions)
    recorder.close()  # writes the file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--length", type=int, default=60)
    parser.add_argument("--out", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)

    try:
        film(out, "random", options.length)
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        sys.exit(f"films need another package: {error}")
    model = A2C("MlpPolicy", "CartPole-v1", device="cpu").learn(options.steps)
    film(out, "a2c", options.length, model)
    print(sorted(path.name for path in out.glob("*.mp4")))


if __name__ == "__main__":
    main()
