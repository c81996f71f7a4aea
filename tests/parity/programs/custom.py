"""Classes of users on top of the library's: extractors, policies, buffers, algorithms, vectorised environments."""

from typing import Any, ClassVar

import numpy as np
import torch
import worlds
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnvWrapper
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from stable_baselines3.sac.policies import SACPolicy
from torch import nn

# Of sums of weights after some fifty updates, in which differences of rounding grow.
TOLERANCE = 1e-3

ONE: dict[str, Any] = {"seed": 1, "device": "cpu"}
ROLLOUT: dict[str, Any] = {**ONE, "n_steps": 16, "batch_size": 8}
REPLAY: dict[str, Any] = {**ONE, "learning_starts": 8, "batch_size": 8, "buffer_size": 50}
FOUR: dict[str, Any] = {"policy_kwargs": {"net_arch": [4]}}


def _sums(model: Any) -> dict[str, float]:
    return {name: float(tensor.double().abs().sum()) for name, tensor in model.policy.state_dict().items()}


class Squares(BaseFeaturesExtractor):
    """A linear layer on squares.

    Args:
        observation_space: a Box.
        features_dim: how many features.
    """

    def __init__(self, observation_space: spaces.Box, features_dim: int = 6) -> None:
        super().__init__(observation_space, features_dim)
        self.linear = nn.Linear(observation_space.shape[0], features_dim)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Features."""
        return torch.relu(self.linear(observations / 10) ** 2)


class Halves(nn.Module):
    """Networks of a policy of one's own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = 5, 4
        self.pi, self.vf = nn.Linear(width, 5), nn.Linear(width, 4)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        """The actor's."""
        return torch.tanh(self.pi(features))

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        """The critic's."""
        return torch.tanh(self.vf(features))


class HalvesPolicy(ActorCriticPolicy):
    """A policy on them."""

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = Halves(self.features_dim)


def extractor() -> Any:
    """A features extractor of one's own, in every algorithm; shared or not."""
    kwargs = {"features_extractor_class": Squares, "features_extractor_kwargs": {"features_dim": 3}, "net_arch": [4]}
    box = worlds.Counting(action_space=spaces.Box(-1.0, 1.0, (1,), np.float32))
    found = {}
    for cls, env, more in (
        (PPO, worlds.Counting(), ROLLOUT),
        (A2C, worlds.Counting(), ONE),
        (DQN, worlds.Counting(), REPLAY),
        (SAC, box, REPLAY),
        (TD3, box, REPLAY),
    ):
        model = cls("MlpPolicy", env, policy_kwargs=dict(kwargs), **more).learn(32)
        found[cls.__name__] = _sums(model)
    apart = PPO(
        "MlpPolicy", worlds.Counting(), policy_kwargs=kwargs | {"share_features_extractor": False}, device="cpu"
    )
    found["apart"] = dict.fromkeys(apart.policy.state_dict(), 0)
    return found


def policy() -> Any:
    """A policy class with networks of its own."""
    model = A2C(HalvesPolicy, worlds.Counting(), device="cpu", seed=1).learn(40)
    return [_sums(model), type(model.policy.mlp_extractor).__name__, model.policy_class.__name__]


def networks_by_override() -> Any:
    """make_q_net, make_critic."""

    class Wide(QNetwork):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(obs)

    class WidePolicy(DQNPolicy):
        def make_q_net(self) -> QNetwork:
            return Wide(**self._update_features_extractor(self.net_args, None)).to(self.device)

    class OnePolicy(SACPolicy):
        def make_critic(self, features_extractor: Any = None) -> Any:
            self.critic_kwargs["n_critics"] = 1
            return super().make_critic(features_extractor)

    dqn = DQN(WidePolicy, worlds.Counting(), **REPLAY, **FOUR).learn(32)
    sac = SAC(OnePolicy, worlds.Target(), **REPLAY, **FOUR).learn(32)
    return [_sums(dqn), _sums(sac), type(dqn.q_net).__name__]


def buffers() -> Any:
    """Buffer classes of one's own."""

    class Loud(ReplayBuffer):
        added: ClassVar[list[Any]] = []

        def add(self, *args: Any, **kwargs: Any) -> None:
            self.added.append([list(np.shape(item)) for item in args[:5]] + [len(args) + len(kwargs)])
            super().add(*args, **kwargs)

        def sample(self, batch_size: int, env: Any = None) -> Any:
            self.added.append(["sample", batch_size, env is None])
            return super().sample(batch_size, env)

    class Plain(RolloutBuffer):
        def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
            super().compute_returns_and_advantage(last_values, dones)
            self.advantages = self.returns.copy()

    model = DQN("MlpPolicy", make_vec_env(worlds.Counting, 2), replay_buffer_class=Loud, **REPLAY).learn(20)
    ppo = PPO("MlpPolicy", worlds.Counting(), rollout_buffer_class=Plain, **ROLLOUT, **FOUR).learn(16)
    return [Loud.added, type(model.replay_buffer).__name__, _sums(ppo)]


