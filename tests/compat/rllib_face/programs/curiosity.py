"""Intrinsic curiosity: a second module that only the learner has, with a loss, a learning rate and data of its own."""

import gymnasium as gym
import numpy as np
import torch
from games import CALLS, SEEN, count, dqn, ppo
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.common.add_observations_from_episodes_to_batch import AddObservationsFromEpisodesToBatch
from ray.rllib.connectors.common.numpy_to_tensor import NumpyToTensor
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.learner.add_next_observations_from_episodes_to_train_batch import (
    AddNextObservationsFromEpisodesToTrainBatch,
)
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import SelfSupervisedLossAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

METHODS = ("configure_optimizers_for_module", "compute_loss_for_module", "postprocess_gradients_for_module")


ICM = "_intrinsic_curiosity_model"


class Rooms(gym.Env):
    """Five rooms in a row; the observation says which. Nothing is worth anything but the last room."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (5,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.room = self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room = self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.room = int(np.clip(self.room + (1 if action == 1 else -1), 0, 4))
        self.steps += 1
        return self._look(), float(self.room == 4), self.steps == 10, False, {}

    def _look(self):
        return np.eye(5, dtype=np.float32)[self.room]


class Model(TorchRLModule):
    """Predicts features of the next observation (arXiv:1705.05363), and from two of them the action between."""

    def setup(self):
        size = self.model_config["feature_dim"]
        SEEN.setdefault("spaces of the model", []).append(
            [list(self.observation_space.shape), int(self.action_space.n)]
        )
        SEEN["options of the model"] = self.model_config["feature_dim"]
        self.features = nn.Linear(self.observation_space.shape[0], size)
        self.ahead = nn.Linear(size + int(self.action_space.n), size)
        self.inverse = nn.Linear(2 * size, int(self.action_space.n))

    def _forward_train(self, batch, **kwargs):
        count("_forward_train of the model")
        now, then = self.features(batch[Columns.OBS]), self.features(batch[Columns.NEXT_OBS])
        actions = nn.functional.one_hot(batch[Columns.ACTIONS].long(), int(self.action_space.n)).float()
        error = self.ahead(torch.cat([now, actions], -1)) - then
        return {Columns.INTRINSIC_REWARDS: 0.5 * error.square().sum(-1), "phi": now, "next_phi": then}

    def _forward(self, batch, **kwargs):
        raise NotImplementedError("it never acts")

    def loss(self, batch, fwd_out, weight):
        ahead = fwd_out[Columns.INTRINSIC_REWARDS].mean()
        logits = self.inverse(torch.cat([fwd_out["phi"], fwd_out["next_phi"]], -1))
        back = nn.functional.cross_entropy(logits, batch[Columns.ACTIONS].long())
        return weight * ahead + (1 - weight) * back


class SelfSupervised(Model, SelfSupervisedLossAPI):
    """The same with its loss in the module."""

    def compute_self_supervised_loss(self, *, learner, module_id, config, batch, fwd_out, **kwargs):
        count(f"compute_self_supervised_loss of {module_id}")
        loss = self.loss(batch, fwd_out, config.learner_config_dict["forward_loss_weight"])
        learner.metrics.log_dict({"forward_loss": loss}, key=module_id, window=1)
        return loss


class Curious(ConnectorV2):
    """What the model does not foresee is worth something."""

    def __init__(self, input_observation_space=None, input_action_space=None, *, weight, **kwargs):
        super().__init__(input_observation_space, input_action_space)
        self.weight = weight

    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        count("Curious")
        own = batch[DEFAULT_MODULE_ID]
        SEEN["modules in the batch"] = sorted(batch)
        SEEN["columns in the batch"] = sorted(
            {"obs", "new_obs", "actions", "rewards", "terminateds", "truncateds"} & set(own)
        )
        SEEN["tensors"] = all(isinstance(own[name], torch.Tensor) for name in ("obs", "new_obs", "actions", "rewards"))
        with torch.no_grad():
            found = rl_module[ICM].forward_train(own)
        own[Columns.REWARDS] = own[Columns.REWARDS] + self.weight * found[Columns.INTRINSIC_REWARDS]
        SEEN["intrinsic"] = bool(found[Columns.INTRINSIC_REWARDS].min() >= 0)
        batch[ICM] = own
        return batch


def add_pieces(learner):
    learner._learner_connector.insert_after(
        AddObservationsFromEpisodesToBatch, AddNextObservationsFromEpisodesToTrainBatch()
    )
    weight = learner.config.learner_config_dict["intrinsic_reward_coeff"]
    learner._learner_connector.insert_after(NumpyToTensor, Curious(weight=weight))


class OfPPO(PPOTorchLearner):
    def build(self):
        super().build()
        add_pieces(self)
        SEEN["modules"] = sorted(self.module.keys())

    def configure_optimizers_for_module(self, module_id, config=None):
        count(f"configure_optimizers_for_module of {module_id}")
        SEEN[f"lr of {module_id}"] = config.lr
        super().configure_optimizers_for_module(module_id=module_id, config=config)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count(f"compute_loss_for_module of {module_id}")
        if module_id != ICM:
            return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        SEEN["config of the model"] = [config.lr, config.gamma, config.learner_config_dict["forward_loss_weight"]]
        loss = self.module[ICM].loss(batch, fwd_out, config.learner_config_dict["forward_loss_weight"])
        self.metrics.log_value((ICM, "forward_loss"), loss.item(), window=1)
        return loss

    def postprocess_gradients_for_module(self, *, module_id, config=None, module_gradients_dict):
        count(f"postprocess_gradients_for_module of {module_id}")
        SEEN[f"gradients of {module_id}"] = len(module_gradients_dict)
        return super().postprocess_gradients_for_module(
            module_id=module_id, config=config, module_gradients_dict=module_gradients_dict
        )


class OfDQN(DQNTorchLearner):
    def build(self):
        super().build()
        add_pieces(self)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count(f"DQN: compute_loss_for_module of {module_id}")
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


def with_model(config, module_class, name):
    specs = {
        DEFAULT_MODULE_ID: RLModuleSpec(),
        ICM: RLModuleSpec(module_class=module_class, learner_only=True, model_config={"feature_dim": 6}),
    }
    config.rl_module(
        rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs),
        algorithm_config_overrides_per_module={ICM: AlgorithmConfig.overrides(lr=0.02, gamma=0.5)},
    )
    SEEN[f"config of {name}"] = [config.get_config_for_module(mid).lr for mid in specs]


def falls(algo, iterations):
    """How the loss of the model fell, and what is where."""
    learner = algo.learner_group._learner
    before = {name: value.copy() for name, value in algo.get_weights([ICM])[ICM].items()}
    losses = [float(algo.train()["learners"][ICM]["forward_loss"]) for _ in range(iterations)]
    after = algo.get_weights()[ICM]
    found = {
        "falls": losses[-1] < losses[0] / 2,
        "changed": sorted(name for name in before if not np.array_equal(before[name], after[name])),
        "weights": sorted(algo.get_weights()),
        "state": sorted(algo.get_state()["learner_group"]["learner"]["rl_module"]),
        "optimizers": [name for name, _ in learner.get_optimizers_for_module(ICM)],
        "rate": round(float(learner.get_optimizer(ICM).param_groups[0]["lr"]), 6),
        "runner has it": hasattr(algo.env_runner.module, "ahead"),
    }
    algo.stop()
    return found


def curiosity():
    weights = {"forward_loss_weight": 0.5, "intrinsic_reward_coeff": 0.1}
    config = ppo(Rooms, epochs=4, model={}, lr=0.001, learner_class=OfPPO, learner_config_dict=weights)
    with_model(config, Model, "PPO")
    of_ppo = falls(config.build_algo(), 6)
    config = dqn(
        Rooms,
        steps=60,
        model={},
        train_batch_size_per_learner=16,
        num_steps_sampled_before_learning_starts=20,
        learner_class=OfDQN,
        learner_config_dict=weights,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 500},
    )
    with_model(config, SelfSupervised, "DQN")
    of_dqn = falls(config.build_algo(), 4)
    often = {of: [CALLS[f"{of} of {mid}"] for mid in (DEFAULT_MODULE_ID, ICM)] for of in METHODS}
    of_values = CALLS[f"DQN: compute_loss_for_module of {DEFAULT_MODULE_ID}"]
    return {
        **SEEN,
        "PPO": of_ppo,
        "DQN": of_dqn,
        "as often": {of: own == others for of, (own, others) in often.items()},
        "as often in DQN": of_values == CALLS[f"compute_self_supervised_loss of {ICM}"],
    }
