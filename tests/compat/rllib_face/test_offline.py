"""BC, MARWIL and CQL in RLlib's words, on recorded data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.algorithms.cql import CQL
from polyak.algorithms.iql import IQL
from polyak.algorithms.marwil import MARWIL
from polyak.compat.rllib_face import (
    Algorithm,
    BCCatalog,
    BCConfig,
    Columns,
    CQLConfig,
    IQLConfig,
    MARWILConfig,
    PPOConfig,
    PPOTorchRLModule,
    RLModuleSpec,
    SACConfig,
    TorchRLModule,
)
from polyak.compat.rllib_face.cloning import ModuleBC
from polyak.compat.rllib_face.result_files import flattened
from polyak.experience import Dataset, collect
from polyak.experience.datasets.episodes import DatasetError
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.nn.policies.valued import ValuedPolicy
from polyak.schedules import PiecewiseSchedule
from tests.worlds import World

CART, PENDULUM = "CartPole-v1", "Pendulum-v1"
KINDS: dict[str, tuple[type[Any], str]] = {
    "BC": (BCConfig, CART),
    "MARWIL": (MARWILConfig, CART),
    "MARWIL, continuous": (MARWILConfig, PENDULUM),
    "CQL": (CQLConfig, PENDULUM),
    "IQL": (IQLConfig, PENDULUM),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name of an environment -> a file of random steps."""
    folder = tmp_path_factory.mktemp("recorded")
    return {name: str(collect(name, None, 300, seed=0).save(folder / f"{name}.npz")) for name in (CART, PENDULUM)}


def small(kind: type[Any], env: str | None, given: Any, **training: Any) -> Any:
    config = kind().training(train_batch_size_per_learner=32, **training).rl_module(model_config={"fcnet_hiddens": [8]})
    if env is not None:
        config.environment(env)
    config.offline_data(input_=given, dataset_num_iters_per_learner=4).debugging(seed=0)
    return config.reporting(min_time_s_per_iteration=0).framework(torch_compile_learner=False)


# -- in polyak's words -------------------------------------------------------------------------------------------------


def test_marwil_in_polyaks_words() -> None:
    algorithm, _, kwargs = MARWILConfig().training(beta=0.5, vf_coeff=0.3, gamma=0.9, grad_clip=2.0).plain()
    assert issubclass(algorithm, MARWIL)
    known = {
        name: kwargs[name] for name in ("beta", "vf_coef", "gamma", "max_grad_norm", "learning_rate", "batch_size")
    }
    assert known == {
        "beta": 0.5,
        "vf_coef": 0.3,
        "gamma": 0.9,
        "max_grad_norm": 2,
        "learning_rate": 1e-4,
        "batch_size": 2000,
    }
    assert (kwargs["advantage_norm_rate"], kwargs["advantage_norm_start"]) == (1e-8, 100.0)
    assert kwargs["normalize_observations"] is False
    assert MARWILConfig().training(beta=0.0).plain().algorithm is ModuleBC is BCConfig().plain().algorithm


def test_cql_in_polyaks_words() -> None:
    config = CQLConfig().training(bc_iters=7, min_q_weight=2.0, num_actions=3, temperature=0.5, actor_lr=1e-5)
    algorithm, _, kwargs = config.plain()
    assert algorithm is CQL
    assert (kwargs["bc_steps"], kwargs["conservative_weight"], kwargs["n_action_samples"]) == (7, 2.0, 3)
    assert (kwargs["softmax_temperature"], kwargs["soft_q_backup"]) == (0.5, False)
    assert kwargs["lagrange_threshold"] is None
    assert kwargs["learning_rate"] == 1e-3
    assert kwargs["learning_rates"] == {"actor": 1e-5, "critic": 1e-3, "ent_coef": 1e-3}
    more = config.copy().training(lagrangian=True, lagrangian_thresh=3.0, deterministic_backup=False).plain().kwargs
    assert (more["lagrange_threshold"], more["soft_q_backup"]) == (3.0, True)
    assert config.copy().training(target_network_update_freq=512).plain().kwargs["target_update_interval"] == 2


