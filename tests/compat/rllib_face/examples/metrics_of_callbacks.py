"""Callbacks that keep numbers of an episode and log them in several ways."""

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from shared import arguments, ppo, run

SAID = {}


class Angles(RLlibCallback):
    def on_episode_start(self, *, episode, metrics_logger, **kwargs):
        SAID["first"] = [episode.t, episode.is_done]

    def on_episode_step(self, *, episode, metrics_logger, env, **kwargs):
        angle = abs(float(episode.get_observations(-1)[2]))
        episode.custom_data.setdefault("angles", []).append(angle)

    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        angles = episode.custom_data["angles"]
        metrics_logger.log_value("pole_angle_mean", float(np.mean(angles)), reduce="mean", window=10)
        metrics_logger.log_value("pole_angle_max", float(np.max(angles)), reduce="max", window=10)
        metrics_logger.log_value("episodes_seen", 1, reduce="lifetime_sum")
        metrics_logger.log_value(("nested", "length"), len(episode), reduce="mean")
        SAID["angles"] = len(angles) == len(episode)

    def on_train_result(self, *, algorithm, result, **kwargs):
        result["callback_ok"] = True


if __name__ == "__main__":
    args = arguments(default_reward=450.0).parse_args()
    config = ppo("CartPole-v1", 256, 128).callbacks(callbacks_class=Angles)
    results = run(config, args)
    SAID["result"] = results["callback_ok"]
