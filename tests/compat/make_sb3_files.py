"""Writes the files in ``data/`` with installed Stable-Baselines3 and sb3-contrib, and what they compute from them.

    python tests/compat/make_sb3_files.py [names of models ...]

The networks are as small as they can be: the files test the format, not the learning. ``expected.npz`` holds the
deterministic actions for 1,000 observations, which :func:`observations` makes again from a seed.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

DATA = Path(__file__).parent / "data"
ENVS = {
    "ppo": "CartPole-v1",
    "ppo_old_schedules": "CartPole-v1",
    "a2c": "Pendulum-v1",
    "dqn": "CartPole-v1",
    "sac": "Pendulum-v1",
    "sac_fixed": "Pendulum-v1",
    "td3": "Pendulum-v1",
    "ddpg": "Pendulum-v1",
    "tqc": "Pendulum-v1",
    "crossq": "Pendulum-v1",
    "qrdqn": "CartPole-v1",
    "trpo": "Pendulum-v1",
    "ppo_mask": "InvalidDiscrete",
    "ppo_mask_coins": "InvalidMultiBinary",
    "ars": "Pendulum-v1",
    "ppo_recurrent": "CartPole-v1",
    "ppo_recurrent_linear": "Pendulum-v1",
}
SIZES = {"CartPole-v1": 4, "Pendulum-v1": 3, "BitFlipping": 4, "InvalidDiscrete": 5, "InvalidMultiBinary": 3}


def observations(env: str, n: int = 1000) -> Any:
    """``n`` observations, the same wherever this is called. BitFlipping's are a dict of bits."""
    rng = np.random.default_rng(7)
    if env == "BitFlipping":
        keys = ("observation", "achieved_goal", "desired_goal")
        return {key: rng.integers(0, 2, (n, SIZES[env])).astype(np.int8) for key in keys}
    if env == "InvalidDiscrete":
        return rng.integers(0, SIZES[env], n)
    if env == "InvalidMultiBinary":
        return rng.integers(0, 2, (n, SIZES[env])).astype(np.int8)
    return rng.normal(size=(n, SIZES[env])).astype(np.float32)


def masks(env: str, n: int = 1000) -> np.ndarray:
    """``n`` masks, the same wherever this is called."""
    rng = np.random.default_rng(8)
    if env == "InvalidDiscrete":
        return rng.permuted(np.tile(np.arange(SIZES[env]) < 2, (n, 1)), axis=1)
    sides = rng.permuted(np.tile([True, False], (n, SIZES[env], 1)), axis=2)  # of half of the coins one alone
    return (sides | rng.integers(0, 2, (n, SIZES[env], 1)).astype(bool)).reshape(n, -1)


def remembering(model: Any, seen: Any) -> list[np.ndarray]:
    """A model's actions for batches of ten observations one after another, with its memory carried along, and that
    memory in the end. The episodes of half of a batch begin anew at each third step."""
    state, actions = None, []
    for step, batch in enumerate(seen.reshape(-1, 10, *seen.shape[1:])):
        starts = (np.arange(10) % 2 == 0) & (step % 3 == 0)
        action, state = model.predict(batch, state, starts, deterministic=True)
        actions.append(action)
    return [np.concatenate(actions), *state]


