"""Catalogs: of a program's own, with distributions and encoders, and what RLlib's says of spaces."""

import abc
from typing import Any

import gymnasium as gym
import numpy as np
from games import CALLS, TAKEN, Counting, count, evaluated, learned, learns, ppo, refusal, trained
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog, _check_if_diag_gaussian
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ACTOR, CRITIC, ENCODER_OUT, ActorCriticEncoder, Encoder, Model
from ray.rllib.core.models.catalog import Catalog
from ray.rllib.core.models.configs import (
    ActorCriticEncoderConfig,
    FreeLogStdMLPHeadConfig,
    MLPEncoderConfig,
    MLPHeadConfig,
    RecurrentEncoderConfig,
)
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.models.torch.torch_distributions import TorchCategorical
from ray.rllib.utils.annotations import (
    DeveloperAPI,
    OverrideToImplementCustomLogic,
    OverrideToImplementCustomLogic_CallToSuperRecommended,
    override,
)
from ray.rllib.utils.spaces.simplex import Simplex
from ray.rllib.utils.typing import TensorType


class Widened(PPOCatalog):
    """Other heads, and one encoder for both."""

    def __init__(self, observation_space, action_space, model_config_dict):
        super().__init__(observation_space, action_space, model_config_dict)
        count("Widened")
        self.vf_head_config = MLPHeadConfig(
            input_dims=self.latent_dims, hidden_layer_dims=[9], hidden_layer_activation="relu", output_layer_dim=1
        )
        self.pi_and_vf_head_hiddens = [7]
        self.pi_and_vf_head_activation = "tanh"
        self.actor_critic_encoder_config = ActorCriticEncoderConfig(
            base_encoder_config=self._encoder_config, shared=True
        )


class Hooked(PPOCatalog):
    """An encoder that only its own hook knows, and a distribution that only its own function names."""

    def _determine_components_hook(self):
        count("hook")
        self._encoder_config = MLPEncoderConfig(
            input_dims=self.observation_space.shape,
            hidden_layer_dims=[self._model_config_dict["first_width"]],
            hidden_layer_activation="relu",
            output_layer_dim=6,
            output_layer_activation="relu",
        )
        self._action_dist_class_fn = self._choose
        self.latent_dims = self._encoder_config.output_dims

    def _choose(self, framework):
        count("_action_dist_class_fn")
        return self._get_dist_cls_from_action_space(self.action_space, framework=framework)


class Foreign:
    """No subclass: it has the methods."""

    def __init__(self, observation_space, action_space, model_config_dict):
        self.action_space = action_space
        base = MLPEncoderConfig(
            input_dims=observation_space.shape, hidden_layer_dims=[], output_layer_dim=5, output_layer_activation="tanh"
        )
        self.actor_critic_encoder_config = ActorCriticEncoderConfig(base_encoder_config=base, shared=False)

    def get_action_dist_cls(self, framework):
        count("Foreign.get_action_dist_cls")
        return TorchCategorical

    def build_actor_critic_encoder(self, framework):
        return self.actor_critic_encoder_config.build(framework=framework)

    def build_pi_head(self, framework):
        count("Foreign.build_pi_head")
        return self._head(int(self.action_space.n)).build(framework=framework)

    def build_vf_head(self, framework):
        return self._head(1).build(framework=framework)

    def _head(self, outputs):
        return MLPHeadConfig(input_dims=(5,), hidden_layer_dims=[], output_layer_dim=outputs)


def own_catalogs():
    """Catalogs that change what a default module is made of, and one that is no subclass of any."""
    found = {}
    for kind, model in (
        (Widened, {"fcnet_hiddens": [8, 4]}),
        (Hooked, {"first_width": 3, "vf_share_layers": True}),
        (Foreign, {}),
    ):
        spec = RLModuleSpec(catalog_class=kind, model_config=model)
        with trained(ppo(rows=40, minibatch=20, epochs=1, spec=spec)) as (algo, _):
            parts = {name: getattr(learns(algo), name).parameters() for name in ("encoder", "pi", "vf")}
            found[kind.__name__] = {name: [list(one.shape) for one in part] for name, part in parts.items()}
    return found


class Counted(TorchCategorical):
    def sample(self, **kwargs):
        count("sample")
        return super().sample(**kwargs)

    def logp(self, value, **kwargs):
        count("logp")
        return super().logp(value, **kwargs)

    def entropy(self, **kwargs):
        count("entropy")
        return super().entropy(**kwargs)

    def kl(self, other, **kwargs):
        count("kl")
        assert type(other) is Counted
        return super().kl(other, **kwargs)

    def to_deterministic(self):
        count("to_deterministic")
        return super().to_deterministic()


