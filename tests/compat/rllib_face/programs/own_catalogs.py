"""Catalogs that change what a default module is made of, and one that is no subclass of any."""

from games import Counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.core.models.configs import ActorCriticEncoderConfig, MLPEncoderConfig, MLPHeadConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.models.torch.torch_distributions import TorchCategorical

CALLS = {}


def count(name):
    CALLS[name] = CALLS.get(name, 0) + 1


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


def shapes(catalog_class, options):
    config = PPOConfig().environment(Counting, disable_env_checking=True).env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=1)
    spec = RLModuleSpec(catalog_class=catalog_class, model_config=options)
    algo = config.rl_module(rl_module_spec=spec).build_algo()
    algo.train()
    module = algo.learner_group._learner.module["default_policy"].unwrapped()
    found = {
        name: [list(parameter.shape) for parameter in getattr(module, name).parameters()]
        for name in ("encoder", "pi", "vf")
    }
    algo.stop()
    return found


def outcome():
    return {
        "equal": {
            "Widened": shapes(Widened, {"fcnet_hiddens": [8, 4]}),
            "Hooked": shapes(Hooked, {"first_width": 3, "vf_share_layers": True}),
            "Foreign": shapes(Foreign, {}),
        },
        "called": CALLS,
    }