def main(*names: str) -> None:
    """Write these models, or everything if none is named."""
    import torch
    from sb3_contrib import ARS, QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
    from sb3_contrib.common.envs import InvalidActionEnvDiscrete, InvalidActionEnvMultiBinary
    from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
    from stable_baselines3.common.envs import BitFlippingEnv
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.utils import constant_fn, get_linear_fn
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)

    def tiny(**more: Any) -> dict[str, Any]:
        return {"seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [4]}, **more}

    def replay(**more: Any) -> dict[str, Any]:
        return tiny(buffer_size=32, learning_starts=8, batch_size=8, **more)

    one_critic = replay() | {"policy_kwargs": {"net_arch": [4], "n_critics": 1}}
    quantiles = replay() | {"policy_kwargs": {"net_arch": [4], "n_quantiles": 5, "n_critics": 3}}
    levels = replay() | {"policy_kwargs": {"net_arch": [4], "n_quantiles": 3}, "target_update_interval": 10}
    noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
    lines = {"learning_rate": get_linear_fn(1e-3, 1e-4, 0.5), "clip_range": constant_fn(0.1)}
    rollouts = tiny(n_steps=32, batch_size=16, n_epochs=2)
    hindsight = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 2}}
    models = {
        "ppo": (PPO("MlpPolicy", ENVS["ppo"], n_steps=32, batch_size=16, n_epochs=2, **tiny()), 32),
        "ppo_old_schedules": (
            PPO("MlpPolicy", ENVS["ppo"], n_steps=32, batch_size=16, n_epochs=1, **lines, **tiny()),
            32,
        ),
        "a2c": (A2C("MlpPolicy", ENVS["a2c"], use_sde=True, **tiny()), 20),
        "dqn": (DQN("MlpPolicy", ENVS["dqn"], **replay()), 40),
        "sac": (SAC("MlpPolicy", ENVS["sac"], **replay()), 20),
        "sac_fixed": (SAC("MlpPolicy", ENVS["sac"], ent_coef=0.1, **one_critic), 20),
        "td3": (TD3("MlpPolicy", ENVS["td3"], action_noise=noise, **replay()), 20),
        "ddpg": (DDPG("MlpPolicy", ENVS["ddpg"], **replay()), 20),
        "tqc": (TQC("MlpPolicy", ENVS["tqc"], top_quantiles_to_drop_per_net=1, **quantiles), 20),
        "qrdqn": (QRDQN("MlpPolicy", ENVS["qrdqn"], learning_rate=0.01, **levels), 45),
        "trpo": (TRPO("MlpPolicy", ENVS["trpo"], n_steps=32, batch_size=16, n_critic_updates=2, **tiny()), 64),
        "ppo_mask": (MaskablePPO("MlpPolicy", InvalidActionEnvDiscrete(5, n_invalid_actions=3), **rollouts), 64),
        "ppo_mask_coins": (
            MaskablePPO("MlpPolicy", InvalidActionEnvMultiBinary(3, n_invalid_actions=2), **rollouts),
            64,
        ),
        "ars": (ARS("MlpPolicy", ENVS["ars"], n_delta=3, n_top=2, delta_std=0.1, **tiny()), 200),
        "ppo_recurrent": (RecurrentPPO("MlpLstmPolicy", "CartPole-v1", **_remembering(tiny(), n_lstm_layers=2)), 64),
        "ppo_recurrent_linear": (
            RecurrentPPO(
                "MlpLstmPolicy", ENVS["ppo_recurrent_linear"], **_remembering(tiny(), enable_critic_lstm=False)
            ),
            64,
        ),
        "dqn_her": (DQN("MultiInputPolicy", BitFlippingEnv(n_bits=4, max_steps=4), **hindsight, **replay()), 40),
    }
    expected: dict[str, np.ndarray] = dict(np.load(DATA / "expected.npz")) if names else {}
    for name in names or models:
        model, steps = models[name]
        model.learn(steps)
        model.save(DATA / f"{name}.zip")
        expected[name] = model.predict(observations(ENVS.get(name, "BitFlipping")), deterministic=True)[0]
        if name.startswith("ppo_mask"):
            seen, allowed = observations(ENVS[name]), masks(ENVS[name])
            expected[f"{name}/masked"] = model.predict(seen, deterministic=True, action_masks=allowed)[0]
        if name.startswith("ppo_recurrent"):
            parts = zip(("actions", "hidden", "cell"), remembering(model, observations(ENVS[name])), strict=True)
            expected |= {f"{name}/{part}": array for part, array in parts}
        if name in ("sac", "dqn_her"):
            model.save_replay_buffer(DATA / f"{name}_replay.pkl")
            buffer = model.replay_buffer
            expected[f"{name}_replay/actions"] = buffer.actions[: buffer.size()]
            expected[f"{name}_replay/rewards"] = buffer.rewards[: buffer.size()]
    if names:
        np.savez_compressed(DATA / "expected.npz", **expected)
        return

    thrifty = DQN("MlpPolicy", ENVS["dqn"], optimize_memory_usage=True, **_single(replay()))
    thrifty.learn(20)
    thrifty.save_replay_buffer(DATA / "thrifty_replay.pkl")

    env = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]), gamma=0.9, clip_obs=5.0)
    env.seed(0)
    env.reset()
    for _ in range(20):
        env.step(np.ones((1, 1), dtype=np.float32))
    env.save(DATA / "vecnormalize.pkl")
    expected["vecnormalize/obs"] = env.normalize_obs(observations("Pendulum-v1"))
    expected["vecnormalize/reward"] = env.normalize_reward(np.linspace(-10, 0, 1000))
    np.savez_compressed(DATA / "expected.npz", **expected)
    crossq(replay())