def algorithms() -> Any:
    """Algorithms of one's own: a train of its own, the loops of the library."""

    class Regression(OffPolicyAlgorithm):
        policy_aliases: ClassVar[dict[str, Any]] = {"MlpPolicy": DQNPolicy}

        def __init__(self, env: Any, **kwargs: Any) -> None:
            super().__init__("MlpPolicy", env, 1e-3, support_multi_env=True, sde_support=False, **kwargs)
            self._setup_model()

        def train(self, gradient_steps: int, batch_size: int = 64) -> None:
            self._update_learning_rate(self.policy.optimizer)
            for _ in range(gradient_steps):
                batch = self.replay_buffer.sample(batch_size)
                values = self.policy.q_net(batch.observations).gather(1, batch.actions.long())
                loss = ((values - batch.rewards) ** 2).mean()
                self.policy.optimizer.zero_grad()
                loss.backward()
                self.policy.optimizer.step()
            self._n_updates += gradient_steps

    class Imitation(OnPolicyAlgorithm):
        def __init__(self, env: Any) -> None:
            options = {"n_steps": 8, "gamma": 0.9, "gae_lambda": 1.0, "ent_coef": 0.0, "vf_coef": 0.5}
            options |= {"max_grad_norm": 0.5, "use_sde": False, "sde_sample_freq": -1}
            super().__init__(ActorCriticPolicy, env, 1e-2, **options, **ONE, **FOUR)

        def train(self) -> None:
            self._update_learning_rate(self.policy.optimizer)
            for batch in self.rollout_buffer.get(batch_size=None):
                values, log_prob, _ = self.policy.evaluate_actions(batch.observations, batch.actions.long().flatten())
                loss = -(batch.advantages * log_prob).mean() + ((batch.returns - values.flatten()) ** 2).mean()
                self.policy.optimizer.zero_grad()
                loss.backward()
                self.policy.optimizer.step()
            self._n_updates += 1

    one = Regression(worlds.Counting(), **REPLAY, **FOUR).learn(32)
    two = Imitation(worlds.Counting()).learn(32)
    return [_sums(one), one._n_updates, _sums(two), two._n_updates, isinstance(one, BaseAlgorithm)]


def steps_by_subclass() -> Any:
    """A subclass of an algorithm that changes train."""
    calls: list[int] = []

    class Twice(PPO):
        def train(self) -> None:
            calls.append(self.num_timesteps)
            super().train()
            super().train()

    model = Twice("MlpPolicy", worlds.Counting(), n_epochs=1, **ROLLOUT).learn(48)
    return [calls, model._n_updates]


def wrapper() -> Any:
    """A VecEnvWrapper of one's own: attributes and methods of what is inside."""

    class Doubling(VecEnvWrapper):
        def reset(self) -> Any:
            return 2 * self.venv.reset()

        def step_wait(self) -> Any:
            observations, rewards, dones, infos = self.venv.step_wait()
            return 2 * observations, -rewards, dones, infos

    env = Doubling(make_vec_env(worlds.Counting, 2))
    model = A2C("MlpPolicy", env, **ONE).learn(20)
    return [
        env.reset(),
        env.step(np.array([0, 1]))[:3],
        env.get_attr("length"),
        env.unwrapped is env.venv,
        env.num_envs,
        [round(float(episode["r"]), 3) for episode in model.ep_info_buffer][:3],
        len(env.buf_rews),
    ]


def optimizers() -> Any:
    """Optimizer classes by policy_kwargs."""
    kwargs = {"optimizer_class": torch.optim.SGD, "optimizer_kwargs": {"momentum": 0.9}, "net_arch": [4]}
    ppo = PPO("MlpPolicy", worlds.Counting(), policy_kwargs=kwargs, **ROLLOUT)
    td3 = TD3("MlpPolicy", worlds.Target(), policy_kwargs=kwargs, **REPLAY)
    return [_sums(ppo.learn(32)), _sums(td3.learn(32)), type(td3.actor.optimizer).__name__]


def learning() -> Any:
    """What learn gives, how far it goes, and whose logger it uses."""
    model = PPO("MlpPolicy", worlds.Counting(), n_steps=16, batch_size=8, device="cpu")
    logger = configure(None, [])
    model.set_logger(logger)
    result = model.learn(20)
    dqn = DQN("MlpPolicy", make_vec_env(worlds.Counting, 3), buffer_size=60, device="cpu").learn(10)
    return [result is model, model.num_timesteps, model.logger is logger, dqn.num_timesteps]


def policies_without_learning() -> Any:
    """A BasePolicy of one's own."""

    class Last(BasePolicy):
        def _predict(self, observation: torch.Tensor, deterministic: bool = False) -> torch.Tensor:
            return observation[:, :1].long() % 3

    space = worlds.Counting()
    last = Last(space.observation_space, space.action_space)
    return [last.predict(np.array([2.0, 0.0], np.float32))[0], last.predict(np.ones((2, 2), np.float32))[0].ravel()]


def changes_by_callbacks() -> Any:
    """Callbacks that change weights, learning rates and options."""

    class Change(BaseCallback):
        def _on_rollout_end(self) -> None:
            with torch.no_grad():
                self.model.policy.action_net.bias.fill_(0.5)
            self.model.ent_coef, self.model.lr_schedule = 0.1, lambda progress: 1e-2

        def _on_step(self) -> bool:
            return True

    return _sums(PPO("MlpPolicy", worlds.Counting(), **ROLLOUT, **FOUR).learn(32, callback=Change()))