def test_iql_in_polyaks_words() -> None:
    config = IQLConfig().training(actor_lr=1e-5, critic_lr=1e-3, value_lr=2e-3, expectile=0.9, beta=2.0, twin_q=False)
    algorithm, policy, kwargs = config.training(tau=0.5, gamma=0.9, train_batch_size_per_learner=100).plain()
    assert issubclass(algorithm, IQL)
    assert policy is ValuedPolicy
    names = (
        "learning_rate",
        "actor_learning_rate",
        "learning_rates",
        "expectile",
        "beta",
        "tau",
        "gamma",
        "batch_size",
    )
    assert [kwargs[name] for name in names] == [1e-3, 1e-5, {"value": 2e-3}, 0.9, 2.0, 0.5, 0.9, 100]
    assert kwargs["policy_kwargs"]["n_critics"] == 1
    with pytest.raises(HyperparameterError, match="only MARWIL reads it"):
        config.training(vf_coeff=2.0)


def test_learners_share_the_rows() -> None:
    config = BCConfig().learners(num_learners=2).training(train_batch_size_per_learner=100)
    kwargs = config.plain().kwargs
    assert (kwargs["n_learners"], kwargs["batch_size"]) == (2, 200)
    assert "n_learners" not in BCConfig().learners(num_learners=1).plain().kwargs


# -- learning ----------------------------------------------------------------------------------------------------------


