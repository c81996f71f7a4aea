"""Exploration that is a function of the state and changes now and then, instead of noise that is new at every step."""

import argparse

import numpy as np
from stable_baselines3 import A2C, PPO, SAC, TD3
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=256)
    options = parser.parse_args()

    exploring = {"use_sde": True, "sde_sample_freq": 16, "device": "cpu", "seed": 0}
    model = PPO("MlpPolicy", "Pendulum-v1", n_steps=64, policy_kwargs={"log_std_init": -2}, **exploring)
    model.learn(options.steps)
    print("PPO: one deviation for each feature and action:", tuple(model.policy.log_std.shape))
    observation = np.zeros((1, 3), np.float32)
    first, second = model.predict(observation)[0], model.predict(observation)[0]
    model.policy.reset_noise()
    print("the same state, the same action:", np.array_equal(first, second), "until the noise is drawn anew")

    kwargs = {"squash_output": True, "full_std": False, "use_expln": True}
    A2C("MlpPolicy", "Pendulum-v1", policy_kwargs=kwargs, **exploring).learn(options.steps)
    SAC("MlpPolicy", "Pendulum-v1", learning_starts=100, use_sde_at_warmup=True, **exploring).learn(200)

    # What TD3 and DDPG explore with:
    for noise in (
        NormalActionNoise(mean=np.zeros(1), sigma=0.1 * np.ones(1)),
        OrnsteinUhlenbeckActionNoise(mean=np.zeros(1), sigma=0.2 * np.ones(1)),
    ):
        TD3("MlpPolicy", "Pendulum-v1", action_noise=noise, learning_starts=50, device="cpu").learn(120)
        print(type(noise).__name__, noise().shape)


if __name__ == "__main__":
    main()
