"""RLlib's module with its LSTM, of which a program has its own forward passes, and a learner that looks at batches."""

from games import Calls, Echo
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

CALLS = Calls()
SEEN = {}


class Cooled(DefaultPPOTorchRLModule):
    def _forward(self, batch, **kwargs):
        CALLS.note("_forward")
        outputs = super()._forward(batch, **kwargs)
        outputs[Columns.ACTION_DIST_INPUTS] = 0.5 * outputs[Columns.ACTION_DIST_INPUTS]
        SEEN["acted by"] = sorted(outputs)
        return outputs

    def _forward_train(self, batch, **kwargs):
        CALLS.note("_forward_train")
        outputs = super()._forward_train(batch, **kwargs)
        outputs[Columns.ACTION_DIST_INPUTS] = 0.5 * outputs[Columns.ACTION_DIST_INPUTS]
        SEEN["learned by"] = sorted(outputs)
        return outputs


class Looks(PPOTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        CALLS.note("compute_loss_for_module")
        SEEN["sequences"] = {name: batch[name].ndim for name in ("obs", "actions", "advantages", "loss_mask")}
        SEEN["steps"] = batch["obs"].shape[1]
        SEEN["states"] = sorted(batch[Columns.STATE_IN])
        padding = batch["obs"][~batch["loss_mask"]]
        SEEN["some are none"] = len(padding) > 0
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


def outcome():
    options = {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 4, "fcnet_hiddens": [8], "vf_share_layers": True}
    found = {}
    for shared in (True, False):
        config = PPOConfig().environment(Echo).env_runners(num_env_runners=0)
        config.training(train_batch_size_per_learner=60, minibatch_size=40, num_epochs=2, learner_class=Looks)
        spec = RLModuleSpec(
            module_class=Cooled, catalog_class=PPOCatalog, model_config={**options, "vf_share_layers": shared}
        )
        algo = config.rl_module(rl_module_spec=spec).build_algo()
        before = {name: value.copy() for name, value in algo.get_module().get_state().items()}
        result = algo.train()["learners"]["default_policy"]
        after = algo.learner_group._learner.module["default_policy"].get_state()
        moved = sorted(
            name for name in before if name.endswith("lstm.weight_hh_l0") and (before[name] != after[name]).any()
        )
        algo.stop()
        found["shared" if shared else "apart"] = {
            **SEEN,
            "moved": moved,
            "results": sorted({"policy_loss", "vf_loss", "entropy"} & set(result)),
        }
    return {"equal": found, "called": CALLS}
