"""The built algorithm: the notebook's flow, the plain API's numbers, results, evaluation, checkpoints, refusals."""

from __future__ import annotations

import json
import math
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

import polyak
from polyak.callbacks.callback import BaseCallback
from polyak.compat.rllib_face import (
    Algorithm,
    APPOConfig,
    Columns,
    DQNConfig,
    EnvContext,
    IMPALAConfig,
    MeanStdFilter,
    PPOConfig,
    RainbowConfig,
    RLlibCallback,
    RLModuleSpec,
    SACConfig,
    get_trainable_cls,
    register_env,
)
from polyak.compat.rllib_face.learners.actor_critic import PPOTorchLearner
from polyak.compat.rllib_face.result_files import flattened
from polyak.nn.backends.numpy import Numpy
from tests.compat.rllib_face import own_networks as own
from tests.compat.rllib_face.test_config import NOTEBOOK
from tests.pairs import one_of_each
from tests.worlds import World


def ppo(**training: Any) -> PPOConfig:
    """A config that trains in a moment."""
    options = {"train_batch_size_per_learner": 128, "minibatch_size": 64, "num_epochs": 2, "lr": 1e-3, **training}
    config = PPOConfig().environment("CartPole-v1").training(**options).debugging(seed=3)
    return config.rl_module(model_config={"fcnet_hiddens": [16]})


def dqn(config: Any = None, **training: Any) -> Any:
    options = {"num_steps_sampled_before_learning_starts": 40, "hiddens": [16], **training}
    config = (config or DQNConfig()).environment("CartPole-v1").training(**options).debugging(seed=3)
    config.reporting(min_sample_timesteps_per_iteration=80)
    return config.rl_module(model_config={"fcnet_hiddens": [16]})


def sac(**training: Any) -> SACConfig:
    options = {"num_steps_sampled_before_learning_starts": 40, "train_batch_size_per_learner": 16, **training}
    config = SACConfig().environment("Pendulum-v1").training(**options).debugging(seed=3)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=80)
    return config.rl_module(model_config={"fcnet_hiddens": [16, 16]})


def impala(config: Any = None, **training: Any) -> Any:
    options = {"train_batch_size_per_learner": 50, "rollout_fragment_length": 10, "lr": 1e-3, **training}
    fragment = options.pop("rollout_fragment_length")
    config = (config or IMPALAConfig()).environment("CartPole-v1").training(**options).debugging(seed=3)
    config.env_runners(rollout_fragment_length=fragment).reporting(min_time_s_per_iteration=0)
    return config.rl_module(model_config={"fcnet_hiddens": [16]})


SMALL = {"PPO": ppo, "DQN": dqn, "Rainbow": lambda: dqn(RainbowConfig()), "SAC": sac}
SMALL |= {"IMPALA": impala, "APPO": lambda: impala(APPOConfig())}


def weights(algo: Algorithm) -> dict[str, np.ndarray]:
    return algo.get_weights()["default_policy"]


