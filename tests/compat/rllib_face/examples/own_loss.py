"""PPO with a term of one's own in the loss, whose weight the config hands over."""

import numpy as np
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.utils.annotations import override
from shared import arguments, ppo, run

SAID = {}


class SmallWeights(PPOTorchLearner):
    @override(PPOTorchLearner)
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        weights = [p for name, p in self.module[module_id].named_parameters() if name.endswith("weight")]
        mean = sum(p.square().sum() for p in weights) / sum(p.numel() for p in weights)
        self.metrics.log_value(key=(module_id, "mean_squared_weight"), value=mean.detach().item(), window=1)
        SAID["columns"] = all(name in batch for name in (Columns.OBS, Columns.ADVANTAGES, Columns.VALUE_TARGETS))
        return loss + config.learner_config_dict["regularizer_coeff"] * mean


parser = arguments(default_reward=250.0, default_timesteps=200000)
parser.set_defaults(env="CartPole-v1")
parser.add_argument("--regularizer-coeff", type=float, default=0.02)

if __name__ == "__main__":
    args = parser.parse_args()
    config = ppo(
        *(args.env, 256, 128),
        learner_class=SmallWeights,
        learner_config_dict={"regularizer_coeff": args.regularizer_coeff},
    )
    results = run(config, args)
    SAID["logged"] = bool(np.isfinite(results["learners"]["default_policy"]["mean_squared_weight"]))