class CountedCatalog(PPOCatalog):
    def get_action_dist_cls(self, framework):
        count("get_action_dist_cls")
        return Counted


def own_distribution():
    """A catalog with a distribution of its own, whose methods are counted."""
    spec = RLModuleSpec(catalog_class=CountedCatalog)
    config = ppo(rows=100, minibatch=50, spec=spec, model={"fcnet_hiddens": [8]}, use_kl_loss=True)
    [result] = learned(evaluated(config))
    return {
        "entropy": 0.9 < result["entropy"] < 1.1,
        "kl": 0.0 <= result["mean_kl_loss"] < 0.1,
        "training steps": sum(TAKEN["training"]),
        "kl and entropy once a gradient step": CALLS["kl"] == CALLS["entropy"],
    }


BOX = Box(-1.0, 1.0, (3,), np.float32)


ACTIONS = {
    "Discrete": Discrete(4),
    "Box": BOX,
    "MultiDiscrete": MultiDiscrete([2, 3]),
    "Tuple": Tuple([Discrete(3), Box(-1.0, 1.0, (2,), np.float32)]),
    "Dict": Dict(a=Discrete(3), b=MultiDiscrete([2, 4])),
}


OBSERVATIONS = {
    "Box": BOX,
    "Discrete": Discrete(3),
    "MultiDiscrete": MultiDiscrete([2, 3]),
    "Tuple": Tuple([Discrete(3), BOX]),
    "Dict": Dict(a=BOX, b=Discrete(2)),
    "pixels": Box(0, 255, (8, 8, 3), np.uint8),
}


def wanted(space):
    catalog = Catalog(BOX, Discrete(2), {})
    kind = catalog._get_dist_cls_from_action_space(space, framework="torch")
    return int(kind.required_input_dim(space=space))


def made(space):
    preprocessor = Catalog.get_preprocessor(space)
    space.seed(0)
    array = np.asarray(preprocessor.transform(space.sample()))
    assert preprocessor.observation_space.shape == array.shape
    return [type(preprocessor).__name__, list(map(int, preprocessor.shape)), list(array.shape), int(preprocessor.size)]


def spaces_of_catalogs():
    """Numbers that distributions read, and preprocessors."""
    space = Simplex((3,))
    config = ppo(Mixed, rows=40, minibatch=20, epochs=1, model={"fcnet_hiddens": [5]})
    with trained(config) as (algo, _):
        heads = [list(parameter.shape) for parameter in learns(algo).pi.parameters()]
    return {
        "wanted": {name: wanted(space) for name, space in ACTIONS.items()},
        "made": {name: made(space) for name, space in OBSERVATIONS.items()},
        "shares are refused": refusal(lambda: wanted(space)) == "NotImplementedError",
        "shares": [abs(float(space.sample().sum()) - 1) < 1e-6, space.contains(np.array([0.5, 0.4, 0.3], "f4"))],
        "heads of a Tuple": heads,
    }


class Mixed(Counting):
    """A choice and two numbers in each step."""

    def __init__(self, config=None):
        super().__init__(config)
        self.observation_space, self.action_space = BOX, ACTIONS["Tuple"]

    def step(self, action):
        return super().step(action[0])

    def _look(self):
        return np.zeros(3, np.float32)


class MyCatalog(Catalog):
    def __init__(self, observation_space: gym.Space, action_space: gym.Space, model_config_dict: dict):
        super().__init__(
            observation_space=observation_space, action_space=action_space, model_config_dict=model_config_dict
        )
        self.actor_critic_encoder_config = ActorCriticEncoderConfig(
            base_encoder_config=self._encoder_config, shared=self._model_config_dict["vf_share_layers"]
        )
        self.hiddens = self._model_config_dict["head_fcnet_hiddens"]
        self.activation = self._model_config_dict["head_fcnet_activation"]
        self.pi_head_config = None
        self.vf_head_config = MLPHeadConfig(
            input_dims=self.latent_dims,
            hidden_layer_dims=self.hiddens,
            hidden_layer_activation=self.activation,
            output_layer_activation="linear",
            output_layer_dim=1,
        )

    @OverrideToImplementCustomLogic
    def build_actor_critic_encoder(self, framework: str) -> ActorCriticEncoder:
        count("build_actor_critic_encoder")
        return self.actor_critic_encoder_config.build(framework=framework)

    @override(Catalog)
    def build_encoder(self, framework: str) -> Encoder:
        raise NotImplementedError("there is one for both")

    @OverrideToImplementCustomLogic
    def build_pi_head(self, framework: str) -> Model:
        count("build_pi_head")
        kind = self.get_action_dist_cls(framework=framework)
        gaussian = _check_if_diag_gaussian(action_distribution_cls=kind, framework=framework, no_error=True)
        head = FreeLogStdMLPHeadConfig if self._model_config_dict["free_log_std"] else MLPHeadConfig
        self.pi_head_config = head(
            input_dims=self.latent_dims,
            hidden_layer_dims=self.hiddens,
            hidden_layer_activation=self.activation,
            output_layer_dim=kind.required_input_dim(space=self.action_space, model_config=self._model_config_dict),
            output_layer_activation="linear",
            clip_log_std=gaussian,
            log_std_clip_param=self._model_config_dict.get("log_std_clip_param", 20),
        )
        return self.pi_head_config.build(framework=framework)

    @OverrideToImplementCustomLogic
    def build_vf_head(self, framework: str) -> Model:
        count("build_vf_head")
        return self.vf_head_config.build(framework=framework)