def equal(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


# -- the notebook ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_of_each(["PPO", "IMPALA", "APPO", *sorted(NOTEBOOK)], "PPO", "Rainbow_DQN"))
def test_the_notebooks_flow(name: str, tmp_path: Path) -> None:
    """Configure, build, look at the module, train and save, save at last, stop; restore and evaluate."""
    training = dict(NOTEBOOK.get(name, {}))
    small = {"num_steps_sampled_before_learning_starts": 20}
    if name == "PPO":
        small = {"train_batch_size_per_learner": 64, "minibatch_size": 64, "num_epochs": 2}
    elif name in ("IMPALA", "APPO"):
        small = {"train_batch_size_per_learner": 50, "grad_clip": 30.0}
    config = (
        get_trainable_cls(name if name in ("PPO", "IMPALA", "APPO") else "DQN")
        .get_default_config()
        .api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .evaluation(evaluation_interval=3, evaluation_duration=3)
        .training(**{**training, **small})
        .debugging(seed=None if name == "APPO" else 0)
        .reporting(min_sample_timesteps_per_iteration=40, min_time_s_per_iteration=None)
    )
    algo = config.build()
    assert isinstance(algo.get_module(), torch.nn.Module)
    results = []
    for i in range(3):
        results.append(algo.train())
        if i == 1:
            assert algo.save_to_path(tmp_path / f"checkpoint_{i + 1}") == str(tmp_path / f"checkpoint_{i + 1}")
    final = algo.save_to_path(tmp_path / "final")
    algo.stop()
    algo.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        algo.train()
    assert [result["training_iteration"] for result in results] == [1, 2, 3]
    assert ["evaluation" in result for result in results] == [False, False, True]
    assert results[2]["evaluation"]["env_runners"]["num_episodes"] == 3
    assert all(math.isfinite(value) for _, value in flattened(results[2]["learners"]))

    with Algorithm.from_checkpoint(final) as again:
        assert again.iteration == 3
        assert equal(weights(again), weights(algo))
        assert again.evaluate()["env_runners"]["num_episodes"] == 3
        assert again.train()["training_iteration"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PPO", "IMPALA", "APPO", *sorted(NOTEBOOK)])
def test_the_notebooks_convolutions_play_breakout(name: str) -> None:
    pytest.importorskip("ale_py")
    filters = [[32, [8, 8], 4], [64, [4, 4], 2], [64, [3, 3], 1]]
    small: dict[str, Any] = {"train_batch_size_per_learner": 50, "grad_clip": 30.0}
    config = get_trainable_cls("DQN" if name in NOTEBOOK else name).get_default_config()
    if name == "PPO":
        small = {"train_batch_size_per_learner": 32, "minibatch_size": 16, "num_epochs": 1}
    elif name in NOTEBOOK:
        replay = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 100, "alpha": 0.5, "beta": 0.5}
        small = {**NOTEBOOK[name], "num_steps_sampled_before_learning_starts": 20, "replay_buffer_config": replay}
    config.environment("ALE/Breakout-v5").rl_module(model_config={"conv_filters": filters}).training(**small)
    config.reporting(min_sample_timesteps_per_iteration=30, min_time_s_per_iteration=None)
    with config.build() as algo:
        assert algo.model.get_env().observation_space.shape == (3, 210, 160)
        assert algo.get_module().catalog.latent_dims == (64 * 27 * 20,)
        result = algo.train()
        assert all(math.isfinite(value) for _, value in flattened(result["learners"]))
        assert algo.compute_single_action(np.zeros((210, 160, 3), np.uint8)) in range(4)


# -- the plain API -----------------------------------------------------------------------------------------------------


def of_policy(model: Any) -> dict[str, np.ndarray]:
    """All weights, those of target networks too, by polyak's names."""
    return {name: tensor.numpy().copy() for name, tensor in model.policy.state_dict().items()}


class Snapshot(BaseCallback):
    """The weights once so many steps were made and learned from."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.weights = steps, {}

    def _on_step(self) -> bool:
        if self.num_timesteps > self.steps and not self.weights:
            self.weights = of_policy(self.model)
        return not self.weights


@pytest.mark.parametrize(
    ("name", "n_envs"),
    [
        pytest.param(name, n, marks=[] if (i + n) % 2 else pytest.mark.slow)
        for i, name in enumerate(SMALL)
        for n in (1, 2)
    ],
)
def test_equal_seeds_give_the_weights_of_the_plain_api(name: str, n_envs: int) -> None:
    """The plain call, as the config words it, on an environment that nobody but it has made."""
    config: Any = SMALL[name]().env_runners(num_envs_per_env_runner=n_envs).framework(torch_compile_learner=False)
    with config.build() as algo:
        for _ in range(2):
            algo.train()
        steps, ours = algo.model.num_timesteps, of_policy(algo.model)
    plain = config.plain()
    env = polyak.envs.make_vec_env(config.env, n_envs=n_envs)
    if config.scales_actions and isinstance(env.action_space, spaces.Box):
        pytest.fail("none of these scales actions by the environment")
    model = getattr(polyak, plain.algorithm.__name__)(plain.policy, env, **plain.kwargs)
    snapshot = Snapshot(steps)
    model.learn(1_000_000, callback=snapshot)
    assert equal(ours, snapshot.weights)


def test_a_config_without_catalogs_equals_the_usual_policy() -> None:
    """With the layers that "MlpPolicy" has, too, and the same draws from the generator: not one bit differs."""
    config = ppo(use_kl_loss=False, vf_clip_param=None)
    with config.build() as algo:
        algo.train()
        algo.train()
        ours = list(algo.get_module().parameters())
    options = {"net_arch": [16], "activation_fn": torch.nn.Tanh, "ortho_init": False, "optimizer_kwargs": {"eps": 1e-8}}
    kwargs = {"n_steps": 128, "batch_size": 64, "n_epochs": 2, "learning_rate": 1e-3, "gae_lambda": 1.0}
    kwargs |= {"clip_range": 0.3, "vf_coef": 1.0, "max_grad_norm": None, "seed": 3, "policy_kwargs": options}
    model = polyak.PPO("MlpPolicy", "CartPole-v1", **kwargs, device="cpu").learn(256)
    mlp, policy = model.policy.mlp_extractor, model.policy
    parts = (mlp.policy_net, mlp.value_net, policy.action_net, policy.value_net)
    theirs = [tensor for part in parts for tensor in part.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_acting_goes_the_quick_way() -> None:
    """Default perceptrons act by arrays, as those of the plain API do."""
    for config in (ppo(), dqn(), ppo().rl_module(model_config={"vf_share_layers": True})):
        with config.build() as algo:
            acting = Numpy(algo.model.policy)
            acting(np.zeros((1, *algo.model.observation_space.shape), np.float32))
            assert acting.reason is None


def test_rollouts_of_a_shared_encoder_are_judged_right() -> None:
    config = ppo().rl_module(model_config={"vf_share_layers": True, "fcnet_hiddens": [8]})
    with config.build() as algo:
        algo.train()
        buffer, module = algo.model.rollout_buffer, algo.get_module()
        assert module.encoder.of_actor is module.encoder.of_critic
        assert algo.model.policy.pi_features_extractor is algo.model.policy.vf_features_extractor
        assert np.isfinite(buffer.values).all()


# -- networks ----------------------------------------------------------------------------------------------------------


class Pictures(World):
    """Bright or dark pictures, and a point for saying which. Channels first or last."""

    def __init__(self, context: EnvContext) -> None:
        shape = (12, 12, 3) if context.get("last", True) else (3, 12, 12)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space, self.length = spaces.Discrete(2), 10

    def look(self) -> Any:
        self._bright = bool(self.np_random.integers(2))
        return np.full(self.observation_space.shape, 250 if self._bright else 5, np.uint8)

    def act(self, action: Any) -> float:
        return float(bool(action) == self._bright)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
def test_pictures_of_either_order_reach_the_encoder_as_they_are(kind: Any, last: bool) -> None:
    config = kind().environment(Pictures, env_config={"last": last}).debugging(seed=1)
    config.rl_module(model_config={"conv_filters": [[4, [4, 4], 2]], "head_fcnet_hiddens": [8]})
    small = {"train_batch_size_per_learner": 32, "minibatch_size": 32, "num_epochs": 1} if kind is PPOConfig else {}
    config.training(**small).reporting(min_sample_timesteps_per_iteration=20)
    if kind is DQNConfig:
        config.training(num_steps_sampled_before_learning_starts=10)
    with config.build() as algo:
        assert algo.observation_space.shape == algo.get_module().observation_space.shape
        algo.train()
        seen = torch.as_tensor(algo.observation_space.sample()[None])
        outputs = algo.get_module().forward_inference({Columns.OBS: seen})[Columns.ACTION_DIST_INPUTS]
        action = algo.compute_single_action(seen[0].numpy())
        assert int(outputs.argmax()) == int(action)


@pytest.mark.parametrize("catalog", [own.ConvCatalog, own.WholeEncoderCatalog])
def test_an_encoder_of_ones_own_by_one_method_of_the_catalog(catalog: type, tmp_path: Path) -> None:
    config = ppo().environment(Pictures, env_config={"last": False})
    config.rl_module(model_config={}, rl_module_spec=RLModuleSpec(catalog_class=catalog))
    with config.build() as algo:
        nets = [m for m in algo.get_module().modules() if isinstance(m, own.ConvFCNet)]
        before = [net.conv1.weight.clone() for net in nets]
        algo.train()
        assert nets
        assert all(not torch.equal(net.conv1.weight, old) for net, old in zip(nets, before, strict=True))
        algo.save_to_path(tmp_path)
        ours = weights(algo)
    with Algorithm.from_checkpoint(tmp_path) as again:
        assert equal(weights(again), ours)


def test_an_encoder_of_ones_own_for_dqn() -> None:
    config = dqn().environment(Pictures, env_config={"last": False})
    config.rl_module(model_config={}, rl_module_spec=RLModuleSpec(catalog_class=own.ConvDQNCatalog))
    with config.build() as algo:
        algo.train()
        module = algo.get_module()
        assert isinstance(module.encoder, own.ConvFCNet)
        assert module._target[0].encoder is not module.encoder


def test_a_whole_module_learns_as_one_that_is_taken_apart() -> None:
    """The same networks, called whole: the same numbers to rounding."""

    class Whole(polyak.compat.rllib_face.DefaultPPOTorchRLModule):
        def _forward(self, batch: dict, **kwargs: Any) -> dict:
            return super()._forward(batch, **kwargs)

    trained = []
    for module_class in (polyak.compat.rllib_face.DefaultPPOTorchRLModule, Whole):
        config = ppo().rl_module(rl_module_spec=RLModuleSpec(module_class=module_class))
        with config.build() as algo:
            algo.train()
            trained.append([tensor.clone() for tensor in algo.get_module().state_dict().values()])
    for apart, whole in zip(*trained, strict=True):
        torch.testing.assert_close(apart, whole, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("make", [ppo, dqn])
def test_training_can_begin_with_the_weights_of_a_module(make: Any, tmp_path: Path) -> None:
    with make().build() as algo:
        algo.train()
        algo.get_module().save_to_path(tmp_path)
        ours = algo.get_module().get_state(inference_only=make is dqn)
    with make().rl_module(rl_module_spec=RLModuleSpec(load_state_path=tmp_path)).build() as other:
        assert equal(other.get_module().get_state(inference_only=make is dqn), ours)
        if make is dqn:
            policy = other.model.policy
            pairs = zip(policy.q_net.parameters(), policy.q_net_target.parameters(), strict=True)
            assert all(torch.equal(online, target) for online, target in pairs)
        other.train()


def test_a_module_that_lacks_what_the_loss_needs_is_refused() -> None:
    spec = RLModuleSpec(module_class=own.WithoutValues, model_config={"hidden": 8})
    with pytest.raises(ValueError, match="compute_values"):
        ppo().rl_module(model_config={}, rl_module_spec=spec).build()
    spec = RLModuleSpec(module_class=own.OwnModule, model_config={"hidden": 8})
    with pytest.raises(ValueError, match="compute_q_values"):
        dqn().rl_module(model_config={}, rl_module_spec=spec).build()


@pytest.mark.parametrize("shared", [True, False])
def test_memory_for_ppo(shared: bool) -> None:
    options = {
        "use_lstm": True,
        "lstm_cell_size": 8,
        "fcnet_hiddens": [8],
        "vf_share_layers": shared,
        "max_seq_len": 16,
    }
    with ppo().rl_module(model_config=options).build() as algo:
        algo.train()
        action, state, _ = algo.compute_single_action(algo.observation_space.sample())
        again, then, _ = algo.compute_single_action(algo.observation_space.sample(), state)
        assert {int(action), int(again)} <= {0, 1}
        assert not np.array_equal(state[0], then[0])
        assert algo.get_module().is_stateful()


def test_memory_for_dqn_burns_in() -> None:
    options = {"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "max_seq_len": 4}
    with dqn(burn_in_len=2).rl_module(model_config=options).build() as algo:
        algo.train()
        extractor = algo.model.policy.q_net.features_extractor
        assert (extractor.burn_in, extractor.core.units) == (2, 8)
        assert extractor.core is algo.get_module().encoder.core


def test_module_and_learner_have_the_same_weights() -> None:
    for config in (ppo(), dqn(), sac()):
        with config.build() as algo:
            algo.train()
            learned = {p.data_ptr() for p in algo.model.learner.parameters()}
            assert {p.data_ptr() for p in algo.get_module().parameters()} <= learned
            with pytest.raises(KeyError, match="default_policy"):
                algo.get_module("another")


def test_the_module_of_sac_says_what_the_actor_does() -> None:
    with sac().build() as algo:
        observation = algo.observation_space.sample()
        batch = {Columns.OBS: torch.as_tensor(observation[None]), Columns.ACTIONS: torch.zeros(1, 1)}
        mean = algo.get_module().forward_inference(batch)[Columns.ACTION_DIST_INPUTS][:, :1]
        assert 2 * torch.tanh(mean).item() == pytest.approx(float(algo.compute_single_action(observation)[0]), rel=1e-5)
        assert algo.get_module().compute_q_values(batch)["qf_preds"].shape == (1,)


def test_weights_can_be_read_and_put_back() -> None:
    with ppo().build() as algo:
        first = algo.get_weights()
        algo.train()
        assert not equal(weights(algo), first["default_policy"])
        algo.set_weights(first)
        assert equal(weights(algo), first["default_policy"])
        for wrong in ({"other": {}}, {"default_policy": {}}):
            with pytest.raises(ValueError, match="module"):
                algo.set_weights(wrong)


# -- what is reported --------------------------------------------------------------------------------------------------


def test_rows_and_steps_are_counted_as_they_are() -> None:
    """Rows that gradients were taken of, and not a batch once for each of its minibatches."""
    with ppo(train_batch_size_per_learner=100, minibatch_size=64, num_epochs=3).build() as algo:
        first, second = algo.train(), algo.train()
    assert second["num_env_steps_sampled_lifetime"] == 200
    assert second["env_runners"]["num_env_steps_sampled"] == 100
    assert first["learners"]["__all_modules__"]["num_env_steps_trained"] == 300
    assert second["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"] == 600
    with dqn().build() as algo:
        result = algo.train()
    assert result["env_runners"]["num_env_steps_sampled"] == 80
    assert result["learners"]["default_policy"]["num_module_steps_trained"] == 41 * 32


def test_results_can_be_written_down_and_have_fresh_evaluations_alone() -> None:
    with ppo().evaluation(evaluation_interval=2, evaluation_duration=2).build() as algo:
        results = [algo.train() for _ in range(3)]
    assert ["evaluation" in result for result in results] == [False, True, False], "only where it is fresh"
    assert results[1]["evaluation"]["iteration"] == 2
    assert results[0]["config"]["lr"] == 1e-3
    json.dumps({key: value for key, value in results[2].items() if key != "config"})
    assert "iteration 3" in Algorithm.summary(results[2])


def test_means_are_of_the_latest_episodes() -> None:
    with ppo().reporting(metrics_num_episodes_for_smoothing=2).build() as algo:
        result = algo.train()["env_runners"]
        kept = [episode["r"] for episode in algo.model.ep_info_buffer]
    assert len(kept) == 2
    assert result["episode_return_mean"] == pytest.approx(np.mean(kept))
    assert result["num_episodes"] > 2


def test_an_iteration_is_as_long_as_it_must_be() -> None:
    with ppo().reporting(min_sample_timesteps_per_iteration=300).build() as algo:
        result = algo.train()
        assert (result["num_env_steps_sampled_lifetime"], result["num_training_step_calls_per_iteration"]) == (384, 3)
    with ppo().reporting(min_train_timesteps_per_iteration=300).build() as algo:
        assert algo.train()["num_training_step_calls_per_iteration"] == 2
    with ppo().reporting(min_time_s_per_iteration=0.2).build() as algo:
        assert algo.train()["time_this_iter_s"] >= 0.2


def test_penalty_and_learning_rate_follow_their_rules() -> None:
    config = ppo(kl_coeff=0.4, kl_target=100.0, lr=[[0, 1e-3], [256, 1e-5]])
    with config.build() as algo:
        found = [algo.train()["learners"]["default_policy"] for _ in range(3)]
    assert [one["curr_kl_coeff"] for one in found] == pytest.approx([0.4, 0.2, 0.1])
    rates = [one["default_optimizer_learning_rate"] for one in found]
    assert rates == pytest.approx([5.05e-4, 1e-5, 1e-5], rel=1e-5)


def test_random_actions_follow_all_points() -> None:
    points = [[0, 1.0], [40, 0.5], [80, 0.1], [160, 0.0]]
    with dqn(epsilon=points).build() as algo:
        found = []
        for _ in range(2):
            algo.train()
            found.append(algo.model.exploration_rate)
    assert found == pytest.approx([0.1, 0.0], abs=1e-6)


def test_callbacks_are_told(tmp_path: Path) -> None:
    told: list[str] = []

    class Told(RLlibCallback):
        def on_algorithm_init(self, *, algorithm: Any, **kwargs: Any) -> None:
            told.append("init")

        def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
            metrics_logger.log_value("longest", len(episode), reduce="max")
            assert episode.get_return() == len(episode)

        def on_train_result(self, *, result: dict, **kwargs: Any) -> None:
            told.append("result")
            result["mine"] = 7

    def made(*, env: gym.Env, env_context: EnvContext, **kwargs: Any) -> None:
        told.append(f"env {env_context.vector_index}")

    config = ppo().callbacks(Told, on_environment_created=made)
    config.callbacks(on_checkpoint_loaded=lambda *, algorithm: told.append("x"))
    config.callbacks(on_evaluate_start=lambda **_: told.append("start"), on_evaluate_end=lambda **_: told.append("end"))
    with config.evaluation(evaluation_interval=1, evaluation_duration=1).build() as algo:
        result = algo.train()
        algo.restore_from_path(algo.save_to_path(tmp_path))
        longest = max(episode["l"] for episode in algo.model.ep_info_buffer)
    assert told == ["env 0", "init", "start", "env 0", "end", "result", "x"]
    assert result["mine"] == 7
    assert result["env_runners"]["longest"] == longest


def test_callbacks_that_nobody_would_call_are_refused() -> None:
    with pytest.raises(ValueError, match="RLlibCallback"):
        ppo().callbacks(dict).build()
    with pytest.raises(TypeError, match="on_evaluate_start"):
        ppo().callbacks(on_evaluate_starts=print)


# -- evaluation --------------------------------------------------------------------------------------------------------


def test_evaluation_leaves_training_as_it_is() -> None:
    """Weights and all random numbers are those of a training without it."""
    trained = []
    for interval in (None, 1):
        config = ppo().evaluation(evaluation_interval=interval, evaluation_duration=2)
        with config.build() as algo:
            algo.train()
            algo.train()
            trained.append(weights(algo))
    assert equal(*trained)


def test_evaluation_explores_as_it_is_told() -> None:
    """PPO explores in evaluation unless it is told not to, DQN the other way round."""
    greedy = ppo().env_runners(explore=False)
    again = greedy.copy().evaluation(evaluation_config={"explore": True})
    for config, explores in ((ppo(), True), (dqn(), False), (greedy, False), (again, True)):
        assert config.evaluation_settings().explore is explores
    with ppo().evaluation(evaluation_config=PPOConfig.overrides(explore=False)).build() as algo:
        assert algo.config.evaluation_settings().explore is False
        one, two = (algo.evaluate()["env_runners"]["episode_return_mean"] for _ in range(2))
        assert one != two, "other episodes"


def test_evaluation_counts_episodes_or_steps() -> None:
    with ppo().evaluation(evaluation_duration=100, evaluation_duration_unit="timesteps").build() as algo:
        assert algo.evaluate()["env_runners"]["num_env_steps_sampled"] >= 100
    config = ppo().evaluation(evaluation_duration=5, evaluation_config={"num_envs_per_env_runner": 2})
    with config.build() as algo:
        assert algo.evaluate()["env_runners"]["num_episodes"] == 5


def played_by_hand(algo: Any, group: Any) -> Any:
    """What RLlib calls: (algorithm, group of runners that evaluate) -> (results, environment steps, agent steps)."""
    assert group.foreach_env_runner(lambda runner: runner, local_env_runner=False) == []
    (once,) = group.foreach_env_runner(lambda runner: runner.sample())
    (twice,) = group.foreach_env_runner(lambda runner: runner.sample(num_timesteps=8, explore=True))
    (measured,) = group.foreach_env_runner(lambda runner: runner.get_metrics())
    lengths = [[len(episode) for episode in episodes] for episodes in (once, twice)]
    return {"lengths": lengths, "measured": measured}, 21, 21


def test_evaluation_by_a_function_of_ones_own() -> None:
    config = ppo().environment(env_config={"max_episode_steps": 7})  # in which no pole falls
    with config.evaluation(custom_evaluation_function=played_by_hand).build() as algo:
        found = algo.evaluate()
    assert found["lengths"] == [[7], [7, 7]]
    assert found["measured"]["num_episodes"] == 3
    assert found["iteration"] == 0
    with (
        ppo().evaluation(custom_evaluation_function=lambda algo, group: 3).build() as algo,
        pytest.raises(ValueError, match="dict"),
    ):
        algo.evaluate()


# -- environments ------------------------------------------------------------------------------------------------------


def test_environments_by_a_name_of_ones_own() -> None:
    contexts: list[EnvContext] = []

    def create(context: EnvContext) -> gym.Env:
        contexts.append(context)
        return gym.make("CartPole-v1", max_episode_steps=context["most"])

    register_env("short cart pole", create)
    config = ppo().environment("short cart pole", env_config={"most": 9}).env_runners(num_envs_per_env_runner=2)
    with config.build() as algo:
        result = algo.train()["env_runners"]
    assert result["episode_len_max"] <= 9
    assert [context.vector_index for context in contexts] == [0, 1]
    with pytest.raises(ValueError, match="Did you mean 'short cart pole'"):
        ppo().environment("short cartpole").build()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (None, "env=None"),
        (gym.make("CartPole-v1"), "pass its class"),
        (3, "registered name"),
        (lambda c: 3, "gymnasium"),
    ],
)
def test_what_is_no_environment_is_refused(env: Any, words: str) -> None:
    config = ppo().environment(env, disable_env_checking=True)
    with pytest.raises((ValueError, TypeError), match=words):
        config.build()


def test_spaces_must_be_the_environments() -> None:
    with pytest.raises(ValueError, match="observation_space"):
        ppo().environment("CartPole-v1", observation_space=spaces.Box(-1, 1, (3,))).build()
    with ppo().environment("Pendulum-v1", action_space=spaces.Box(-2, 2, (1,), np.float32)).build() as algo:
        assert algo.action_space.high[0] == 2


def test_actions_are_scaled_to_the_environments_range() -> None:
    with ppo().environment("Pendulum-v1").build() as algo:
        assert algo.model.action_space.high[0] == 1
        observation = algo.observation_space.sample()
        inner = algo.model.predict(observation, deterministic=True)[0]
        assert algo.compute_single_action(observation)[0] == pytest.approx(2 * inner[0])
        algo.train()
    config = ppo().environment("Pendulum-v1", normalize_actions=False)
    with pytest.raises(ValueError, match="clip_actions"):
        config.build()
    with config.environment(clip_actions=True).build() as algo:
        assert algo.model.action_space.high[0] == 2


def test_limited_rewards_are_learned_from_and_others_reported() -> None:
    with ppo().environment("Pendulum-v1", clip_rewards=True).build() as algo:
        for _ in range(2):
            result = algo.train()
        assert set(np.unique(algo.model.rollout_buffer.rewards)) <= {-1.0, 0.0}
        assert result["env_runners"]["episode_return_mean"] < -200
        assert algo.evaluate()["env_runners"]["episode_return_mean"] < -200
    with ppo().environment("Pendulum-v1", clip_rewards=0.5).build() as algo:
        algo.train()
        assert np.abs(algo.model.rollout_buffer.rewards).max() == pytest.approx(0.5)


@pytest.mark.slow
def test_environments_in_processes_of_their_own() -> None:
    config = ppo().env_runners(num_envs_per_env_runner=2, gym_env_vectorize_mode="async")
    with config.build() as algo:
        remote = algo.train()
    with ppo().env_runners(num_envs_per_env_runner=2).build() as algo:
        local = algo.train()
    assert remote["env_runners"]["episode_return_mean"] == local["env_runners"]["episode_return_mean"]


# -- acting ------------------------------------------------------------------------------------------------------------


def test_single_actions_and_many() -> None:
    with ppo().build() as algo:
        observation = algo.observation_space.sample()
        assert algo.action_space.contains(np.int64(algo.compute_single_action(observation)))
        assert {int(algo.compute_single_action(observation, explore=True)) for _ in range(50)} == {0, 1}
        actions, _ = algo.predict(np.stack([observation] * 3))
        assert actions.shape == (3,)
        with pytest.raises(ValueError, match="policy_id"):
            algo.compute_single_action(observation, policy_id="default_policy")


def test_methods_of_earlier_versions_name_what_took_their_place() -> None:
    with ppo().build() as algo:
        with pytest.raises(AttributeError, match="get_module"):
            algo.get_policy()
        with pytest.raises(AttributeError, match="Did you mean 'train'"):
            algo.trian()


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_of_each(SMALL, "PPO", "DQN"))
def test_training_goes_on_the_same_from_each_restoration(name: str, tmp_path: Path) -> None:
    config: Any = SMALL[name]()
    if hasattr(config, "store_buffer_in_checkpoints"):
        config.training(store_buffer_in_checkpoints=True)
    with config.build() as algo:
        for _ in range(2):
            algo.train()
        algo.save_to_path(tmp_path)
        ours = weights(algo)
        trained = []
        for _ in range(2):
            algo.restore_from_path(tmp_path)
            assert equal(weights(algo), ours)
            assert algo.iteration == 2
            result = algo.train()
            trained.append(weights(algo))
    with Algorithm.from_checkpoint(tmp_path) as again:
        assert again.train()["num_env_steps_sampled_lifetime"] == result["num_env_steps_sampled_lifetime"]
        trained.append(weights(again))
    assert equal(trained[0], trained[1])
    assert equal(trained[0], trained[2])
    assert not equal(trained[0], ours)
    assert result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"] > 0


def test_replayed_experience_is_saved_where_it_is_asked_for(tmp_path: Path) -> None:
    for asked in (False, True):
        with dqn(store_buffer_in_checkpoints=asked).build() as algo:
            algo.train()
            algo.save_to_path(tmp_path)
            algo.restore_from_path(tmp_path)
            assert algo.model.replay_buffer.size() == (80 if asked else 0)


def test_checkpoints_hold_no_pickles_and_the_plain_api_reads_them(tmp_path: Path) -> None:
    for name, config in (("PPO", ppo()), ("C51", dqn(num_atoms=5)), ("SAC", sac())):
        with config.build() as algo:
            algo.train()
            folder = Path(algo.save_to_path(tmp_path / name))
            action = algo.model.predict(np.zeros(algo.observation_space.shape, np.float32), deterministic=True)[0]
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["learner_group"] * (name != "SAC") + ["model.zip", "rllib_checkpoint.json"]
        files = [path for path in folder.rglob("*") if path.is_file() and path.name != "model.zip"]
        assert all(path.suffix in (".json", ".safetensors", ".zip") for path in files)
        with zipfile.ZipFile(folder / "model.zip") as archive:
            assert all(member.endswith((".json", ".safetensors")) for member in archive.namelist())
            assert b"$pickle" not in archive.read("polyak.json") + archive.read("algorithm.json")
        model = getattr(polyak, name).load(folder / "model.zip")
        again = model.predict(np.zeros(model.observation_space.shape, np.float32), deterministic=True)[0]
        np.testing.assert_array_equal(action, again)


def test_the_earlier_names_of_saving(tmp_path: Path) -> None:
    with ppo().build() as algo:
        result = algo.train()
        saved = algo.save(tmp_path)
        assert saved.metrics is result
        assert (saved.checkpoint.path, saved.checkpoint.to_directory()) == (str(tmp_path), str(tmp_path))
        ours, about = weights(algo), json.loads((tmp_path / "rllib_checkpoint.json").read_text())
        assert (about["type"], about["module_ids"]) == ("Algorithm", ["default_policy"])
        algo.train()
        algo.restore(saved)
        assert equal(weights(algo), ours)
        assert algo.get_config() is algo.config
    with saved.checkpoint.as_directory() as folder, Algorithm.from_checkpoint(saved) as again:
        assert (folder, again.iteration) == (str(tmp_path), 1)
        assert equal(weights(again), ours)


def test_the_weights_alone(tmp_path: Path) -> None:
    with ppo().build() as algo, ppo().debugging(seed=4).build() as other:
        algo.train()
        algo.save_to_path(tmp_path)
        other.restore_from_path(tmp_path, component="learner_group/learner/rl_module")
        assert equal(weights(other), weights(algo))
        assert other.iteration == 0
        with pytest.raises(ValueError, match="component"):
            other.restore_from_path(tmp_path, component="enw_runner")


def test_a_component_alone(tmp_path: Path) -> None:
    config = ppo().env_runners(env_to_module_connector=lambda *_, **__: MeanStdFilter())
    with config.build() as algo, config.copy(copy_frozen=False).debugging(seed=4).build() as other:
        algo.train()
        algo.save_to_path(tmp_path)
        ours = weights(other)
        other.restore_from_path(tmp_path, component="env_runner")
        assert other.model.num_timesteps == 128
        assert equal(weights(other), ours)
        seen, before = (one.get_state()["env_runner"]["env_to_module_connector"] for one in (other, algo))
        assert before["obs_rms"]["count"] > 100
        np.testing.assert_equal(seen, before)
        other.restore_from_path(tmp_path, component="learner_group/learner")
        assert equal(weights(other), weights(algo))
        assert other.model.learner.steps == algo.model.learner.steps
        assert other.iteration == 0


def test_a_checkpoint_takes_the_place_of_an_older_one_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ppo().build() as algo:
        algo.save_to_path(tmp_path)
        before = (tmp_path / "model.zip").read_bytes()
        algo.train()
        monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            algo.save_to_path(tmp_path)
        monkeypatch.undo()
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "learner_group",
            "model.zip",
            "rllib_checkpoint.json",
        ]
        assert (tmp_path / "model.zip").read_bytes() == before
        algo.save_to_path(tmp_path)
        assert (tmp_path / "model.zip").read_bytes() != before


def test_checkpoints_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    with ppo().build() as algo, dqn().build() as other:
        ours = weights(algo)
        other.save_to_path(tmp_path / "dqn")
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / "model.zip").write_bytes((tmp_path / "dqn" / "model.zip").read_bytes()[:900])
        other.model.save(tmp_path / "plain" / "model.zip")
        wider = ppo().rl_module(model_config={"fcnet_hiddens": [32]})
        with wider.build() as wide:
            wide.save_to_path(tmp_path / "wide")
        for folder, error, words in (
            ("dqn", ValueError, "checkpoint of DQN"),
            ("broken", ValueError, "damaged"),
            ("plain", ValueError, "no checkpoint"),
            ("nothing", FileNotFoundError, "model.zip"),
            ("wide", (ValueError, RuntimeError), "shape"),
        ):
            with pytest.raises(error, match=words):
                algo.restore_from_path(tmp_path / folder)
        assert equal(weights(algo), ours)
        algo.train()


def test_functions_of_a_file_are_asked_for_or_trusted(tmp_path: Path) -> None:
    config = ppo().callbacks(on_train_result=lambda **_: None)
    with config.build() as algo:
        algo.save_to_path(tmp_path)
    with pytest.raises(ValueError, match=r"code in its settings \{'on_train_result'.*trust=True"):
        Algorithm.from_checkpoint(tmp_path)
    for trusted in ({"config": config}, {"trust": True}):
        with get_trainable_cls("PPO").from_checkpoint(tmp_path, **trusted) as again:
            assert again.config.on_train_result is not None
    with ppo().callbacks(on_train_result=partial(print, _Unpickled())).build() as algo:
        algo.save_to_path(tmp_path)
    with pytest.raises(ValueError, match="no file can hold the settings.*on_train_result"):
        Algorithm.from_checkpoint(tmp_path, trust=True)


class _Unpickled:
    def __reduce__(self) -> Any:
        raise TypeError("not this one")


class Counting(RLlibCallback):
    loaded = 0

    def on_checkpoint_loaded(self, **kwargs: Any) -> None:
        Counting.loaded += 1


class OwnLearner(PPOTorchLearner):
    """As it is."""


class OwnEnv(CartPoleEnv):
    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.length = dict(config or {}).get("length", 0)


def test_classes_of_a_program_are_found_again(tmp_path: Path) -> None:
    config = ppo().environment(OwnEnv, env_config={"length": 7}).callbacks(Counting).training(learner_class=OwnLearner)
    spec = RLModuleSpec(module_class=own.OwnModule, model_config={"hidden": 8})
    with config.rl_module(rl_module_spec=spec, model_config={}).build() as algo:
        algo.train()
        algo.save_to_path(tmp_path)
        before, Counting.loaded = weights(algo), 0
    with Algorithm.from_checkpoint(tmp_path) as again:
        assert equal(weights(again), before)
        assert Counting.loaded == 1
        assert isinstance(again.model.learner, OwnLearner)
        assert type(again.get_module()) is own.OwnModule
        assert again.env_runner.env.envs[0].unwrapped.length == 7
