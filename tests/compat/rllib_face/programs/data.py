"""What is collected, and what was recorded."""

import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from games import SEEN, count, dqn, learns, ppo, trained
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn


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


def agreement(module, seen, actions):
    """Share of the recorded actions that the module would take."""
    with torch.no_grad():
        logits = module.forward_inference({Columns.OBS: torch.from_numpy(seen)})[Columns.ACTION_DIST_INPUTS]
    return float((logits.argmax(-1).numpy() == np.asarray(actions)).mean())


def cloned_by(config, seen, actions, checkpoint):
    """What a config says after ten iterations."""
    with trained(config, 10) as (algo, results):
        result, module = results[-1], learns(algo)
        said = {
            "iterations": result["training_iteration"],
            "losses": sorted({"policy_loss", "vf_loss", "total_loss"} & set(result["learners"]["default_policy"])),
            "shapes": sorted(list(value.shape) for value in module.parameters()),
            "clones": agreement(module, seen, actions) > 0.7,
            "rows": result["num_env_steps_sampled_lifetime"],
            "evaluated": algo.evaluate()["env_runners"]["num_episodes"],
        }
        if checkpoint is not None:
            path = algo.save_to_path(checkpoint)
            restored = RLModule.from_checkpoint(f"{path}/learner_group/learner/rl_module")["default_policy"]
            said["restored"] = all(v.equal(restored.state_dict()[name]) for name, v in module.state_dict().items())
    return said


def cloned(kind, path, spec=None, **training):
    networks = {"model_config": {"fcnet_hiddens": [16]}} if spec is None else {"rl_module_spec": spec}
    return (
        kind()
        .environment("CartPole-v1")
        .offline_data(input_=[path], dataset_num_iters_per_learner=1)
        .training(train_batch_size_per_learner=128, lr=3e-2, **training)
        .rl_module(**networks)
        .evaluation(evaluation_interval=5, evaluation_duration=3)
        .debugging(seed=0)
    )


def recorded_data():
    """Behaviour cloning and MARWIL from columns of steps in Parquet files; cloning into a module of one's own."""
    said = {}
    with tempfile.TemporaryDirectory() as folder:
        path, seen, actions = record("CartPole-v1", balance, 4, folder)
        own = RLModuleSpec(module_class=Small, model_config={"width": 12})
        # RLlib takes each row for an episode, and bootstraps; with gamma=0 both learn the same values
        for name, kind, spec, checkpoint, training in (
            ("BC", BCConfig, None, f"{folder}/bc", {}),
            ("MARWIL", MARWILConfig, None, f"{folder}/marwil", {"beta": 0.5, "gamma": 0.0}),
            ("own", BCConfig, own, None, {}),
        ):
            config = cloned(kind, path, spec, **training)
            said[name] = cloned_by(config, seen, actions, checkpoint)
    return said


LENGTHS = [3, 5, 4, 6]


class Counted(gym.Env):
    """Episodes of 3, 5, 4 and 6 steps in turn, with rewards of 1; what was done at which step is kept."""

    observation_space = gym.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gym.spaces.Discrete(5)

    def __init__(self, config=None):
        self.episode, self.t = -1, 0

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        SEEN["done"].append((self.t, int(action)))
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t >= LENGTHS[self.episode % 4], False, {}


class Reads(PPOTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        seen = batch["obs"][batch["loss_mask"]] if "loss_mask" in batch else batch["obs"]
        SEEN["rows"].extend(seen[:, 0].tolist())
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


def whole(cls):
    results = results_of(base(cls).env_runners(batch_mode="complete_episodes"))
    counts = [[int(r["env_runners"][name]) for name in ("num_env_steps_sampled", "num_episodes")] for r in results]
    batches = [r["learners"]["default_policy"]["num_module_steps_trained"] // 32 for r in results]
    return {"counts": counts, "batches": batches if cls is DQNConfig else None}


def repeats(config):
    """Whether the same was done whenever the same was seen."""
    results_of(config)
    return len(set(SEEN["done"])) == len({t for t, _ in SEEN["done"]})


def settings_of_collecting():
    """Whole episodes, actions without exploration, rows in order, and PPO without a critic."""
    SEEN.update(done=[], rows=[])
    without = results_of(base(PPOConfig, use_critic=False))[0]["learners"]["default_policy"]
    results_of(base(PPOConfig, shuffle_batch_per_epoch=False, learner_class=Reads))
    return {
        "PPO whole": whole(PPOConfig),
        "DQN whole": whole(DQNConfig),
        "PPO explores": not repeats(base(PPOConfig, lr=0.0)),
        "PPO does not": repeats(base(PPOConfig, lr=0.0).env_runners(explore=False)),
        "DQN does not": repeats(base(DQNConfig, lr=0.0).env_runners(explore=False)),
        "DQN begins without random actions": repeats(base(DQNConfig, lr=0.0, epsilon=0.0)),
        "losses of values": [float(without[name]) for name in ("vf_loss", "vf_loss_unclipped")],
        "rows": SEEN["rows"][:40],
    }


def base(cls, **training):
    if cls is DQNConfig:
        config = dqn(Counted, steps=20, num_steps_sampled_before_learning_starts=10, **training)
    else:
        config = ppo(Counted, rows=20, minibatch=10, **training)
    return config.debugging(seed=0)


def results_of(config):
    SEEN["done"].clear()
    with trained(config, 2) as (_, results):
        return results
