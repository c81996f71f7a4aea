"""Descriptions of networks, catalogs and modules: shapes, numbers, refusals, files."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from polyak.compat.rllib_face import (
    ACTOR,
    CRITIC,
    ENCODER_OUT,
    ActorCriticEncoderConfig,
    Catalog,
    CNNEncoderConfig,
    Columns,
    DefaultDQNTorchRLModule,
    DefaultModelConfig,
    DefaultPPOTorchRLModule,
    DQNCatalog,
    FreeLogStdMLPHeadConfig,
    InferenceOnlyAPI,
    MLPEncoderConfig,
    MLPHeadConfig,
    ModelConfig,
    PPOCatalog,
    QNetAPI,
    RecurrentEncoderConfig,
    RLModuleSpec,
    TargetNetworkAPI,
    TorchRLModule,
    ValueFunctionAPI,
)
from polyak.nn.networks.noisy import NoisyLinear
from tests.compat.rllib_face.own_networks import ConvFCNetConfig, OwnModule

VECTOR, PICTURE = spaces.Box(-1, 1, (4,)), spaces.Box(0, 255, (84, 84, 3), np.uint8)
CHOICE, FORCE = spaces.Discrete(3), spaces.Box(-2, 2, (2,))
NOTEBOOK_FILTERS = [[32, [8, 8], 4], [64, [4, 4], 2], [64, [3, 3], 1]]


def observations(space: spaces.Space, rows: int = 5) -> torch.Tensor:
    return torch.as_tensor(np.stack([space.sample() for _ in range(rows)]))


# -- configs of networks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dims", "filters", "size"),
    [
        ([84, 84, 3], [[16, [8, 8], 4], [32, [4, 4], 2]], 32 * 11 * 11),
        ([84, 84, 3], NOTEBOOK_FILTERS, 64 * 11 * 11),
        ([210, 160, 3], NOTEBOOK_FILTERS, 64 * 27 * 20),
        ([11, 7, 1], [[2, 3, 2]], 2 * 6 * 4),
        ([11, 7, 1], [[2, [3, 5], [2, 1]]], 2 * 6 * 7),
        ([8, 8, 1], [[2, [4, 4], 2, "valid"]], 2 * 3 * 3),
        ([8, 8, 1], [[2, [4, 4], 2, 1]], 2 * 4 * 4),
    ],
)
def test_convolutions_make_the_sizes_that_the_config_says(dims: list[int], filters: list[Any], size: int) -> None:
    config = CNNEncoderConfig(input_dims=dims, cnn_filter_specifiers=filters)
    encoder = config.build(framework="torch")
    features = encoder({"obs": torch.rand(2, *dims)})[ENCODER_OUT]
    assert config.output_dims == (size,)
    assert features.shape == (2, size)
    flat = CNNEncoderConfig(input_dims=dims, cnn_filter_specifiers=filters, flatten_at_end=False)
    assert flat.build()({"obs": torch.rand(2, *dims)})[ENCODER_OUT].shape == (2, *flat.output_dims)


def test_the_notebooks_convolutions_pad_as_it_printed() -> None:
    encoder = CNNEncoderConfig(
        input_dims=[84, 84, 3], cnn_filter_specifiers=[[16, [8, 8], 4], [32, [4, 4], 2]], cnn_activation="relu"
    ).build()
    kinds = [type(layer) for layer in encoder.net[0].cnn]
    assert kinds == [nn.ZeroPad2d, nn.Conv2d, nn.ReLU] * 2
    assert [layer.padding for layer in encoder.net[0].cnn if isinstance(layer, nn.ZeroPad2d)] == [
        (2, 2, 2, 2),
        (1, 2, 1, 2),
    ]


def test_same_padding_is_a_convolution_of_the_padded_picture() -> None:
    """Against a convolution written out: each output is a sum over the pixels that its kernel covers."""
    encoder = CNNEncoderConfig(input_dims=[5, 4, 1], cnn_filter_specifiers=[[1, [3, 2], 2]], cnn_activation="linear")
    net, image = encoder.build(), torch.rand(1, 5, 4, 1)
    weight, bias = net.net[0].cnn[-1].weight[0, 0].detach(), net.net[0].cnn[-1].bias.item()
    padded = torch.zeros(7, 4)
    padded[1:6] = image[0, :, :, 0]  # ceil(5 / 2) = 3 rows need 7 pixels: one above, one below; 2 columns need 4
    by_hand = [
        float((padded[2 * i : 2 * i + 3, 2 * j : 2 * j + 2] * weight).sum()) + bias for i in range(3) for j in range(2)
    ]
    np.testing.assert_allclose(net({"obs": image})[ENCODER_OUT][0].tolist(), by_hand, rtol=1e-5, atol=1e-6)


def test_perceptrons_have_the_layers_that_the_config_says() -> None:
    config = MLPEncoderConfig(
        input_dims=[2],
        hidden_layer_dims=[8, 8],
        hidden_layer_activation="silu",
        hidden_layer_use_layernorm=True,
        hidden_layer_use_bias=False,
        output_layer_dim=4,
        output_layer_activation="tanh",
        output_layer_use_bias=False,
    )
    net = config.build().net.mlp
    assert [type(layer) for layer in net] == [nn.Linear, nn.LayerNorm, nn.SiLU] * 2 + [nn.Linear, nn.Tanh]
    assert all(layer.bias is None for layer in net if isinstance(layer, nn.Linear))
    assert net[1].eps == 1e-3
    assert config.output_dims == (4,)
    assert MLPEncoderConfig(input_dims=[2], hidden_layer_dims=[]).output_dims == (2,)


def test_initializers_fill_the_layers_they_name() -> None:
    config = MLPHeadConfig(
        input_dims=[3],
        hidden_layer_dims=[4],
        output_layer_dim=2,
        hidden_layer_weights_initializer="constant_",
        hidden_layer_weights_initializer_config={"val": 0.5},
        output_layer_bias_initializer=nn.init.ones_,
    )
    first, _, last = config.build().net.mlp
    assert torch.equal(first.weight, torch.full((4, 3), 0.5))
    assert torch.equal(last.bias, torch.ones(2))


def test_a_noisy_head_is_noisy_throughout() -> None:
    net = MLPHeadConfig(input_dims=[3], hidden_layer_dims=[4], output_layer_dim=2, sigma0=0.4).build().net.mlp
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    assert all(isinstance(layer, NoisyLinear) for layer in layers)
    assert layers[0].weight_scale[0, 0].item() == pytest.approx(0.4 / 3**0.5)


def test_log_standard_deviations_are_clipped_or_free() -> None:
    clipped = MLPHeadConfig(input_dims=[3], output_layer_dim=4, clip_log_std=True, log_std_clip_param=0.01).build()
    outputs = clipped(100 * torch.randn(50, 3))
    assert outputs[:, 2:].abs().max() <= 0.01 < outputs[:, :2].abs().max()
    free = FreeLogStdMLPHeadConfig(input_dims=[3], hidden_layer_dims=[8], output_layer_dim=4).build()
    outputs = free(torch.randn(5, 3))
    assert torch.equal(outputs[:, 2:], free.log_std.expand(5, 2))
    with pytest.raises(ValueError, match="even"):
        FreeLogStdMLPHeadConfig(input_dims=[3], output_layer_dim=3).build()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("batch_major", [True, False])
def test_what_remembers_agrees_with_torch(kind: str, batch_major: bool) -> None:
    config = RecurrentEncoderConfig(
        input_dims=[3],
        recurrent_layer_type=kind,
        hidden_dim=5,
        num_layers=2,
        batch_major=batch_major,
        tokenizer_config=MLPEncoderConfig(input_dims=[3], hidden_layer_dims=[7]),
    )
    encoder = config.build()
    theirs = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](7, 5, 2, batch_first=batch_major)
    theirs.load_state_dict(encoder.core.state_dict())
    state = {name: torch.randn(4, *part.shape) for name, part in encoder.get_initial_state().items()}
    inputs = torch.randn(4, 6, 3) if batch_major else torch.randn(6, 4, 3)
    outputs = encoder({"obs": inputs, "state_in": state})
    tokens = encoder.tokenizer.net(inputs)
    first = tuple(state[name].transpose(0, 1).contiguous() for name in ("h", "c") if name in state)
    expected, last = theirs(tokens, first if kind == "lstm" else first[0])
    torch.testing.assert_close(outputs[ENCODER_OUT], expected)
    last_h = last[0] if kind == "lstm" else last
    torch.testing.assert_close(outputs[Columns.STATE_OUT]["h"], last_h.transpose(0, 1))
    assert set(encoder.get_initial_state()) == ({"h", "c"} if kind == "lstm" else {"h"})
    with pytest.raises(KeyError, match="state_in"):
        encoder({"obs": inputs})


@pytest.mark.parametrize("shared", [True, False])
def test_actor_and_critic_share_an_encoder_or_have_their_own(shared: bool) -> None:
    base = MLPEncoderConfig(input_dims=[4], hidden_layer_dims=[6])
    encoder = ActorCriticEncoderConfig(base_encoder_config=base, shared=shared).build()
    outputs = encoder({"obs": torch.randn(3, 4)})[ENCODER_OUT]
    assert torch.equal(outputs[ACTOR], outputs[CRITIC]) == shared
    assert len(list(encoder.parameters())) == (2 if shared else 4)


def test_a_network_of_ones_own_with_its_bug_mended() -> None:
    net = ConvFCNetConfig([3, 64, 64], True).build()
    assert net.fc.in_features == 65536
    assert net({Columns.OBS: torch.randn(2, 3, 64, 64)})[ENCODER_OUT].shape == (2, 10)
    with pytest.raises(ValueError, match="input_dims"):
        net({Columns.OBS: torch.randn(2, 64, 64, 3)})


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: MLPEncoderConfig(input_dims=[3]).build("tf2"), "torch"),
        (lambda: MLPEncoderConfig().build(), "input_dims"),
        (lambda: MLPEncoderConfig(input_dims=[3, 3]).build(), "input_dims"),
        (lambda: MLPEncoderConfig(input_dims=[3], hidden_layer_activation="rulu").build(), "Did you mean 'relu'"),
        (lambda: MLPEncoderConfig(input_dims=[3], hidden_layer_dims=[0]).build(), "positive"),
        (lambda: MLPHeadConfig(input_dims=[3], hidden_layer_weights_initializer="xavir").build(), "torch.nn.init"),
        (lambda: CNNEncoderConfig(input_dims=[8, 8]).build(), "input_dims"),
        (lambda: CNNEncoderConfig(input_dims=[8, 8, 1], cnn_filter_specifiers=[[4, 4]]).build(), "conv filter"),
        (lambda: CNNEncoderConfig(input_dims=[8, 8, 1], cnn_filter_specifiers=[[4, [2, 0], 1]]).build(), "conv filter"),
        (
            lambda: CNNEncoderConfig(input_dims=[8, 8, 1], cnn_filter_specifiers=[[4, 9, 1, "valid"]]).build(),
            "larger than the 8 x 8",
        ),
        (lambda: RecurrentEncoderConfig(input_dims=[3]).build(), "hidden_dim"),
        (lambda: RecurrentEncoderConfig(input_dims=[3], recurrent_layer_type="rnn", hidden_dim=3).build(), "lstm"),
        (lambda: ActorCriticEncoderConfig().build(), "base_encoder_config"),
        (lambda: ModelConfig().build(), "build"),
    ],
)
def test_descriptions_that_cannot_be_built_are_refused(build: Any, words: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=words):
        build()


# -- catalogs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "options", "kind", "latent"),
    [
        (VECTOR, {}, MLPEncoderConfig, 256),
        (VECTOR, {"fcnet_hiddens": [5, 3]}, MLPEncoderConfig, 3),
        (VECTOR, {"fcnet_hiddens": []}, MLPEncoderConfig, 4),
        (PICTURE, {}, CNNEncoderConfig, 256 * 11 * 11),
        (PICTURE, {"conv_filters": NOTEBOOK_FILTERS}, CNNEncoderConfig, 64 * 11 * 11),
        (VECTOR, {"use_lstm": True, "lstm_cell_size": 9}, RecurrentEncoderConfig, 9),
    ],
)
def test_the_observation_space_chooses_the_encoder(space: Any, options: Any, kind: type, latent: int) -> None:
    catalog = Catalog(space, CHOICE, options)
    assert isinstance(catalog._encoder_config, kind)
    assert catalog.latent_dims == (latent,)
    assert catalog.build_encoder(framework="torch") is not None


@pytest.mark.parametrize("size", [96, 84, 64, 42, 10])
def test_squares_have_default_convolutions(size: int) -> None:
    catalog = Catalog(spaces.Box(0, 255, (size, size, 3), np.uint8), CHOICE, DefaultModelConfig())
    assert catalog.build_encoder()({"obs": torch.rand(1, size, size, 3)})[ENCODER_OUT].shape[1:] == catalog.latent_dims


@pytest.mark.parametrize(
    ("space", "action", "error"),
    [
        (spaces.Text(3), CHOICE, "no default encoder"),
        (spaces.Dict({"a": spaces.Text(3)}), CHOICE, "no default encoder"),
        (spaces.Box(0, 1, (50, 50, 3)), CHOICE, "conv_filters"),
        (VECTOR, spaces.Box(-1, 1, (2, 2)), "reshape"),
        (VECTOR, spaces.Box(0, 5, (2,), np.int64), "MultiDiscrete"),
    ],
)
def test_spaces_without_a_default_are_refused(space: Any, action: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        PPOCatalog(space, action, {}).build_pi_head()


def test_catalogs_take_what_they_take() -> None:
    class MyCatalog(Catalog):
        def build_my_head(self, framework: str) -> Any:
            hidden: dict[str, Any] = {"hidden_layer_dims": [64, 32]}
            return MLPHeadConfig(input_dims=[self.observation_space.shape[0]], **hidden).build(framework=framework)

    catalog = MyCatalog(spaces.Box(0, 1), spaces.Box(0, 1), {})
    assert catalog.build_my_head(framework="torch")(torch.Tensor([[1]])).shape == (1, 32)
    catalog.latent_dims = (7,)
    assert catalog.latent_dims == (7,)
    heads = PPOCatalog(VECTOR, CHOICE, {"head_fcnet_hiddens": [9], "head_fcnet_activation": "tanh"})
    assert (heads.pi_and_vf_head_hiddens, heads.pi_and_vf_head_activation) == ([9], "tanh")
    values = DQNCatalog(VECTOR, CHOICE, {"num_atoms": 5})
    outputs = [head(torch.zeros(2, *values.latent_dims)) for head in (values.build_af_head(), values.build_vf_head())]
    assert [tuple(each.shape) for each in outputs] == [(2, 3 * 5), (2, 5)]
    values.af_head_config = MLPHeadConfig(input_dims=values.latent_dims, hidden_layer_dims=[7], output_layer_dim=15)
    assert values.build_af_head()(torch.zeros(2, *values.latent_dims)).shape == (2, 15)
    assert 7 in {layer.out_features for layer in values.build_af_head().modules() if isinstance(layer, nn.Linear)}
    assert Catalog._get_dist_cls_from_action_space(CHOICE) is None
    given_up: dict[str, Any] = {"view_requirements": {}}
    with pytest.raises(TypeError, match="view_requirements"):
        Catalog(VECTOR, CHOICE, {}, **given_up)
    with pytest.raises(ValueError, match="use 'torch'"):
        Catalog._get_dist_cls_from_action_space(CHOICE, framework="tf2")
    with pytest.raises(ValueError, match="only continuous actions have a standard deviation"):
        PPOCatalog(VECTOR, CHOICE, {"free_log_std": True}).build_pi_head()


def test_options_of_preprocessors_are_refused() -> None:
    assert Catalog.get_preprocessor(CHOICE).transform(1).tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="wrap the environment"):
        Catalog.get_preprocessor(VECTOR, options={"custom_preprocessor": "mine"})


@pytest.mark.parametrize(
    ("action", "outputs"), [(CHOICE, 3), (FORCE, 4), (spaces.MultiDiscrete([2, 5]), 7), (spaces.MultiBinary(3), 3)]
)
def test_the_policy_head_has_what_the_distribution_reads(action: Any, outputs: int) -> None:
    catalog = PPOCatalog(VECTOR, action, {})
    kind = catalog.get_action_dist_cls(framework="torch")
    assert kind.required_input_dim(action) == outputs
    logits = catalog.build_pi_head()(torch.randn(6, *catalog.latent_dims))
    assert logits.shape == (6, outputs)
    distribution = kind.from_logits(logits)
    actions = distribution.sample()
    assert distribution.logp(actions).shape == (6,)
    assert distribution.kl(kind.from_logits(logits)).abs().max() < 1e-6
    assert distribution.to_deterministic().sample().shape == actions.shape
    assert distribution.sample(sample_shape=(2, 3)).shape == (2, 3, *actions.shape)


# -- modules -----------------------------------------------------------------------------------------------------------


def module_of(space: Any = VECTOR, action: Any = CHOICE, **options: Any) -> Any:
    return RLModuleSpec(DefaultPPOTorchRLModule, space, action, model_config=options).build()


@pytest.mark.parametrize("space", [VECTOR, PICTURE])
@pytest.mark.parametrize("shared", [True, False])
def test_the_module_of_ppo_acts_and_judges(space: Any, shared: bool) -> None:
    module = module_of(space, vf_share_layers=shared)
    batch = {Columns.OBS: observations(space)}
    for forward in (module.forward_inference, module.forward_exploration, module.forward_train, module):
        assert forward(batch)[Columns.ACTION_DIST_INPUTS].shape == (5, 3)
    assert not module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS].requires_grad
    outputs = module.forward_train(batch)
    values = module.compute_values(batch)
    torch.testing.assert_close(module.compute_values(batch, outputs[Columns.EMBEDDINGS]), values)
    assert values.shape == (5,)
    assert isinstance(module, ValueFunctionAPI)
    assert isinstance(module, InferenceOnlyAPI)


def test_bytes_of_pictures_are_read_as_fractions() -> None:
    module, pictures = module_of(PICTURE), observations(PICTURE)
    theirs = module.forward_inference({Columns.OBS: pictures.float() / 255})
    torch.testing.assert_close(
        module.forward_inference({Columns.OBS: pictures})[Columns.ACTION_DIST_INPUTS],
        theirs[Columns.ACTION_DIST_INPUTS],
    )


@pytest.mark.parametrize("shared", [True, False])
def test_a_module_with_a_memory(shared: bool) -> None:
    module = module_of(use_lstm=True, lstm_cell_size=6, vf_share_layers=shared)
    state = module.get_initial_state()
    assert module.is_stateful()

    def batched(part: Any) -> Any:
        return {k: batched(v) for k, v in part.items()} if isinstance(part, dict) else part.expand(5, *part.shape)

    inputs = {Columns.OBS: torch.randn(5, 3, 4), Columns.STATE_IN: batched(state)}
    outputs = module.forward_train(inputs)
    assert outputs[Columns.ACTION_DIST_INPUTS].shape == (5, 3, 3)
    assert set(outputs[Columns.STATE_OUT]) == set(state)


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("atoms", [1, 5])
def test_the_module_of_dqn_says_what_actions_are_worth(dueling: bool, atoms: int) -> None:
    options = {"dueling": dueling, "num_atoms": atoms, "v_min": -1.0, "v_max": 3.0, "head_fcnet_hiddens": [8]}
    module = RLModuleSpec(DefaultDQNTorchRLModule, VECTOR, CHOICE, model_config=options).build()
    batch = {Columns.OBS: observations(VECTOR)}
    found = module.compute_q_values(batch)
    assert found["qf_preds"].shape == (5, 3)
    if atoms > 1:
        assert found["qf_logits"].shape == (5, 3, 5)
        torch.testing.assert_close(found["qf_preds"], (found["qf_probs"] * torch.linspace(-1, 3, 5)).sum(-1))
    if dueling:  # advantages are centred over actions, of each atom by itself
        features = module.encoder(batch)[ENCODER_OUT]
        values = module.vf(features)
        by_atom = found["qf_logits"].mean(1) if atoms > 1 else found["qf_preds"].mean(1, keepdim=True)
        torch.testing.assert_close(by_atom, values)
    assert torch.equal(module.forward_inference(batch)[Columns.ACTIONS], found["qf_preds"].argmax(1))
    with pytest.raises(RuntimeError, match="make_target_networks"):
        module.forward_target(batch)
    module.make_target_networks()
    assert torch.equal(module.forward_target(batch)["qf_preds"], found["qf_preds"])
    assert len(module.get_target_network_pairs()) == 2 + dueling
    assert [name for name in module.get_state() if name.startswith("_target")]
    assert not [name for name in module.get_state(inference_only=True) if name.startswith("_target")]
    assert isinstance(module, QNetAPI)
    assert isinstance(module, TargetNetworkAPI)


def test_modules_are_files_too(tmp_path: Path) -> None:
    module = module_of(fcnet_hiddens=[8])
    folder = module.save_to_path(tmp_path / "module")
    again = TorchRLModule.from_checkpoint(folder)
    assert type(again) is DefaultPPOTorchRLModule
    assert again.get_state().keys() == module.get_state().keys()
    assert all(np.array_equal(again.get_state()[k], v) for k, v in module.get_state().items())
    other = RLModuleSpec(
        DefaultPPOTorchRLModule, VECTOR, CHOICE, model_config={"fcnet_hiddens": [8]}, load_state_path=folder
    ).build()
    assert torch.equal(other.pi.net.mlp[0].weight, module.pi.net.mlp[0].weight)
    own = RLModuleSpec(OwnModule, VECTOR, CHOICE, model_config={"hidden": 3}).build()
    assert type(TorchRLModule.from_checkpoint(own.save_to_path(tmp_path / "own"))) is OwnModule
    with pytest.raises(FileNotFoundError, match=r"module\.json"):
        TorchRLModule.from_checkpoint(tmp_path)
    (tmp_path / "module" / "module.json").write_text("{}")
    with pytest.raises(ValueError, match="damaged"):
        TorchRLModule.from_checkpoint(folder)


def test_state_that_does_not_fit_changes_nothing() -> None:
    module = module_of()
    before = copy.deepcopy(module.get_state())
    for state in ({"nobody": np.zeros(3)}, {"pi.net.0.bias": np.zeros(9)}):
        with pytest.raises(ValueError, match="does not fit"):
            module.set_state(state)
    assert all(np.array_equal(module.get_state()[k], v) for k, v in before.items())


def test_modules_can_be_copied_and_pickled() -> None:
    module = module_of()
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        batch = {Columns.OBS: observations(VECTOR)}
        assert torch.equal(other(batch)[Columns.ACTION_DIST_INPUTS], module(batch)[Columns.ACTION_DIST_INPUTS])


def test_catalogs_of_dqn_need_choices() -> None:
    with pytest.raises(ValueError, match="Discrete"):
        DQNCatalog(VECTOR, FORCE, {}).build_af_head()


@pytest.mark.parametrize(("name", "fix"), [("save_state", "save_to_path"), ("config", "observation_space")])
def test_names_that_a_module_once_had_say_what_to_use(name: str, fix: str) -> None:
    module = DefaultDQNTorchRLModule(observation_space=VECTOR, action_space=CHOICE, model_config={"fcnet_hiddens": [4]})
    with pytest.raises(AttributeError, match=f"has no {name}. Use .*{fix}"):
        getattr(module, name)


def test_advantages_have_a_distribution_of_their_own() -> None:
    options = {"fcnet_hiddens": [4], "num_atoms": 3, "dueling": True, "v_min": -1.0, "v_max": 1.0}
    module = DefaultDQNTorchRLModule(observation_space=VECTOR, action_space=CHOICE, model_config=options)
    found = module.compute_advantage_distribution({"obs": torch.zeros(2, *VECTOR.shape)})
    assert found["qf_probs"].shape == (2, int(CHOICE.n), 3)
    torch.testing.assert_close(found["qf_probs"].sum(-1), torch.ones(2, int(CHOICE.n)))
    torch.testing.assert_close(found["atoms"], torch.tensor([-1.0, 0.0, 1.0]))


def test_what_a_base_module_does_alone() -> None:
    class Own(TorchRLModule):
        made = 0

        def setup(self) -> None:
            self.made += 1

        def get_initial_state(self) -> Any:
            return [1]

    own = Own(observation_space=VECTOR, action_space=spaces.Text(3))
    assert own.is_stateful()
    own.setup()
    assert own.made == 2
    with pytest.raises(NotImplementedError, match=r"must write _forward\(batch\)"):
        own.forward_inference({})
    with pytest.raises(NotImplementedError, match="no distribution over the action space"):
        own.get_inference_action_dist_cls()
    with pytest.raises(ValueError, match="no default encoder"):
        RLModuleSpec(DefaultPPOTorchRLModule, spaces.Text(3), CHOICE).build()
    for name, instead in {
        "as_multi_agent": "as_multi_rl_module",
        "load_state": "restore_from_path",
        "save_to_checkpoint": "save_to_path",
    }.items():
        with pytest.raises(AttributeError, match=f"has no {name}. Use {instead}"):
            getattr(own, name)


def test_states_of_earlier_commits_are_taken_by_todays_names() -> None:
    module, other = module_of(), module_of()
    old = {name.replace("net.mlp.", "net."): value for name, value in module.get_state().items()}
    other.set_state({name: value for name, value in old.items() if "const" not in name})
    assert all(np.array_equal(other.get_state()[name], value) for name, value in module.get_state().items())
