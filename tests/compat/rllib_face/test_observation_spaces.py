"""Default modules read what polyak's own policies read: parts, rows of numbers, one number, images among others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.compat.rllib_face import Catalog, DQNConfig, PPOCatalog, PPOConfig, SACConfig
from tests.worlds import Drawn


class Showing(Drawn):
    length, pays = 4, 1.0

    def __init__(self, config: Any) -> None:
        self.observation_space, self.action_space = config["shows"], config["actions"]


def vector(*shape: int) -> spaces.Box:
    return spaces.Box(-1.0, 1.0, shape, np.float32)


SPACES: dict[str, spaces.Space] = {
    "Dict": spaces.Dict(a=vector(3), b=spaces.Discrete(2)),
    "Dict with an image": spaces.Dict(a=spaces.Box(0, 255, (10, 10, 3), np.uint8), b=vector(2)),
    "Tuple": spaces.Tuple([vector(), spaces.MultiBinary(3)]),
    "rows": vector(3, 2),
    "number": vector(),
}


def config(cls: Any, space: spaces.Space, **options: Any) -> Any:
    actions: Any = vector(1) if cls is SACConfig else spaces.Discrete(2)
    made = cls().environment(Showing, env_config={"shows": space, "actions": actions}, disable_env_checking=True)
    made.rl_module(model_config={"fcnet_hiddens": [4], **options}).debugging(seed=0)
    if cls is PPOConfig:
        return made.training(train_batch_size_per_learner=16, minibatch_size=8, num_epochs=1)
    made.training(num_steps_sampled_before_learning_starts=8, train_batch_size_per_learner=4)
    made.training(replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 100})
    return made.reporting(min_sample_timesteps_per_iteration=16, min_time_s_per_iteration=None)


@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
@pytest.mark.parametrize("cls", [PPOConfig, DQNConfig, SACConfig])
@pytest.mark.parametrize("name", SPACES)
def test_a_default_module_learns_from_it(name: str, cls: Any) -> None:
    options = {"conv_filters": [[4, [3, 3], 2]]} if "image" in name else {}
    with config(cls, SPACES[name], **options).build_algo() as algo:
        algo.train()
        action = algo.compute_single_action(SPACES[name].sample())
        assert algo.action_space.contains(action)


@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
def test_a_recurrent_module_learns_from_parts() -> None:
    made = config(PPOConfig, SPACES["Dict"], use_lstm=True, lstm_cell_size=4, max_seq_len=4)
    with made.build_algo() as algo:
        algo.train()
        module = algo.get_module()
        state = {name: part.expand(2, *part.shape) for name, part in module.get_initial_state()["actor"].items()}
        batch = {"obs": {"a": torch.zeros(2, 5, 3), "b": torch.zeros(2, 5, 2)}}
        found = module.forward_train({**batch, "state_in": {"actor": state, "critic": state}})
        assert found["action_dist_inputs"].shape == (2, 5, 2)


def test_all_parts_count() -> None:
    space = spaces.Dict(a=spaces.Box(0, 255, (10, 10, 3), np.uint8), b=vector(2, 2), c=vector())
    encoder = Catalog(space, spaces.Discrete(2), {"fcnet_hiddens": [5]}).build_encoder("torch")
    rows = {"a": torch.rand(3, 10, 10, 3), "b": torch.rand(3, 2, 2), "c": torch.rand(3)}
    features = encoder({"obs": rows})["encoder_out"]
    assert features.shape == (3, 5)
    for name, part in rows.items():
        assert (encoder({"obs": {**rows, name: part + 1}})["encoder_out"] != features).any(), name
    channels_first = {**rows, "a": rows["a"].movedim(-1, 1)}
    torch.testing.assert_close(encoder({"obs": channels_first})["encoder_out"], features)


def test_other_spaces_have_no_default_encoder() -> None:
    with pytest.raises(ValueError, match="no default encoder for the observation space Text"):
        PPOCatalog(spaces.Text(3), spaces.Discrete(2), {})