def untimed(learners: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Results without those that depend on the clock."""
    return {
        module: {name: value for name, value in found.items() if not name.endswith("throughput")}
        for module, found in learners.items()
    }


@pytest.mark.parametrize("name", KINDS)
def test_a_config_learns_evaluates_saves_and_restores(name: str, recorded: dict[str, str], tmp_path: Path) -> None:
    kind, env = KINDS[name]
    config = small(kind, env, recorded[env]).evaluation(evaluation_interval=2, evaluation_duration=2)
    algo = config.build_algo()
    results = [algo.train() for _ in range(2)]
    assert ["evaluation" in result for result in results] == [False, True]
    assert results[1]["evaluation"]["env_runners"]["num_episodes"] == 2
    assert [result["num_env_steps_sampled_lifetime"] for result in results] == [4 * 32, 8 * 32]
    learner = results[1]["learners"]["default_policy"]
    assert learner["num_module_steps_trained_lifetime"] == 8 * 32
    assert all(np.isfinite(value) for _, value in flattened(learner))
    critics = {"CQL": {"qf_loss", "policy_loss", "alpha_loss"}, "IQL": {"qf_loss", "qf_twin_loss", "policy_loss"}}
    losses = {**critics, "BC": {"policy_loss", "total_loss"}}
    assert losses.get(name, {"policy_loss", "vf_loss", "total_loss"}) <= learner.keys()

    algo.save_to_path(tmp_path)
    then = algo.train()
    with Algorithm.from_checkpoint(tmp_path) as again:
        assert again.iteration == 2
        assert untimed(again.train()["learners"]) == untimed(then["learners"])
        assert all(
            np.array_equal(value, again.get_weights()["default_policy"][key])
            for key, value in algo.get_weights()["default_policy"].items()
        )
        again.restore_from_path(tmp_path)
        assert again.iteration == 2
        assert again.action_space.contains(again.compute_single_action(again.observation_space.sample()))
    algo.stop()


def test_cloning_clones() -> None:
    """After some passes over what a simple rule did, the module does as it did."""
    rng = np.random.default_rng(0)
    seen = rng.uniform(-1, 1, (2000, 2)).astype(np.float32)
    actions = (seen[:, 0] > seen[:, 1]).astype(np.int64)
    data = Dataset(seen, actions, np.ones(2000), np.ones(2000, bool), next_observations=seen)
    config = small(BCConfig, None, data, lr=1e-2).rl_module(model_config={"fcnet_hiddens": [16]})
    with (
        config.offline_data(dataset_num_iters_per_learner=None)
        .training(train_batch_size_per_learner=100)
        .build() as algo
    ):
        for _ in range(10):
            result = algo.train()
        assert result["learners"]["default_policy"]["num_gradient_passes_lifetime"] == 10 * 20  # once through the data
        found, _ = algo.predict(seen)
    assert (found == actions).mean() > 0.95


def test_marwils_loss_is_the_papers(recorded: dict[str, str]) -> None:
    algo = small(MARWILConfig, CART, recorded[CART], beta=0.7, vf_coeff=0.3, gamma=0.9).build_algo()
    learner, policy, data = algo.model.learner, algo.model.policy, algo.dataset
    seen = torch.as_tensor(data.transitions(slice(0, 20)).observations)
    returns = torch.as_tensor(data.returns_to_go(0.9)[:20], dtype=torch.float32)
    taken = torch.as_tensor(data.actions[:20])

    class Batch:
        observations, actions, weights, extras = seen, taken.reshape(-1, 1), torch.ones(20), {"returns_to_go": returns}

        def _replace(self, weights: torch.Tensor) -> Any:
            other = Batch()
            other.weights = weights
            return other

    actor, value, _ = learner.objectives(Batch())
    with torch.no_grad():
        outputs = policy.module.forward_train({Columns.OBS: seen})
        logits = outputs[Columns.ACTION_DIST_INPUTS].log_softmax(-1)
        advantages = returns - policy.module.compute_values({Columns.OBS: seen}, outputs[Columns.EMBEDDINGS])
        square = 100 + 1e-8 * (advantages.square().mean() - 100)
        weights = (0.7 * advantages / (square.sqrt() + 1e-8)).exp()
        expected = -(weights * logits.gather(1, taken[:, None])[:, 0]).mean()
    torch.testing.assert_close(actor.loss.detach(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(value.loss.detach(), 0.3 * 0.5 * advantages.square().mean(), rtol=1e-5, atol=1e-6)
    algo.stop()


def test_points_count_rows(recorded: dict[str, str]) -> None:
    config = small(BCConfig, CART, recorded[CART], lr=[[0, 1e-3], [256, 0.0]])
    schedule = config.plain().kwargs["learning_rate"]
    assert isinstance(schedule, PiecewiseSchedule)
    with config.build_algo() as algo:
        rates = [algo.train()["learners"]["default_policy"]["default_optimizer_learning_rate"] for _ in range(3)]
    steps = [1e-3 * (1 - 32 * step / 256) for step in range(8)]
    assert rates == pytest.approx([np.mean(steps[:4]), np.mean(steps[4:]), 0.0], abs=1e-9)


def test_gradients_are_limited(recorded: dict[str, str]) -> None:
    with small(BCConfig, CART, recorded[CART], grad_clip=2**-10).build_algo() as algo:
        algo.train()
        norm = sum(float(p.grad.square().sum()) for p in algo.model.policy.parameters()) ** 0.5
    assert 0 < norm <= 2**-10 * (1 + 1e-5)


def test_the_log_deviation_counts_as_a_mean_of_dimensions() -> None:
    space = spaces.Box(-1, 1, (3,), np.float32)
    data = Dataset(
        np.zeros((9, 2), np.float32), np.zeros((8, 3), np.float32), np.zeros(8), np.eye(8)[7] > 0, action_space=space
    )
    with small(BCConfig, None, data, bc_logstd_coeff=0.6).build_algo() as algo:
        assert algo.model.ent_coef == pytest.approx(0.2)
    with pytest.raises(HyperparameterError, match="have no standard deviation"):
        small(BCConfig, CART, collect(CART, None, 20, seed=0), bc_logstd_coeff=0.6).build_algo()


# -- data --------------------------------------------------------------------------------------------------------------


class Wide(World):
    """Two torques of different ranges; an episode has four steps."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Box(np.array([0, -4], np.float32), np.array([2, 4], np.float32))
    length, truncates = 4, True

    def __init__(self, config: Any = None) -> None:
        self.taken: list[Any] = []

    def act(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return 3.0


def of_actions(actions: Any) -> Dataset:
    n, unbounded = len(actions), spaces.Box(-np.inf, np.inf, (2,), np.float32)
    cut = np.arange(n) == n - 1
    return Dataset(
        np.zeros((n + 1, 2), np.float32), np.asarray(actions, np.float32), np.full(n, 3.0), cut, action_space=unbounded
    )


@pytest.mark.parametrize(
    ("given", "normalized", "seen"),
    [
        ([[0.0, 4.0], [1.0, 0.0]], False, [[-1.0, 1.0], [0.0, 0.0]]),
        ([[-1.0, 0.5], [0.5, 3.0]], True, [[-1.0, 0.5], [0.5, 1.0]]),
    ],
)
def test_actions_are_learned_in_units_of_the_module(given: Any, normalized: bool, seen: Any) -> None:
    config = small(BCConfig, None, of_actions(given)).environment(Wide)
    with config.offline_data(actions_in_input_normalized=normalized).build_algo() as algo:
        np.testing.assert_allclose(algo.dataset.actions, seen, atol=1e-6)
        assert algo.action_space == Wide.action_space
        assert Wide.action_space.contains(algo.compute_single_action(np.zeros(2, np.float32), explore=True))
        assert algo.evaluate()["env_runners"]["episode_return_mean"] == 12.0


@pytest.mark.parametrize(
    ("given", "normalized", "seen"),
    [([[0.0, 4.0], [1.0, 0.0]], False, [[0.0, 4.0], [1.0, 0.0]]), ([[-1.0, 0.5]], True, [[0.0, 2.0]])],
)
def test_cql_learns_actions_in_units_of_the_environment(given: Any, normalized: bool, seen: Any) -> None:
    config = small(CQLConfig, None, of_actions(given)).environment(Wide)
    with config.offline_data(actions_in_input_normalized=normalized).build_algo() as algo:
        np.testing.assert_allclose(algo.dataset.actions, seen, atol=1e-6)


def test_actions_beyond_the_bounds_are_refused_or_brought_into_them() -> None:
    config = small(BCConfig, None, of_actions([[3.0, 4.0], [1.0, 0.0]])).environment(Wide)
    with pytest.raises(DatasetError, match="actions_in_input_normalized=True"):
        config.build_algo()
    with config.environment(clip_actions=True).build_algo() as algo:
        np.testing.assert_allclose(algo.dataset.actions[0], [1.0, 1.0], atol=1e-6)


def test_spaces_may_take_the_place_of_an_environment(recorded: dict[str, str]) -> None:
    seen = spaces.Box(-10, 10, (4,), np.float32)
    config = small(BCConfig, None, recorded[CART]).environment(observation_space=seen, action_space=spaces.Discrete(5))
    with config.build_algo() as algo:
        assert algo.train()["training_iteration"] == 1
        assert (algo.observation_space, algo.action_space) == (seen, spaces.Discrete(5))
        with pytest.raises(HyperparameterError, match="say what to learn in"):
            algo.evaluate()
    with small(BCConfig, None, recorded[CART]).build_algo() as algo:
        assert algo.action_space == spaces.Discrete(2)


def test_rewards_are_limited_as_they_are_elsewhere() -> None:
    for clip, reward in ((True, 1.0), (2.0, 2.0), (None, 3.0), (False, 3.0)):
        config = small(MARWILConfig, None, of_actions([[0.0, 0.0]] * 3)).environment(Wide, clip_rewards=clip)
        with config.build_algo() as algo:
            assert algo.dataset.rewards.tolist() == [reward] * 3


def test_several_files_and_patterns_are_one_dataset(recorded: dict[str, str], tmp_path: Path) -> None:
    for number in range(2):
        Dataset.load(recorded[CART]).save(tmp_path / f"part_{number}.npz")
    for given in ([tmp_path / "part_0.npz", str(tmp_path / "part_1.npz")], f"{tmp_path}/part_*.npz"):
        with small(BCConfig, CART, given).build_algo() as algo:
            assert len(algo.dataset) == 600
    with pytest.raises(FileNotFoundError, match="no such file"):
        small(BCConfig, CART, f"{tmp_path}/other_*.npz").build_algo()


# -- modules -----------------------------------------------------------------------------------------------------------


class Small(TorchRLModule):
    """One layer, and what was asked of it."""

    def setup(self) -> None:
        self.net = torch.nn.Linear(4, 2)
        self.calls: list[str] = []

    def _forward(self, batch: Any, **kwargs: Any) -> Any:
        self.calls.append("forward")
        return {Columns.ACTION_DIST_INPUTS: self.net(batch[Columns.OBS])}

    def _forward_exploration(self, batch: Any, **kwargs: Any) -> Any:
        self.calls.append("exploration")
        return {Columns.ACTIONS: torch.ones(len(batch[Columns.OBS]), dtype=torch.int64)}


def test_a_module_of_ones_own_is_cloned_into(recorded: dict[str, str]) -> None:
    config = small(BCConfig, CART, recorded[CART])
    config.model_config = {}
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=Small))
    with config.build_algo() as algo:
        before = algo.get_weights()["default_policy"]["net.weight"]
        algo.train()
        assert not np.array_equal(before, algo.get_weights()["default_policy"]["net.weight"])
        assert {int(algo.compute_single_action(np.zeros(4, np.float32), explore=True)) for _ in range(9)} == {1}
        assert set(algo.get_module().calls) == {"forward", "exploration"}
    marwil = small(MARWILConfig, CART, recorded[CART])
    marwil.model_config = {}
    with pytest.raises(ValueError, match="compute_values"):
        marwil.rl_module(rl_module_spec=RLModuleSpec(module_class=Small)).build_algo()