@DeveloperAPI
class MyModule(RLModule, InferenceOnlyAPI, ValueFunctionAPI, abc.ABC):
    @override(RLModule)
    def setup(self):
        count("setup")
        if self.catalog is None and hasattr(self, "_catalog_ctor_error"):
            raise self._catalog_ctor_error
        recurrent = isinstance(self.catalog.actor_critic_encoder_config.base_encoder_config, RecurrentEncoderConfig)
        if recurrent:
            self.inference_only = False
        if self.inference_only and self.framework == "torch":
            self.catalog.actor_critic_encoder_config.inference_only = True
        self.encoder = self.catalog.build_actor_critic_encoder(framework=self.framework)
        self.pi = self.catalog.build_pi_head(framework=self.framework)
        self.vf = self.catalog.build_vf_head(framework=self.framework)

    @override(RLModule)
    def get_initial_state(self) -> dict:
        return self.encoder.get_initial_state() if hasattr(self.encoder, "get_initial_state") else {}

    @OverrideToImplementCustomLogic_CallToSuperRecommended
    @override(InferenceOnlyAPI)
    def get_non_inference_attributes(self) -> list[str]:
        return ["vf"] + ([] if self.model_config.get("vf_share_layers") else ["encoder.critic_encoder"])


class MyTorchModule(TorchRLModule, MyModule):
    @override(RLModule)
    def _forward(self, batch: dict[str, Any], **kwargs) -> dict[str, Any]:
        count("_forward")
        output = {}
        encoded = self.encoder(batch)
        if Columns.STATE_OUT in encoded:
            output[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        output[Columns.ACTION_DIST_INPUTS] = self.pi(encoded[ENCODER_OUT][ACTOR])
        return output

    @override(RLModule)
    def _forward_train(self, batch: dict[str, Any], **kwargs) -> dict[str, Any]:
        count("_forward_train")
        output = {}
        encoded = self.encoder(batch)
        output[Columns.EMBEDDINGS] = encoded[ENCODER_OUT][CRITIC]
        if Columns.STATE_OUT in encoded:
            output[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        output[Columns.ACTION_DIST_INPUTS] = self.pi(encoded[ENCODER_OUT][ACTOR])
        return output

    @override(ValueFunctionAPI)
    def compute_values(self, batch: dict[str, Any], embeddings: Any | None = None) -> TensorType:
        count("compute_values with embeddings" if embeddings is not None else "compute_values")
        if embeddings is None:
            if hasattr(self.encoder, "critic_encoder"):
                batch_ = batch
                if self.is_stateful():
                    batch_ = batch.copy()
                    batch_[Columns.STATE_IN] = batch[Columns.STATE_IN][CRITIC]
                embeddings = self.encoder.critic_encoder(batch_)[ENCODER_OUT]
            else:
                embeddings = self.encoder(batch)[ENCODER_OUT][CRITIC]
        return self.vf(embeddings).squeeze(-1)


def notebook_modules():
    """RLlib's own catalog and modules of PPO in a program's words, annotations and all, with an encoder beside them."""
    found = {}
    for name, options in {"vectors": {}, "shared": {"vf_share_layers": True}, "memory": {"use_lstm": True}}.items():
        options = {"vf_share_layers": False, "fcnet_hiddens": [8], "max_seq_len": 5, "lstm_cell_size": 6, **options}
        spec = RLModuleSpec(module_class=MyTorchModule, catalog_class=MyCatalog, model_config=options)
        with trained(ppo(spec=spec)) as (algo, results):
            module, result = learns(algo), results[0]["learners"]["default_policy"]
            found[name] = {
                "children": [child for child, _ in module.named_children()],
                "encoder": [child for child, _ in module.encoder.named_children()],
                "state": sorted(algo.get_module().get_initial_state()),
                "losses": sorted({"policy_loss", "vf_loss", "entropy", "vf_explained_var"} & set(result)),
                "parameters": result["num_trainable_parameters"],
            }
    return {**found, "order of calls": list(CALLS)}
