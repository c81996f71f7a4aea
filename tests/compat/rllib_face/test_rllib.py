"""Beside RLlib itself: names, defaults, sizes and numbers. The facts are committed, and checked against it where it is.

``POLYAK_RLLIB_PYTHON`` is the interpreter of an environment with ``ray[rllib]`` in it.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.compat.rllib_face import (
    APPOConfig,
    BCConfig,
    CNNEncoderConfig,
    Columns,
    CQLConfig,
    DefaultModelConfig,
    DQNConfig,
    IMPALAConfig,
    MARWILConfig,
    MLPEncoderConfig,
    PPOCatalog,
    PPOConfig,
    RecurrentEncoderConfig,
    SACConfig,
)

FOLDER = Path(__file__).parent
FACTS = json.loads((FOLDER / "rllib_defaults.json").read_text())
PYTHON = os.environ.get("POLYAK_RLLIB_PYTHON", "")
CONFIGS = {"PPO": PPOConfig, "DQN": DQNConfig, "SAC": SACConfig, "IMPALA": IMPALAConfig, "APPO": APPOConfig}
CONFIGS |= {"BC": BCConfig, "MARWIL": MARWILConfig, "CQL": CQLConfig}
OTHERWISE = {
    **{(name, "num_env_runners"): "one process, until somebody asks for more" for name in ("PPO", "IMPALA", "APPO")},
    **{(name, "num_learners"): "one process, until somebody asks for more" for name in ("IMPALA", "APPO")},
    ("CQL", "lr"): "None, as there are three rates: the peer itself refuses its own default",
    **{(name, "torch_compile_learner"): "programs where they pay" for name in CONFIGS},
    **{(name, "callbacks_class"): "none, where the peer has a class of empty methods" for name in CONFIGS},
}
"""Defaults that differ on purpose."""
OF_EARLIER_VERSIONS = {"logger_config"}
"""Settings that the peer had before."""


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("name", CONFIGS)
def test_settings_have_the_peers_names_and_defaults(name: str) -> None:
    ours, theirs = CONFIGS[name](), FACTS[name]
    known = {field.name for field in fields(ours)}
    callbacks = {setting for setting in known if setting.startswith("on_")}
    assert known - callbacks - OF_EARLIER_VERSIONS <= set(theirs), "a setting that the peer does not have"
    for setting, default in theirs.items():
        if (name, setting) not in OTHERWISE and setting in known:
            assert as_json(getattr(ours, setting)) == default, setting


def test_options_of_models_and_columns_are_the_peers() -> None:
    ours = {field.name: getattr(DefaultModelConfig(), field.name) for field in fields(DefaultModelConfig)}
    theirs = {name: value for name, value in FACTS["model"].items() if not name.startswith("fusionnet_")}
    assert ours == theirs
    assert {name: value for name, value in vars(Columns).items() if name.isupper()} == FACTS["columns"]


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """What the installed RLlib says."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [PYTHON, str(FOLDER / "rllib_facts.py")]
    result = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=FOLDER)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


live = pytest.mark.skipif(not PYTHON, reason="needs POLYAK_RLLIB_PYTHON, a Python with ray[rllib]")


@live
@pytest.mark.slow
def test_the_committed_facts_are_those_of_the_peer(facts: dict[str, Any]) -> None:
    for name in CONFIGS:
        assert {key: facts[name][key] for key in FACTS[name]} == FACTS[name]
    assert facts["model"] == FACTS["model"]
    assert facts["columns"] == FACTS["columns"]
    assert facts["own_model_options"] == dict(PPOConfig.own_model_options)


@live
@pytest.mark.slow
def test_rollouts_and_fragments_have_the_peers_lengths(facts: dict[str, Any]) -> None:
    ours = [DQNConfig().training(n_step=n).get_rollout_fragment_length() for n in (1, 3, (2, 5))]
    assert ours == facts["fragments"]
    ours = [PPOConfig().env_runners(num_envs_per_env_runner=n).get_rollout_fragment_length() for n in (1, 4)]
    assert ours == facts["batches"]


@live
@pytest.mark.slow
def test_convolutions_of_equal_weights_give_the_peers_numbers(facts: dict[str, Any]) -> None:
    for key, (size, outputs) in facts["pictures"].items():
        side, filters = json.loads(key)
        encoder = CNNEncoderConfig(input_dims=[side, side, 3], cnn_filter_specifiers=filters).build()
        rng = np.random.default_rng(0)
        weights = [rng.standard_normal(p.shape).astype(np.float32) * 0.1 for p in encoder.state_dict().values()]
        names = list(encoder.state_dict())
        encoder.load_state_dict({name: torch.as_tensor(w) for name, w in zip(names, weights, strict=True)})
        image = torch.as_tensor(rng.standard_normal((1, side, side, 3)).astype(np.float32))
        found = encoder({"obs": image})["encoder_out"][0]
        assert len(found) == size
        torch.testing.assert_close(found[:: max(size // 50, 1)], torch.tensor(outputs), rtol=1e-4, atol=1e-4)


@live
@pytest.mark.slow
def test_encoders_and_distributions_have_the_peers_shapes(facts: dict[str, Any]) -> None:
    mlp = MLPEncoderConfig(input_dims=[3], hidden_layer_dims=[8, 8], output_layer_dim=4, output_layer_activation="tanh")
    assert [list(v.shape) for v in mlp.build().state_dict().values()] == facts["mlp"]
    lstm = RecurrentEncoderConfig(input_dims=[3], hidden_dim=5, tokenizer_config=mlp).build()
    assert {name: list(v.shape) for name, v in lstm.get_initial_state().items()} == facts["lstm"]
    box = spaces.Box(-1, 1, (2,))
    kind = PPOCatalog(spaces.Box(-1, 1, (3,)), box, {}).get_action_dist_cls()
    assert kind.required_input_dim(box) == facts["gaussian"]
    logp = kind.from_logits(torch.tensor([[0.1, -0.2, 0.3, 0.4]])).logp(torch.tensor([[0.5, 0.5]]))
    torch.testing.assert_close(logp, torch.tensor(facts["logp"]))
