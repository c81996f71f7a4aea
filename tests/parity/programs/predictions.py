"""What predict takes and gives."""

from typing import Any

import gymnasium as gym
import numpy as np
import worlds
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3

SPACES = {
    "discrete": spaces.Discrete(3),
    "started": spaces.Discrete(3, start=0),
    "box": spaces.Box(-0.01, 0.01, (2,), np.float32),
    "uneven": spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([5.0, 0.5], np.float32)),
    "grid": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    "several": spaces.MultiDiscrete([3, 4]),
    "switches": spaces.MultiBinary(5),
}


def _shape(pair: tuple[Any, Any]) -> list[Any]:
    actions, state = pair
    return [type(actions).__name__, list(np.shape(actions)), str(np.asarray(actions).dtype), state is None]


def _both(model: Any) -> list[Any]:
    one = np.array([0.5, -0.5], np.float32)
    return [_shape(model.predict(one)), _shape(model.predict(one[None].repeat(4, axis=0), deterministic=True))]


def shapes() -> dict[str, Any]:
    """Of single and batched observations, for every kind of action space."""
    kinds = {PPO: list(SPACES), A2C: list(SPACES), DQN: ["discrete"], SAC: ["box", "uneven", "grid"]}
    kinds |= {TD3: ["box", "grid"], DDPG: ["uneven"]}
    return {
        f"{cls.__name__} {name}": _both(cls("MlpPolicy", worlds.Counting(action_space=SPACES[name]), device="cpu"))
        for cls, names in kinds.items()
        for name in names
    }


def bounds() -> dict[str, Any]:
    """Actions stay in the Box: by clipping for PPO and A2C, by scaling for the others."""
    found = {}
    observations = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    for cls in (PPO, A2C, SAC, TD3, DDPG):
        for name in ("box", "uneven"):
            space = SPACES[name]
            model = cls("MlpPolicy", worlds.Counting(action_space=space), device="cpu", seed=3)
            actions = model.predict(observations)[0]
            at_bound = bool(np.isclose(actions, space.low).any() and np.isclose(actions, space.high).any())
            inside = bool((actions >= space.low).all() and (actions <= space.high).all())
            found[f"{cls.__name__} {name}"] = [inside, at_bound if cls in (PPO, A2C) else None]
    return found


def dict_observations() -> dict[str, Any]:
    """Single and batched, of a Dict."""
    env = worlds.Several()
    single, _ = env.reset()
    batch = {key: np.stack([np.asarray(value)] * 3) for key, value in single.items()}
    found = {}
    for cls in (PPO, DQN):
        model = cls("MultiInputPolicy", env, device="cpu", **({"buffer_size": 10} if cls is DQN else {}))
        found[cls.__name__] = [_shape(model.predict(single)), _shape(model.predict(batch))]
    return found


def pictures() -> dict[str, Any]:
    """Channels first or last are both understood."""
    model = PPO("CnnPolicy", worlds.Pictures((36, 36, 1)), device="cpu")
    last, first = np.zeros((36, 36, 1), np.uint8), np.zeros((1, 36, 36), np.uint8)
    return {
        "space": model.observation_space.shape,
        "last": _shape(model.predict(last)),
        "first": _shape(model.predict(first)),
        "batch": _shape(model.predict(last[None].repeat(2, axis=0))),
    }


def discrete_observations() -> Any:
    """Numbers, one-hot for the network."""
    model = DQN("MlpPolicy", "FrozenLake-v1", device="cpu", buffer_size=10)
    return [_shape(model.predict(3)), _shape(model.predict(np.array([3, 4]))), _shape(model.predict(np.array(2)))]


def deterministic_numbers() -> dict[str, Any]:
    """The actions of fresh networks with a seed."""
    observations = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
    return {
        cls.__name__: cls("MlpPolicy", worlds.Counting(action_space=SPACES["uneven"]), seed=1, device="cpu").predict(
            observations, deterministic=True
        )[0]
        for cls in (PPO, A2C, SAC, TD3, DDPG)
    } | {"DQN": DQN("MlpPolicy", worlds.Counting(), seed=1, device="cpu").predict(observations, deterministic=True)[0]}


def sampled_numbers() -> dict[str, Any]:
    """The first actions that are sampled after a seed."""
    observations = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
    found = {}
    for cls in (PPO, A2C, SAC):
        model = cls("MlpPolicy", worlds.Counting(action_space=SPACES["uneven"]), seed=1, device="cpu")
        model.set_random_seed(5)
        found[cls.__name__] = [model.predict(observations)[0] for _ in range(2)]
    for name in ("discrete", "several", "switches"):
        model = PPO("MlpPolicy", worlds.Counting(action_space=SPACES[name]), seed=1, device="cpu")
        model.set_random_seed(5)
        found[f"PPO {name}"] = [model.predict(observations)[0] for _ in range(2)]
    return found


def policy_methods() -> dict[str, Any]:
    """Scaling, tensors, values and log-probabilities of a policy."""
    space = SPACES["uneven"]
    model = SAC("MlpPolicy", worlds.Counting(action_space=space), seed=1, device="cpu")
    actions = np.array([[-1.0, 0.25], [5.0, 0.5]], np.float32)
    ppo = PPO("MlpPolicy", worlds.Counting(action_space=space), seed=1, device="cpu")
    tensor, vectorised = ppo.policy.obs_to_tensor(np.zeros(2, np.float32))
    observations = ppo.policy.obs_to_tensor(np.zeros((3, 2), np.float32))[0]
    values, log_prob, entropy = ppo.policy.evaluate_actions(observations, observations * 0 + 0.1)
    return {
        "scaled": model.policy.scale_action(actions),
        "unscaled": model.policy.unscale_action(np.zeros((2, 2), np.float32)),
        "squash": [model.policy.squash_output, ppo.policy.squash_output],
        "tensor": [tensor, vectorised],
        "values": ppo.policy.predict_values(observations),
        "evaluated": [values, log_prob, entropy],
        "forward": [list(item.shape) for item in ppo.policy(observations)],
        "distribution": type(ppo.policy.get_distribution(observations)).__name__,
        "latent": list(ppo.policy.extract_features(observations).shape),
    }


def vectorised_environment() -> Any:
    """Predict on what a VecEnv gives."""
    model = A2C("MlpPolicy", "CartPole-v1", device="cpu", seed=0)
    env = model.get_env()
    actions, _ = model.predict(env.reset(), deterministic=True)
    return [_shape((actions, None)), [list(np.shape(item)) for item in env.step(actions)[:3]]]


def gym_tuple() -> Any:
    """The pair that a Gymnasium reset gives is a mistake."""
    model = A2C("MlpPolicy", "CartPole-v1", device="cpu")
    return model.predict(gym.make("CartPole-v1").reset())


def wrong_shape() -> Any:
    """An observation of another shape is a mistake."""
    return A2C("MlpPolicy", "CartPole-v1", device="cpu").predict(np.zeros(3, np.float32))
