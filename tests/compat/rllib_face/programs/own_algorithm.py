"""An algorithm of one's own from the ground: REINFORCE by a config, a module, a learner and a training step."""

import numpy as np
from games import Calls, Counting
from ray.rllib.algorithms import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import nn

CALLS = Calls()
SEEN = {}


class Returns(ConnectorV2):
    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, metrics=None, **kwargs):
        CALLS.note("Returns")
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            rewards = episode.get_rewards()
            found = np.cumsum(np.asarray(rewards)[::-1])[::-1].astype(np.float32)
            self.add_n_batch_items(
                batch=batch,
                column="returns_to_go",
                items_to_add=found,
                num_items=len(episode),
                single_agent_episode=episode,
            )
        return batch


class Chooses(TorchRLModule):
    @override(TorchRLModule)
    def setup(self):
        CALLS.note("setup")
        width = self.model_config["hidden_dim"]
        self._net = nn.Sequential(
            nn.Linear(self.observation_space.shape[0], width), nn.ReLU(), nn.Linear(width, self.action_space.n)
        )

    @override(TorchRLModule)
    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self._net(batch[Columns.OBS])}


class ReinforceLearner(TorchLearner):
    @override(TorchLearner)
    def build(self):
        super().build()
        CALLS.note("build")
        if self.config.add_default_connectors_to_learner_pipeline and self._learner_connector is not None:
            self._learner_connector.prepend(Returns())

    @override(TorchLearner)
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        CALLS.note("compute_loss_for_module")
        SEEN["columns"] = sorted(
            {"obs", "actions", "rewards", "terminateds", "truncateds", "returns_to_go"} & set(batch)
        )
        kind = self.module[module_id].get_train_action_dist_cls()
        logp = kind.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS]).logp(batch[Columns.ACTIONS])
        self.metrics.log_value((module_id, "mean_logp"), logp.mean().item(), window=1)
        return -(logp * batch["returns_to_go"]).mean()


class ReinforceConfig(AlgorithmConfig):
    episodes_per_batch = 5

    def __init__(self, algo_class=None):
        super().__init__(algo_class=algo_class or Reinforce)
        self.batch_mode = "complete_episodes"
        self.num_env_runners = 0

    @override(AlgorithmConfig)
    def get_default_rl_module_spec(self):
        return RLModuleSpec(module_class=Chooses, model_config={"hidden_dim": 16})

    @override(AlgorithmConfig)
    def get_default_learner_class(self):
        return ReinforceLearner


class Reinforce(Algorithm):
    @classmethod
    @override(Algorithm)
    def get_default_config(cls):
        return ReinforceConfig()

    @override(Algorithm)
    def training_step(self):
        CALLS.note("training_step")
        sampled = self.env_runner_group.foreach_env_runner(
            lambda runner: (runner.sample(num_episodes=self.config.episodes_per_batch), runner.get_metrics()),
            local_env_runner=self.env_runner_group.num_remote_workers() <= 0,
        )
        episodes = [one for part in sampled for one in part[0]]
        self.metrics.aggregate([part[1] for part in sampled], key=ENV_RUNNER_RESULTS)
        SEEN["episodes"] = [len(episodes), sum(map(len, episodes)), all(one.is_done for one in episodes)]
        learned = self.learner_group.update(
            episodes=episodes,
            timesteps={
                NUM_ENV_STEPS_SAMPLED_LIFETIME: self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME))
            },
        )
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)


def outcome():
    config = ReinforceConfig().environment(Counting).training(lr=0.02)
    algo = config.build_algo()
    results = [algo.train() for _ in range(25)]
    algo.stop()
    first, last = (results[i]["env_runners"]["episode_return_mean"] for i in (0, -1))
    equal = {
        **SEEN,
        "learners": sorted({"mean_logp", "total_loss"} & set(results[0]["learners"]["default_policy"])),
        "sampled": [int(one["env_runners"]["num_env_steps_sampled_lifetime"]) for one in results[:3]],
        "learns": bool(last > first + 1.5),
    }
    return {"equal": equal, "called": CALLS}
