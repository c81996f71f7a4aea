"""Distributions, forward passes and callbacks of a program's own, where the programs beside RLlib do not look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.compat.rllib_face import (
    DQNConfig,
    MultiRLModuleSpec,
    NotThereYetError,
    PPOCatalog,
    PPOConfig,
    PPOTorchRLModule,
    RLModuleSpec,
    SACConfig,
    TorchCategorical,
    TorchDiagGaussian,
    TorchMultiCategorical,
)
from polyak.compat.rllib_face.episodes import PlayedEpisode
from polyak.compat.rllib_face.metrics import MetricsLogger
from polyak.compat.rllib_face.models.catalog import Catalog
from polyak.compat.rllib_face.models.distributions import distribution_for, distribution_of, family_of
from polyak.compat.rllib_face.models.encoders import MLPEncoder
from tests.worlds import World

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)


def ppo(**options: Any) -> PPOConfig:
    config = PPOConfig().environment("CartPole-v1").debugging(seed=0).rl_module(model_config={"fcnet_hiddens": [4]})
    return config.training(train_batch_size_per_learner=32, minibatch_size=16, num_epochs=1, **options)


# -- distributions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3])], ids=str)
def test_torchs_distributions_give_the_numbers_of_the_families(space: spaces.Space) -> None:
    torch.manual_seed(0)
    kind = distribution_for(space)
    family = family_of(kind)
    assert family is not None
    width = kind.required_input_dim(space)
    mine, others = torch.randn(5, width), torch.randn(5, width)
    ours, theirs = distribution_of(family, mine), kind.from_logits(mine)
    actions = torch.as_tensor(np.array([space.sample() for _ in range(5)]))
    bound = {"rtol": 1e-5, "atol": 1e-5}  # sums of a few float32 of size 1
    torch.testing.assert_close(theirs.logp(actions), ours.log_prob(actions), **bound)
    torch.testing.assert_close(theirs.entropy(), ours.entropy(), **bound)
    kl = theirs.kl(kind.from_logits(others))
    torch.testing.assert_close(kl, ours.kl(distribution_of(family, others)), **bound)
    torch.testing.assert_close(theirs.to_deterministic().sample(), ours.mode())
    assert theirs.sample(sample_shape=(7,)).shape[:2] == (7, 5)


def test_a_subclass_of_what_a_catalog_returns_is_a_programs_own() -> None:
    kind = distribution_for(spaces.MultiDiscrete([2, 3]))
    own = type("Own", (kind,), {})
    assert family_of(own) is None
    assert own.from_logits(torch.zeros(4, 5)).sample().shape == (4, 2)
    assert issubclass(kind, TorchMultiCategorical)
    assert issubclass(distribution_for(spaces.Discrete(2)), TorchCategorical)


class Shouting(TorchDiagGaussian):
    def logp(self, value: Any, **kwargs: Any) -> Any:
        return self._dist.log_prob(value)


class ShoutingCatalog(PPOCatalog):
    def get_action_dist_cls(self, framework: str) -> Any:
        return Shouting


def test_a_log_density_for_each_part_of_an_action_is_refused() -> None:
    config = ppo().environment("Pendulum-v1").rl_module(rl_module_spec=RLModuleSpec(catalog_class=ShoutingCatalog))
    with config.build_algo() as algo, pytest.raises(ValueError, match=r"Shouting.logp\(\) must return one number"):
        algo.train()


class Counted(TorchCategorical):
    pass


class CountedCatalog(PPOCatalog):
    def get_action_dist_cls(self, framework: str) -> Any:
        return Counted


def test_an_own_distribution_survives_a_checkpoint(tmp_path: Path) -> None:
    config = ppo().rl_module(rl_module_spec=RLModuleSpec(catalog_class=CountedCatalog))
    with config.build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path)
        before = algo.get_weights()["default_policy"]
        with config.build_algo() as again:
            again.restore_from_path(tmp_path)
            after = again.get_weights()["default_policy"]
            assert all(np.array_equal(after[name], value) for name, value in before.items())
            assert again.train()["training_iteration"] == 2


class HookedCatalog(PPOCatalog):
    def _determine_components_hook(self) -> None:
        super()._determine_components_hook()
        self._action_dist_class_fn = lambda framework: Counted


def test_a_distribution_that_the_hook_alone_knows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"its hook chooses Counted: let get_action_dist_cls"):
        ppo().rl_module(rl_module_spec=RLModuleSpec(catalog_class=HookedCatalog)).build_algo()


# -- modules and specs -------------------------------------------------------------------------------------------------


class Listing(PPOTorchRLModule):
    def get_non_inference_attributes(self) -> Any:
        return "vf"


def test_names_of_attributes_are_a_list() -> None:
    with pytest.raises(ValueError, match="let it return a list"):
        ppo().rl_module(rl_module_spec=RLModuleSpec(module_class=Listing)).build_algo()


class WithMulti(PPOConfig):
    def get_default_rl_module_spec(self) -> Any:
        return MultiRLModuleSpec(RLModuleSpec(module_class=Listing2, catalog_class=PPOCatalog))


class Listing2(PPOTorchRLModule):
    pass


def test_a_default_spec_may_name_the_only_agent() -> None:
    config = WithMulti().environment("CartPole-v1").rl_module(model_config={"fcnet_hiddens": [4]})
    with config.training(train_batch_size_per_learner=32, minibatch_size=16).build_algo() as algo:
        assert type(algo.get_module()) is Listing2


@pytest.mark.parametrize(("name", "handed_on"), [("book_lstm", True), ("fcnet_hidden", False), ("custom_model", False)])
def test_options_of_ones_own_are_handed_on_and_slips_are_not(name: str, handed_on: bool) -> None:
    config = ppo().rl_module(rl_module_spec=RLModuleSpec(catalog_class=CountedCatalog), model_config={name: 3})
    if handed_on:
        with config.build_algo() as algo:
            assert algo.get_module().model_config[name] == 3
    else:
        with pytest.raises(ValueError, match="there is no such option"):
            config.build_algo()


class EncoderOfSAC(Catalog):
    def build_encoder(self, framework: str = "torch") -> Any:
        return type("Named", (MLPEncoder,), {})(self._encoder_config)


def test_sac_builds_the_encoder_of_a_catalog_of_ones_own() -> None:
    spec = RLModuleSpec(catalog_class=EncoderOfSAC)
    config = SACConfig().environment("Pendulum-v1").rl_module(rl_module_spec=spec)
    with config.training(replay_buffer_config={"capacity": 100}).build_algo() as algo:
        assert type(algo.model.policy.actor.features_extractor.encoder).__name__ == "Named"


def test_the_default_module_of_dqn_says_what_its_losses_are_made_of() -> None:
    options = {"fcnet_hiddens": [4], "num_atoms": 3, "v_min": -1.0, "v_max": 1.0, "dueling": True}
    module: Any = RLModuleSpec(DQNConfig().get_default_rl_module_spec().module_class, BOX, spaces.Discrete(2))
    module.model_config = options
    module = module.build()
    module.make_target_networks()
    batch = {"obs": torch.rand(5, 3), "new_obs": torch.rand(5, 3)}
    outputs = module.forward_train(batch)
    assert set(outputs) == {
        *("qf_preds", "atoms", "qf_logits", "qf_probs"),
        *("qf_next_preds", "qf_target_next_preds", "qf_target_next_probs"),
    }
    assert outputs["qf_target_next_probs"].shape == (5, 2, 3)
    torch.testing.assert_close(outputs["qf_next_preds"], outputs["qf_target_next_preds"])
    assert module.uses_dueling
    assert module.uses_double_q


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_numbers_are_nested_by_their_names() -> None:
    logger = MetricsLogger()
    logger.log_dict({"a": 1.0, "b": {"c": 2.0}}, key="mine", reduce="sum")
    logger.log_value(("mine", "a"), 5.0, reduce="sum")
    logger.log_value("slow", 1.0, reduce="ema", ema_coeff=0.5)
    logger.log_value("slow", 2.0, reduce="ema", ema_coeff=0.5)
    logger.log_value("ever", 2.0, reduce="sum", clear_on_reduce=False)
    assert logger.peek(("mine", "a")) == 6.0
    assert logger.peek("nothing", default=7) == 7
    assert logger.reduced() == {"mine": {"a": 6.0, "b": {"c": 2.0}}, "slow": 1.5, "ever": 2.0}
    logger.log_value("ever", 2.0, reduce="sum", clear_on_reduce=False)
    assert logger.reduced() == {"slow": 1.5, "ever": 4.0}


def test_an_episode_keeps_all_but_observations() -> None:
    episode = PlayedEpisode(None, {"first": 1})
    episode.add(np.zeros(2), 1, 0.5, False, {"n": 1})
    episode.add(
        np.ones(2), 0, 1.5, True, {"n": 2, "TimeLimit.truncated": True, "terminal_observation": np.full(2, 9.0)}
    )
    assert (len(episode), episode.get_return(), episode.get_actions()) == (2, 2.0, [1, 0])
    assert episode.get_rewards(-1) == 1.5
    assert [info.get("n") for info in episode.get_infos()] == [None, 1, 2]
    assert episode.get_observations(-1).tolist() == [9.0, 9.0]
    assert (episode.is_truncated, episode.is_terminated, episode.is_done) == (True, False, True)
    with pytest.raises(ValueError, match="only the latest observation"):
        episode.get_observations(0)


def test_steps_of_episodes_in_other_processes_are_not_seen() -> None:
    config = ppo().callbacks(on_episode_step=print).env_runners(num_env_runners=1)
    with pytest.raises(NotThereYetError, match="num_env_runners=1"):
        config.build_algo()


# -- what programs ask of modules and algorithms -----------------------------------------------------------------------


def test_parts_of_a_modules_state_go_into_another(tmp_path: Path) -> None:
    spec = ppo().get_default_rl_module_spec()
    spec.observation_space, spec.action_space = BOX, spaces.Discrete(2)
    spec.model_config = {"fcnet_hiddens": [4], "vf_share_layers": True}
    module, other = spec.build(), spec.build()
    assert {name.split(".")[0] for name in module.get_state("pi")} == {"pi"}
    assert {name.split(".")[0] for name in module.get_state(not_components=["pi", "vf"])} == {"encoder"}
    batch = {"obs": torch.rand(2, 3)}
    wanted = module.forward_inference(batch)["action_dist_inputs"]
    other.restore_from_path(module.save_to_path(tmp_path))
    torch.testing.assert_close(other.forward_inference(batch)["action_dist_inputs"], wanted)
    assert (tmp_path / module.STATE_FILE_NAME).is_file()
    args, kwargs = module.get_ctor_args_and_kwargs()
    assert type(module)(*args, **kwargs).get_state().keys() == module.get_state().keys()


@pytest.mark.parametrize(
    ("images", "entry", "once"), [(True, {}, True), (False, {}, False), (True, {"optimize_memory_usage": False}, False)]
)
def test_observations_of_images_are_kept_once(images: bool, entry: dict, once: bool) -> None:
    config = DQNConfig().training(replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50, **entry})
    assert config.plain(images).kwargs["optimize_memory_usage"] is once


def test_whether_observations_are_kept_once_is_yes_or_no() -> None:
    config = DQNConfig().training(replay_buffer_config={"optimize_memory_usage": 1})
    with pytest.raises(ValueError, match=r"replay_buffer_config\['optimize_memory_usage'\]=1"):
        config.plain()


class Elsewhere(PPOTorchRLModule):
    def get_exploration_action_dist_cls(self) -> Any:
        return Counted


def test_exploration_may_have_another_distribution_than_losses() -> None:
    config = ppo(use_kl_loss=True).rl_module(rl_module_spec=RLModuleSpec(module_class=Elsewhere))
    with config.build_algo() as algo:
        learned = algo.train()["learners"]["default_policy"]
    assert 0 <= learned["mean_kl_loss"] < 0.1


class Frames(World):
    """Images of floats, of which a buffer of RLlib's size fits into no memory."""

    observation_space = spaces.Box(0.0, 1.0, (42, 42, 3), np.float32)
    length, pays = 10, 1.0

    def __init__(self, config: Any = None) -> None:
        pass

    def look(self) -> Any:
        return np.full((42, 42, 3), self.t / 10, np.float32)