def crossq(options: dict[str, Any]) -> None:
    """CrossQ's file, what its next gradient steps come to, and batch renormalisation by itself, on both sides of the
    warm-up."""
    import torch
    from sb3_contrib import CrossQ
    from sb3_contrib.common.torch_layers import BatchRenorm1d

    # Behind a ReLU that lets a unit pass in all rows, normalisation leaves its bias a gradient of rounding errors.
    smooth = {"net_arch": [4], "renorm_warmup_steps": 16, "activation_fn": torch.nn.Tanh}
    options = options | {"policy_kwargs": smooth}
    model = CrossQ("MlpPolicy", ENVS["crossq"], **options)
    model.learn(20)
    model.save(DATA / "crossq.zip")
    results = {"crossq": model.predict(observations(ENVS["crossq"]), deterministic=True)[0]}

    batch = model.replay_buffer.sample(8)
    parts = ("observations", "actions", "next_observations", "dones", "rewards")
    results |= {f"crossq_batch/{part}": getattr(batch, part).numpy() for part in parts}
    model.replay_buffer.sample = lambda *args, **kwargs: batch
    for step in range(9):
        torch.manual_seed(step)
        model.train(1, 8)
        losses = [model.logger.name_to_value[f"train/{name}_loss"] for name in ("critic", "actor", "ent_coef")]
        results[f"crossq_losses/{step}"] = np.array(losses)
    results |= {f"crossq_after/{name}": tensor.numpy() for name, tensor in model.policy.state_dict().items()}
    results["crossq_after/log_ent_coef"] = model.log_ent_coef.detach().numpy()

    torch.manual_seed(0)
    layer = BatchRenorm1d(3, momentum=0.2, warmup_steps=1)
    layer.scale.data, layer.bias.data = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([0.0, -1.0, 3.0])
    x, y, gradient = torch.randn(6, 8, 3) * torch.tensor([0.1, 1.0, 9.0]) + torch.tensor([0.0, 2.0, 9.0]), [], []
    for rows in x.requires_grad_():
        y.append(layer(rows))
        gradient.append(torch.autograd.grad((y[-1] ** 3).sum(), x)[0].sum(0).numpy())
    arrays = {"x": x.detach(), "y": torch.stack(y).detach(), "gradient": np.stack(gradient)}
    arrays |= {"mean": layer.ra_mean, "variance": layer.ra_var}
    results |= {f"batch_renorm/{name}": np.asarray(array) for name, array in arrays.items()}
    np.savez_compressed(DATA / "crossq.npz", **results)


def _remembering(options: dict[str, Any], **memory: Any) -> dict[str, Any]:
    """Options of a policy that remembers in four units."""
    kwargs = options["policy_kwargs"] | {"lstm_hidden_size": 4, **memory}
    return {**options, "n_steps": 32, "batch_size": 16, "n_epochs": 2, "policy_kwargs": kwargs}


def _single(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a buffer that keeps each observation once: it cannot tell time limits from ends."""
    return {**options, "replay_buffer_kwargs": {"handle_timeout_termination": False}}


if __name__ == "__main__":
    main(*sys.argv[1:])
