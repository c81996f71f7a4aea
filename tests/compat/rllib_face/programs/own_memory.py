"""A recurrent module of one's own: its state passes from step to step, and through sequences in training."""

import numpy as np
import torch
from games import Calls, Echo
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

CALLS = Calls()
SEEN = {}


class Remembers(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        CALLS.note("setup")
        self._cells = self.model_config.get("lstm_cell_size", 256)
        self._lstm = nn.LSTM(self.observation_space.shape[0], self._cells, batch_first=True)
        self._pi_head = nn.Linear(self._cells, int(self.action_space.n))
        self._values = nn.Linear(self._cells, 1)

    def get_initial_state(self):
        return {name: np.zeros((self._cells,), np.float32) for name in ("h", "c")}

    def _forward(self, batch, **kwargs):
        CALLS.note("_forward")
        SEEN["acting on"] = [batch[Columns.OBS].ndim, batch[Columns.OBS].shape[1], batch[Columns.STATE_IN]["h"].ndim]
        embeddings, state = self._recall(batch)
        return {Columns.ACTION_DIST_INPUTS: self._pi_head(embeddings), Columns.STATE_OUT: state}

    def _forward_train(self, batch, **kwargs):
        CALLS.note("_forward_train")
        SEEN["training on"] = [list(batch[Columns.OBS].shape[1:]), list(batch[Columns.STATE_IN]["c"].shape[1:])]
        embeddings, state = self._recall(batch)
        logits = self._pi_head(embeddings)
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.STATE_OUT: state, Columns.EMBEDDINGS: embeddings}

    def compute_values(self, batch, embeddings=None):
        CALLS.note("compute_values with embeddings" if embeddings is not None else "compute_values")
        if embeddings is None:
            embeddings, _ = self._recall(batch)
        return self._values(embeddings).squeeze(-1)

    def _recall(self, batch):
        state = batch[Columns.STATE_IN]
        given = state["h"].unsqueeze(0), state["c"].unsqueeze(0)
        embeddings, (h, c) = self._lstm(batch[Columns.OBS], given)
        return embeddings, {"h": h.squeeze(0), "c": c.squeeze(0)}


def outcome():
    config = PPOConfig().environment(Echo).env_runners(num_env_runners=0, num_envs_per_env_runner=2)
    config.training(train_batch_size_per_learner=400, minibatch_size=100, num_epochs=8, lr=0.01, gamma=0.9)
    spec = RLModuleSpec(module_class=Remembers, model_config={"lstm_cell_size": 16, "max_seq_len": 4})
    config.rl_module(rl_module_spec=spec).debugging(seed=1)
    algo = config.build_algo()
    for _ in range(12):
        result = algo.train()
    module = algo.get_module()
    names = {name: list(value.shape) for name, value in module.state_dict().items()}
    state = {name: torch.from_numpy(value).unsqueeze(0) for name, value in module.get_initial_state().items()}
    outputs = module.forward_inference({Columns.OBS: torch.zeros(1, 1, 3), Columns.STATE_IN: state})
    stateful = module.is_stateful()
    algo.stop()
    equal = {
        **SEEN,
        "names": names,
        "stateful": bool(stateful),
        "outputs": {name: list(value.shape) for name, value in outputs["state_out"].items()},
        "remembers": bool(result["env_runners"]["episode_return_mean"] > 0.85),
    }
    return {"equal": equal, "called": CALLS}