@pytest.mark.parametrize(
    ("free", "entry", "once", "on_disk"),
    [
        (1e12, {}, False, False),
        (30e6, {}, True, False),
        (10e6, {}, True, True),
        (10e6, {"optimize_memory_usage": False}, False, True),
        (1e12, {"storage_device": "disk"}, False, True),
    ],
)
@pytest.mark.filterwarnings("ignore:replay_buffer_config", "ignore:The replay buffer")
def test_a_buffer_that_does_not_fit_is_kept_otherwise(
    free: float, entry: dict, once: bool, on_disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 transitions of 21 kB, twice each, are 42 MB."""
    monkeypatch.setattr("polyak.experience.memory.available_memory", lambda: int(free))
    config = DQNConfig().environment(Frames).rl_module(model_config={"conv_filters": [[4, [8, 8], 4]]})
    config.training(
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 1000, **entry},
        num_steps_sampled_before_learning_starts=10,
    )
    with config.reporting(min_sample_timesteps_per_iteration=20).build_algo() as algo:
        buffer = algo.model.replay_buffer
        assert (buffer.optimize_memory_usage, buffer._on_disk) == (once, on_disk)
        algo.train()
        assert algo.model.learner.steps > 0


def test_a_buffer_whose_place_is_given_is_refused_where_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyak.experience.memory.available_memory", lambda: int(10e6))
    config = DQNConfig().environment(Frames).rl_module(model_config={"conv_filters": [[4, [8, 8], 4]]})
    config.training(replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 1000, "storage_device": "cpu"})
    with pytest.raises(ValueError, match="Ways out: .*storage_device='disk'"):
        config.build_algo()
