"""Behaviour cloning and MARWIL from columns of steps in Parquet files; cloning into a module of one's own."""

import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

CALLS = {}
BATCH, ROUNDS = 128, 10


def count(name):
    CALLS[name] = CALLS.get(name, 0) + 1


def balance(seen):
    """Push to where the pole falls."""
    return int(seen[2] + 0.3 * seen[3] > 0)


def record(name, act, episodes, folder):
    """Steps of a policy in an environment, a row each."""
    env, rows = gym.make(name), []
    for episode in range(episodes):
        seen, _ = env.reset(seed=episode)
        over = False
        while not over:
            action = act(seen)
            then, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            row = {"eps_id": str(episode), "obs": seen.tolist(), "actions": action}
            row |= {"rewards": float(reward), "new_obs": then.tolist()}
            rows.append({**row, "terminateds": bool(terminated), "truncateds": bool(truncated)})
            seen = then
    path = Path(folder) / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path), np.asarray([row["obs"] for row in rows], np.float32), [row["actions"] for row in rows]


class Small(TorchRLModule):
    """One hidden layer."""

    def setup(self):
        width = self.model_config["width"]
        self.net = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))

    def _forward(self, batch, **kwargs):
        count("forward")
        return {Columns.ACTION_DIST_INPUTS: self.net(batch[Columns.OBS])}

    def _forward_train(self, batch, **kwargs):
        count("train")
        return self._forward(batch, **kwargs)


def shapes(module):
    return sorted(list(value.shape) for value in module.parameters())


def module_of(algo):
    return algo.learner_group._learner.module["default_policy"]


def agreement(module, seen, actions):
    """Share of the recorded actions that the module would take."""
    with torch.no_grad():
        logits = module.forward_inference({Columns.OBS: torch.from_numpy(seen)})[Columns.ACTION_DIST_INPUTS]
    return float((logits.argmax(-1).numpy() == np.asarray(actions)).mean())


def trained(config, iterations, seen=None, actions=None, checkpoint=None):
    """What a config says after some iterations."""
    algo = config.build_algo()
    for _ in range(iterations):
        result = algo.train()
    learner = result["learners"]["default_policy"]
    said = {
        "iterations": result["training_iteration"],
        "losses": sorted({"policy_loss", "vf_loss", "total_loss"} & set(learner)),
    }
    if seen is not None:
        said["shapes"] = shapes(module_of(algo))
        said["clones"] = agreement(module_of(algo).unwrapped(), seen, actions) > 0.7
        said["rows"] = result["num_env_steps_sampled_lifetime"]
        said["evaluated"] = algo.evaluate()["env_runners"]["num_episodes"]
    if checkpoint is not None:
        path = algo.save_to_path(checkpoint)
        restored = RLModule.from_checkpoint(f"{path}/learner_group/learner/rl_module")["default_policy"]
        same = (value.equal(restored.state_dict()[name]) for name, value in module_of(algo).state_dict().items())
        said["restored"] = all(same)
    algo.stop()
    return said


def cloned(kind, path, spec=None, **training):
    networks = {"model_config": {"fcnet_hiddens": [16]}} if spec is None else {"rl_module_spec": spec}
    return (
        kind()
        .environment("CartPole-v1")
        .offline_data(
            input_=[path],
            dataset_num_iters_per_learner=1,
        )
        .training(train_batch_size_per_learner=BATCH, lr=3e-2, **training)
        .rl_module(**networks)
        .evaluation(evaluation_interval=5, evaluation_duration=3)
        .debugging(seed=0)
    )


def outcome():
    said = {}
    with tempfile.TemporaryDirectory() as folder:
        path, seen, actions = record("CartPole-v1", balance, 4, folder)
        said["BC"] = trained(cloned(BCConfig, path), ROUNDS, seen, actions, f"{folder}/bc")
        # RLlib takes each row for an episode, and bootstraps; with gamma=0 both learn the same values
        said["MARWIL"] = trained(
            cloned(MARWILConfig, path, beta=0.5, gamma=0.0), ROUNDS, seen, actions, f"{folder}/marwil"
        )
        spec = RLModuleSpec(module_class=Small, model_config={"width": 12})
        said["own"] = trained(cloned(BCConfig, path, spec), ROUNDS, seen, actions)
    return {"equal": said, "called": CALLS}