def test_what_was_cloned_is_trained_on_by_ppo(recorded: dict[str, str], tmp_path: Path) -> None:
    """The same module in both: PPO begins with what behaviour cloning has learned."""
    spec = RLModuleSpec(module_class=PPOTorchRLModule)
    with small(BCConfig, CART, recorded[CART]).rl_module(rl_module_spec=spec).build_algo() as algo:
        algo.train()
        path = f"{algo.save_to_path(tmp_path)}/learner_group/learner/rl_module/default_policy"
        learned = algo.get_module().state_dict()
    spec = RLModuleSpec(module_class=PPOTorchRLModule, load_state_path=path)
    config = PPOConfig().environment(CART).rl_module(model_config={"fcnet_hiddens": [8], "vf_share_layers": True})
    config.training(train_batch_size_per_learner=32, minibatch_size=32, num_epochs=1)
    with config.rl_module(rl_module_spec=spec).build_algo() as algo:
        assert all(value.equal(learned[name]) for name, value in algo.get_module().state_dict().items())
        algo.train()


# -- refusing ----------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: BCConfig().validate(), "input_='sampler'"),
    (lambda: BCConfig().offline_data(input_=7).validate(), "input_=7"),
    (lambda: BCConfig().offline_data(input_={"a": 0.5}).validate(), "input_="),
    (lambda: BCConfig().offline_data(input_="s3://bucket/data").validate(), "copy the files"),
    (lambda: BCConfig().offline_data(input_="a").evaluation(evaluation_interval=1).validate(), "evaluation_interval"),
    (lambda: BCConfig().offline_data(input_="a").training(minibatch_size=5).validate(), "minibatch_size"),
    (lambda: BCConfig().training(beta=0.5), "MARWILConfig"),
    (lambda: MARWILConfig().training(beta=1.5), "beta"),
    (lambda: MARWILConfig().training(burnin_len=4), "memory"),
    (lambda: MARWILConfig().offline_data(postprocess_inputs=False).plain(), "postprocess_inputs"),
    (lambda: MARWILConfig().offline_data(ignore_final_observation=True).plain(), "ignore_final_observation"),
    (lambda: CQLConfig().offline_data(ignore_final_observation=True).plain(), "ignore_final_observation"),
    (lambda: CQLConfig().offline_data(postprocess_inputs=True).plain(), "bootstrapped"),
    (lambda: CQLConfig().training(lr=3e-4), "lr=0.0003"),
    (lambda: CQLConfig().training(replay_buffer_config={"type": "EpisodeReplayBuffer"}), "drawn uniformly"),
    (lambda: CQLConfig().training(training_intensity=2.0), "dataset_num_iters_per_learner"),
    (lambda: CQLConfig().training(num_steps_sampled_before_learning_starts=9), "nothing is collected"),
    (lambda: BCConfig().env_runners(num_env_runners=1), "nothing is collected"),
    (lambda: BCConfig().env_runners(rollout_fragment_length=7), "nothing is collected"),
    (lambda: BCConfig().env_runners(env_to_module_connector=print), "passes no connector"),
    (lambda: BCConfig().offline_data(input_read_method_kwargs={"filter": 1}), "how fast"),
    (lambda: BCConfig().offline_data(map_batches_kwargs={"fn": 1}), "how fast"),
    (lambda: BCConfig().offline_data(prelearner_class=dict), "drawn from the whole"),
    (lambda: BCConfig().offline_data(offline_data_class=dict), "Dataset"),
    (lambda: BCConfig().offline_data(input_filesystem="s3"), "copy the files"),
    (lambda: BCConfig().offline_data(prelearner_use_recorded_module_states=True), "False"),
    (
        lambda: BCConfig().offline_data(input_="a", input_read_schema={"o": "x"}).build_algo(),
        r"input_read_schema\['o'\]",
    ),
    (lambda: PPOConfig().offline_data(input_="a"), "BCConfig"),
    (lambda: SACConfig().offline_data(materialize_data=True), "BCConfig"),
    (
        lambda: (
            BCConfig().offline_data(input_="a", input_read_episodes=True, input_read_sample_batches=True).validate()
        ),
        "input_read_sample_batches",
    ),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_cannot_be_done_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_programs_that_tune_ray_data_need_no_change(recorded: dict[str, str]) -> None:
    config = small(BCConfig, CART, recorded[CART]).offline_data(
        input_read_method_kwargs={"override_num_blocks": 2},
        map_batches_kwargs={"concurrency": 2, "num_cpus": 1},
        iter_batches_kwargs={"prefetch_batches": 1},
    )
    config.validate()


def test_memories_are_refused(recorded: dict[str, str]) -> None:
    config = small(BCConfig, CART, recorded[CART]).rl_module(model_config={"use_lstm": True})
    with pytest.raises(ValueError, match="recurrent"):
        config.build_algo()


def test_a_catalog_of_ones_own_builds_what_is_cloned(recorded: dict[str, str]) -> None:
    calls = []

    class Own(BCCatalog):
        def build_encoder(self, framework: str = "torch") -> Any:
            calls.append("encoder")
            return super().build_encoder(framework)

        def build_pi_head(self, framework: str = "torch") -> Any:
            calls.append("head")
            return super().build_pi_head(framework)

    config = small(BCConfig, CART, recorded[CART]).rl_module(rl_module_spec=RLModuleSpec(catalog_class=Own))
    config.build_algo().stop()
    assert calls == ["encoder", "head"]

    class Prepares(BCCatalog):
        @staticmethod
        def get_preprocessor(observation_space: Any, **kwargs: Any) -> Any:
            return None

    with pytest.raises(HyperparameterError, match=r"its get_preprocessor\(\) would never be called"):
        config.rl_module(rl_module_spec=RLModuleSpec(catalog_class=Prepares)).build_algo()
