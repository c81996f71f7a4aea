"""A module that reads which actions there are from its observations, and chooses among these."""

import gymnasium as gym
import torch
from games import TAKEN, Calls, Doors
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_rl_module import PPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.utils.annotations import override
from ray.rllib.utils.torch_utils import FLOAT_MIN

CALLS = Calls()
SEEN = {}


class Masking(RLModule):
    @override(RLModule)
    def __init__(
        self,
        *,
        observation_space=None,
        action_space=None,
        inference_only=None,
        learner_only=False,
        model_config=None,
        catalog_class=None,
        **kwargs,
    ):
        if not isinstance(observation_space, gym.spaces.Dict):
            raise ValueError("observations must be a Dict of 'action_mask' and 'observations'")
        self.whole_space = observation_space
        self.observation_space = observation_space["observations"]
        super().__init__(
            observation_space=self.observation_space,
            action_space=action_space,
            inference_only=inference_only,
            learner_only=learner_only,
            model_config=model_config,
            catalog_class=catalog_class,
            **kwargs,
        )


class MaskingTorch(Masking, PPOTorchRLModule):
    @override(PPOTorchRLModule)
    def setup(self):
        super().setup()
        CALLS.note("setup")
        SEEN["space of the encoder"] = list(self.observation_space.shape)
        self.observation_space = self.whole_space

    @override(PPOTorchRLModule)
    def _forward_inference(self, batch, **kwargs):
        CALLS.note("_forward_inference")
        mask, batch = self._apart(batch)
        return self._masked(super()._forward_inference(batch, **kwargs), mask)

    @override(PPOTorchRLModule)
    def _forward_exploration(self, batch, **kwargs):
        CALLS.note("_forward_exploration")
        mask, batch = self._apart(batch)
        return self._masked(super()._forward_exploration(batch, **kwargs), mask)

    @override(PPOTorchRLModule)
    def _forward_train(self, batch, **kwargs):
        CALLS.note("_forward_train")
        SEEN["in training"] = sorted({"action_mask", "obs"} & set(batch))
        SEEN["observations in training"] = type(batch[Columns.OBS]).__name__, list(batch[Columns.OBS].shape)
        return self._masked(super()._forward_train(batch, **kwargs), batch["action_mask"])

    @override(ValueFunctionAPI)
    def compute_values(self, batch, embeddings=None):
        CALLS.note("compute_values with embeddings" if embeddings is not None else "compute_values")
        if isinstance(batch[Columns.OBS], dict):
            mask, batch = self._apart(batch)
            batch["action_mask"] = mask
        return super().compute_values(batch, embeddings)

    def _apart(self, batch):
        SEEN["parts"] = sorted(batch[Columns.OBS])
        mask = batch[Columns.OBS].pop("action_mask")
        batch[Columns.OBS] = batch[Columns.OBS].pop("observations")
        return mask, batch

    def _masked(self, outputs, mask):
        outputs[Columns.ACTION_DIST_INPUTS] += torch.clamp(torch.log(mask), min=FLOAT_MIN)
        return outputs


def outcome():
    config = PPOConfig().environment(Doors).env_runners(num_env_runners=0)
    config.training(train_batch_size_per_learner=60, minibatch_size=30, num_epochs=2)
    config.rl_module(
        rl_module_spec=RLModuleSpec(
            module_class=MaskingTorch, model_config={"head_fcnet_hiddens": [8, 8], "head_fcnet_activation": "relu"}
        )
    )
    config.evaluation(
        evaluation_interval=1,
        evaluation_num_env_runners=0,
        evaluation_duration=2,
        evaluation_force_reset_envs_before_iteration=True,
    )
    algo = config.build_algo()
    before = algo.get_module().get_state()["pi.net.mlp.0.weight"].copy()
    result = algo.train()
    after = algo.get_module().get_state()["pi.net.mlp.0.weight"]
    module = algo.get_module()
    batch = {"obs": {"action_mask": torch.tensor([[0.0, 1.0, 0.0]]), "observations": torch.zeros(1, 4)}}
    only = int(module.forward_inference(batch)["action_dist_inputs"].argmax())
    space = sorted(module.observation_space.spaces)
    algo.stop()
    equal = {
        **SEEN,
        "the only one": only,
        "space of the module": space,
        "learned": bool((before != after).any()),
        "all doors": [n > 0 for n in TAKEN["training"]],
        "evaluated": result["evaluation"]["env_runners"]["num_episodes"] >= 2,
    }
    return {"equal": equal, "called": CALLS}
