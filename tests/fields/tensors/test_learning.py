"""Learning in tensors: nothing is read, the numbers are those of the loop in numpy, and it learns."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import A2C, DQN, PPO, SAC, TD3
from polyak.algorithms import REGISTRY, get
from polyak.callbacks import BaseCallback
from polyak.envs import VecEnvWrapper, make_vec_env
from polyak.envs.batched import BatchedVecEnv
from polyak.envs.tensor import TensorCartPole, TensorEnv, TensorPendulum
from polyak.evaluation import evaluate_policy
from polyak.experience import ReplayBuffer
from polyak.fields.dataset import LearnsFromData
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.logging import logger
from polyak.warning import forget
from tests.envs.tensor.test_tensor_envs import NoCopyToHost, NoRead
from tests.pairs import one_of_each
from tests.trials import trial


class Forbidding(TensorCartPole):
    """Pushing to the left is forbidden where the cart is on the left."""

    masked = True

    def reset(self) -> Any:
        return super().reset()._replace(masks=self.allowed())

    def step(self, actions: torch.Tensor) -> Any:
        assert self.allowed().gather(1, actions[:, None]).all()
        return super().step(actions)._replace(masks=self.allowed())

    def allowed(self) -> torch.Tensor:
        return torch.stack([self.state[:, 0] > 0, torch.ones(self.num_envs, dtype=torch.bool)], 1)


class Short(TensorCartPole):
    """Observations are dicts, and episodes are cut short."""

    observation_space = spaces.Dict({"cart": spaces.Box(-9, 9, (2,)), "pole": spaces.Box(-9, 9, (2,))})
    max_episode_steps = 9

    def observe(self, state: torch.Tensor) -> Any:
        return {"cart": state[:, :2].clamp(-9, 9), "pole": state[:, 2:].clamp(-9, 9)}


SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [16]}, "seed": 0, "device": "cpu", "compile": False}
MEMORY = {"net_arch": [16], "memory": "lstm", "memory_size": 8}
ROLLOUTS = {**SMALL, "n_steps": 16, "gamma": 0.9}
REPLAYS = {**SMALL, "learning_starts": 32, "batch_size": 16, "buffer_size": 400}
LEARNERS: dict[str, tuple[Any, type[TensorEnv], dict[str, Any]]] = {
    "ppo": (PPO, TensorCartPole, {**ROLLOUTS, "batch_size": 32, "n_epochs": 2}),
    "ppo-box": (PPO, TensorPendulum, {**ROLLOUTS, "batch_size": 32, "n_epochs": 2}),
    "ppo-sde": (PPO, TensorPendulum, {**ROLLOUTS, "batch_size": 32, "n_epochs": 2, "use_sde": True}),
    "ppo-dict": (PPO, Short, {**ROLLOUTS, "batch_size": 32, "policy": "MultiInputPolicy"}),
    "ppo-memory": (PPO, Short, {**ROLLOUTS, "batch_size": 32, "policy": "MultiInputPolicy", "policy_kwargs": MEMORY}),
    "a2c": (A2C, TensorCartPole, ROLLOUTS),
    "qac": (get("qac"), Short, {**ROLLOUTS, "policy": "MultiInputPolicy"}),
    "dqn": (DQN, TensorCartPole, {**REPLAYS, "target_update_interval": 10}),
    "sac": (SAC, TensorPendulum, REPLAYS),
    "sac-3-steps": (SAC, TensorPendulum, {**REPLAYS, "n_steps": 3}),
    "sac-observations-once": (SAC, TensorPendulum, {**REPLAYS, "optimize_memory_usage": True}),
    "td3": (TD3, TensorPendulum, REPLAYS),
}


class Untouched(VecEnvWrapper):
    """Around environments in tensors, so that algorithms step them in numpy."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        return self.venv.step_wait()


def made(name: str, n_envs: int = 4, **options: Any) -> Any:
    kind, env, arguments = LEARNERS[name]
    return kind(**{"policy": "MlpPolicy", "env": env(n_envs), **arguments, **options})


