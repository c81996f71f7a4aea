"""RLlib's own catalog and modules of PPO in a program's words, annotations and all, with an encoder beside them."""

import abc
from typing import Any

import gymnasium as gym
from games import Calls, Counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.ppo_catalog import _check_if_diag_gaussian
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ACTOR, CRITIC, ENCODER_OUT, ActorCriticEncoder, Encoder, Model
from ray.rllib.core.models.catalog import Catalog
from ray.rllib.core.models.configs import (
    ActorCriticEncoderConfig,
    FreeLogStdMLPHeadConfig,
    MLPHeadConfig,
    RecurrentEncoderConfig,
)
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.annotations import (
    DeveloperAPI,
    OverrideToImplementCustomLogic,
    OverrideToImplementCustomLogic_CallToSuperRecommended,
    override,
)
from ray.rllib.utils.typing import TensorType

CALLS = Calls()
SEEN = {}


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
        CALLS.note("build_actor_critic_encoder")
        return self.actor_critic_encoder_config.build(framework=framework)

    @override(Catalog)
    def build_encoder(self, framework: str) -> Encoder:
        raise NotImplementedError("there is one for both")

    @OverrideToImplementCustomLogic
    def build_pi_head(self, framework: str) -> Model:
        CALLS.note("build_pi_head")
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
        CALLS.note("build_vf_head")
        return self.vf_head_config.build(framework=framework)


@DeveloperAPI
class MyModule(RLModule, InferenceOnlyAPI, ValueFunctionAPI, abc.ABC):
    @override(RLModule)
    def setup(self):
        CALLS.note("setup")
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
        CALLS.note("_forward")
        output = {}
        encoded = self.encoder(batch)
        if Columns.STATE_OUT in encoded:
            output[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        output[Columns.ACTION_DIST_INPUTS] = self.pi(encoded[ENCODER_OUT][ACTOR])
        return output

    @override(RLModule)
    def _forward_train(self, batch: dict[str, Any], **kwargs) -> dict[str, Any]:
        CALLS.note("_forward_train")
        output = {}
        encoded = self.encoder(batch)
        output[Columns.EMBEDDINGS] = encoded[ENCODER_OUT][CRITIC]
        if Columns.STATE_OUT in encoded:
            output[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        output[Columns.ACTION_DIST_INPUTS] = self.pi(encoded[ENCODER_OUT][ACTOR])
        return output

    @override(ValueFunctionAPI)
    def compute_values(self, batch: dict[str, Any], embeddings: Any | None = None) -> TensorType:
        CALLS.note("compute_values with embeddings" if embeddings is not None else "compute_values")
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


def outcome():
    found = {}
    for name, options in {"vectors": {}, "shared": {"vf_share_layers": True}, "memory": {"use_lstm": True}}.items():
        config = PPOConfig().environment(Counting).env_runners(num_env_runners=0)
        config.training(train_batch_size_per_learner=60, minibatch_size=30, num_epochs=2)
        options = {"vf_share_layers": False, "fcnet_hiddens": [8], "max_seq_len": 5, "lstm_cell_size": 6, **options}
        spec = RLModuleSpec(module_class=MyTorchModule, catalog_class=MyCatalog, model_config=options)
        algo = config.rl_module(rl_module_spec=spec).build_algo()
        result = algo.train()["learners"]["default_policy"]
        module = algo.learner_group._learner.module["default_policy"].unwrapped()
        state = algo.get_module().get_initial_state()
        found[name] = {
            "children": [child for child, _ in module.named_children()],
            "encoder": [child for child, _ in module.encoder.named_children()],
            "state": sorted(state),
            "losses": sorted({"policy_loss", "vf_loss", "entropy", "vf_explained_var"} & set(result)),
            "parameters": result["num_trainable_parameters"],
        }
        algo.stop()
    return {"equal": found, "called": CALLS}