@pytest.mark.parametrize("name", one_of_each(LEARNERS, "ppo-sde", "ppo-memory", "dqn", "sac-observations-once"))
def test_nothing_is_read_in_a_rollout_and_an_update(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # what is logged is kept as a tensor, as it is on a device; on the CPU it would be read at once
    monkeypatch.setattr(logger, "_detached", lambda value: value.detach() if torch.is_tensor(value) else value)
    model = made(name)
    model.learn(128, log_interval=None)
    assert model.in_tensors
    before = {key: tensor.clone() for key, tensor in model.learner.networks().items()}
    loop = type(model).loop(model, model._setup_learn(64, reset_num_timesteps=False)[1], None)
    while model.num_timesteps < model._total_timesteps:
        with NoRead(), NoCopyToHost():
            assert loop.iterate()
    assert any(not torch.equal(before[key], tensor) for key, tensor in model.learner.networks().items())


@pytest.mark.parametrize(
    "name",
    one_of_each(["ppo", "ppo-box", "ppo-sde", "ppo-dict", "ppo-memory", "a2c", "qac"], "ppo", "ppo-sde", "ppo-memory"),
)
def test_the_loop_in_numpy_gives_the_same_networks(name: str) -> None:
    env = LEARNERS[name][1]
    ours, theirs = made(name), made(name, env=Untouched(BatchedVecEnv(env(4))))
    assert ours.in_tensors
    assert not theirs.in_tensors
    for model in (ours, theirs):
        model.set_random_seed(3)
        model.learn(384)
    for key, tensor in ours.learner.networks().items():
        # 24 updates of PPO and 6 of A2C; the order of sums in float32 differs
        torch.testing.assert_close(tensor, theirs.learner.networks()[key], rtol=1e-5, atol=1e-5)
    ended = [[(e["r"], e["l"]) for e in model.ep_info_buffer] for model in (ours, theirs)]
    assert len(ended[0]) > 5 or name != "ppo"
    np.testing.assert_allclose(ended[0], ended[1], rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    one_of_each(
        [name for name in REGISTRY if issubclass(get(name), OnPolicyAlgorithm | LearnsFromData)],
        *("trpo", "reinforce", "hiro", "mbpo"),
    ),
)
def test_every_algorithm_takes_environments_in_tensors(name: str) -> None:
    """In tensors, or through numpy where it says why."""
    kind = get(name)
    options = {**trial(kind), "seed": 0}
    if options["env"] not in ("Pendulum-v1", "CartPole-v1"):
        pytest.skip("it learns from data, or in environments that forbid actions")
    env = TensorPendulum if options["env"] == "Pendulum-v1" else TensorCartPole
    model = kind(**{**options, "env": env(2)})
    model.learn(150)
    assert model.num_timesteps >= 150
    observations = model.env.reset()
    assert model.env.action_space.contains(model.predict(observations, deterministic=True)[0][0])


@pytest.mark.parametrize(
    "name",
    one_of_each(
        ["ppo", "ppo-memory", "sac", "sac-observations-once", "dqn"], "ppo-memory", "sac-observations-once", "dqn"
    ),
)
def test_training_resumes_in_the_middle_of_episodes(name: str, tmp_path: Any) -> None:
    kind, env, _ = LEARNERS[name]

    def save_at_step_35(published: dict[str, Any], _: Any) -> bool:  # within a rollout of 16, and within episodes
        if published["self"].num_timesteps == 140:
            include = ["replay_buffer"] if "replay_buffer" in published["self"].saves_also else None
            published["self"].save(tmp_path / "model", include=include)
        return True

    whole = made(name)
    whole.learn(240, callback=save_at_step_35)
    torch.manual_seed(9)
    again = kind.load(tmp_path / "model", env=env(4, seed=8), resume=True, device="cpu")
    assert again.in_tensors
    again.learn(240 - again.num_timesteps, reset_num_timesteps=False)
    assert again.num_timesteps == whole.num_timesteps
    for key, tensor in whole.learner.networks().items():
        assert torch.equal(tensor, again.learner.networks()[key]), key
    assert [e["r"] for e in again.ep_info_buffer][-3:] == [e["r"] for e in whole.ep_info_buffer][-3:]


def test_training_from_a_file_begins_with_other_episodes(tmp_path: Any) -> None:
    model = made("ppo")
    model.learn(64)
    first = model.rollout_buffer.observations[:4].clone()
    model.save(tmp_path / "model")
    again = PPO.load(tmp_path / "model", env=TensorCartPole(4), device="cpu")
    again.learn(64, reset_num_timesteps=False)
    assert not torch.equal(first, again.rollout_buffer.observations[:4])
    fresh = made("ppo")
    fresh.learn(64)
    assert torch.equal(first, fresh.rollout_buffer.observations[:4])


class Rows(BaseCallback):
    """Keeps what a step shows to callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        self.steps.append({name: self.locals[name] for name in ("infos", "rewards", "dones", "new_obs")})
        return True


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_callbacks_see_arrays_and_infos(name: str) -> None:
    rows = Rows()
    made(name).learn(160, callback=rows)
    ends = 0
    for step in rows.steps:
        assert all(isinstance(step[key], np.ndarray) for key in ("rewards", "dones", "new_obs"))
        for info, done, first in zip(step["infos"], step["dones"], step["new_obs"], strict=True):
            assert ("terminal_observation" in info) == done
            if done:
                ends += 1
                assert not info["TimeLimit.truncated"]
                assert np.abs(first).max() <= 0.05 < np.abs(info["terminal_observation"]).max()
    assert ends > 0


def test_an_evaluation_in_the_same_environments_ends_their_episodes() -> None:
    model = made("dqn")
    model.learn(80)
    evaluate_policy(model, model.get_env(), 2)
    written = model.replay_buffer.size()
    model.learn(8, reset_num_timesteps=False)
    assert model.replay_buffer.dones[written - 1].all()


@pytest.mark.parametrize("name", ["ppo", "dqn", "ppo-memory"])
def test_what_is_forbidden_is_not_chosen(name: str) -> None:
    model = made(name, policy="MlpPolicy", env=Forbidding(4))
    model.learn(160)
    assert model.in_tensors
    assert "masks" in (model.replay_buffer if name == "dqn" else model.rollout_buffer).schema


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_model_moves_between_tensors_and_numpy(name: str) -> None:
    model, elsewhere = made(name), make_vec_env("CartPole-v1", 4)
    model.learn(80)
    if name == "dqn":
        with pytest.raises(ValueError, match=r"which is in tensors: call model.replay_buffer.reset\(\)"):
            model.set_env(elsewhere)
        assert model.in_tensors
        model.learn(8, reset_num_timesteps=False)
        model.replay_buffer.reset()
    for env, in_tensors in ((elsewhere, False), (TensorCartPole(4), True)):
        model.set_env(env)
        model.learn(80)
        assert model.in_tensors is in_tensors
        assert model.ep_info_buffer
        if name == "dqn":
            model.replay_buffer.reset()


def test_evaluation_counts_episodes_as_they_are(recwarn: pytest.WarningsRecorder) -> None:
    returns, lengths = evaluate_policy(made("ppo"), TensorCartPole(3), 6, return_episode_rewards=True)
    assert returns == lengths  # a reward of 1 for each step
    assert not recwarn.list


def test_models_elsewhere_copy_to_numpy_and_say_so() -> None:
    forget()
    with pytest.warns(UserWarning, match="overlap=True"):
        model = made("sac", overlap=True)
    assert not model.in_tensors
    model.learn(80)
    assert isinstance(model.replay_buffer, ReplayBuffer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "env", "options", "steps", "enough"),
    [
        (PPO, TensorCartPole, {"n_steps": 32, "batch_size": 512, "n_epochs": 4, "learning_rate": 1e-3}, 150_000, 400),
        (DQN, TensorCartPole, {"learning_starts": 1000, "batch_size": 128, "learning_rate": 1e-3}, 60_000, 150),
        (SAC, TensorPendulum, {"learning_rate": 2e-3, "learning_starts": 1000, "gradient_steps": 4}, 12_000, -250),
    ],
)
def test_it_learns(kind: Any, env: Any, options: Any, steps: int, enough: float) -> None:
    n_envs = {PPO: 64, DQN: 8, SAC: 8}[kind]
    options = {"policy_kwargs": {"net_arch": [64, 64]}, **options}
    model = kind("MlpPolicy", env(n_envs), seed=0, device="cpu", **options)
    model.learn(steps)
    assert evaluate_policy(model, env(16, seed=77), 16)[0] > enough
