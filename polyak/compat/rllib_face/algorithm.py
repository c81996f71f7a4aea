"""An algorithm with RLlib's API: each call of ``train()`` makes one iteration and returns a dict of results.

It trains polyak's own algorithm, ``algo.model``: without further processes the results are those of
``polyak.PPO(...).learn(...)``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from typing_extensions import Self

from polyak.checkpoint.may_be_named import MayBeNamed
from polyak.compat.rllib_face import checkpoints, not_called, results, states
from polyak.compat.rllib_face.callbacks import Hooks
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.connectors.actions import ActsByPieces
from polyak.compat.rllib_face.connectors.environments import layers_of
from polyak.compat.rllib_face.connectors.learning import check_pieces, pieces_of_learner
from polyak.compat.rllib_face.env_runners import EnvRunner, EvaluationRunners
from polyak.compat.rllib_face.environments import in_units_of
from polyak.compat.rllib_face.episodes import EndsElsewhere, EpisodesOfTraining
from polyak.compat.rllib_face.evaluation import LocalEvaluators, order_of
from polyak.compat.rllib_face.filters import filter_around
from polyak.compat.rllib_face.groups import LocalRunner, RunnerGroup, beside
from polyak.compat.rllib_face.learner_groups import LearnerGroup, learns_with
from polyak.compat.rllib_face.learners.base import TorchLearner
from polyak.compat.rllib_face.metrics import MetricsLogger
from polyak.compat.rllib_face.models.default_modules import view_of
from polyak.compat.rllib_face.models.rl_module import read_state
from polyak.compat.rllib_face.places import check_processes, made, make_places, of_others
from polyak.compat.rllib_face.processes.evaluators import RemoteEvaluators
from polyak.compat.rllib_face.processes.runners import RemoteRunners
from polyak.compat.rllib_face.result_files import ResultFiles
from polyak.compat.sb3_face.overrides import changed, refuse
from polyak.distributed.runners import envs_of_runners
from polyak.evaluation.undisturbed import undisturbed
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.declaration import require
from polyak.schedules import LinearSchedule
from polyak.suggestions import did_you_mean


class Algorithm(MayBeNamed):
    """The algorithm that a config builds.

    Args:
        config: copied by ``build_algo()``, and frozen here; or a dict of settings, over the defaults.
        env: replaces the config's environment.

    Attributes:
        config: frozen.
        model: polyak's algorithm.
        iteration: calls of :meth:`train` so far.
        env_runner_group: collects experience.
        learner_group: learns from it.

    Raises:
        HyperparameterError: an invalid setting, or two that contradict each other.
        NotThereYetError: processes that are not supported.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    trial_id = "default"
    """RLlib's name of an algorithm that is no trial of Ray Tune; Tune writes its own into results."""

    def __init__(self, config: AlgorithmConfig | Mapping[str, Any] | None = None, env: Any = None) -> None:
        own = (
            config if isinstance(config, AlgorithmConfig) else self.get_default_config().update_from_dict(config or {})
        )
        if env is not None:
            own = own.copy(copy_frozen=False).environment(env)
        refuse("algo_class", type(self), Algorithm, not_called.OF["algorithm"])
        beside = own.evaluation_parallel_to_training and changed(type(self), Algorithm, ["evaluate"])
        fix = f"{type(self).__name__} has an evaluate() of its own, which ends before training continues. Leave it out."
        require(not beside, "evaluation_parallel_to_training", True, fix)
        own.validate()
        own.freeze()
        self.config, self.iteration = own, 0
        self._since, self._last_result = results.Since(), dict[str, Any]()
        self.setup(own)
        fix = f"setup() of {type(self).__name__} has made no model: let it call super().setup(config)."
        require("model" in vars(self), "algo_class", type(self), fix)
        self._hooks("on_algorithm_init", algorithm=self)

    def setup(self, config: AlgorithmConfig) -> None:
        """Make environments, networks, runners and learner. A subclass may extend it."""
        self._hooks = Hooks(config)
        self._files = ResultFiles(config)
        check_processes(config, self._hooks.wants_steps())
        self._evaluators: LocalEvaluators | RemoteEvaluators
        if config.evaluation_num_env_runners > 0:
            self._evaluators = RemoteEvaluators(config)
        else:
            self._evaluators = LocalEvaluators(config, self._hooks.created(None))
            self._evaluators.metrics = self._hooks.evaluation_logger
            if self._hooks.wants_episodes():
                self._evaluators.show = self._hooks.shown(self, evaluating=True)
        self._stopped = False
        self._learners: LearnerGroup | None = None
        try:
            self._make_model()
        except BaseException:
            self._evaluators.stop()
            raise

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """Returns a new config with the algorithm's defaults, which builds this class."""
        return cls.config_class(algo_class=cls)

    def _make_model(self) -> None:
        env, self._seen = make_places(self.config, self._hooks.created(None))
        self._turned = self._seen.turned
        self._spaces = self._seen.observations, self._seen.own_actions
        try:
            own = self.config.get_config_for_module(DEFAULT_MODULE_ID)
            self.plain = own.watched(own.plain(self._turned))
            self.plain.kwargs.update(of_others(self.config, self.plain.kwargs))
            self._continue_with(made(self.config, self.plain, env))
        except BaseException:
            env.close()
            raise
        if (path := self.config.get_rl_module_spec().load_state_path) is not None:
            self._begin_with(path)
        self._counters = results.COUNTERS.copy()

    def _continue_with(self, model: Any, restart: bool = True) -> None:
        """Continue with a model."""
        self._end_replay()
        self.model = model
        self._log = results.Means()
        model.set_logger(self._log)
        self._episodes = results.LatestEpisodes(model.ep_info_buffer.maxlen)
        self._episodes.extend(model.ep_info_buffer)
        model.ep_info_buffer = self._episodes
        schedule = getattr(self.config, "exploration_schedule", lambda: None)()
        if schedule is not None and not isinstance(schedule, LinearSchedule):  # more than one straight line
            model.exploration_schedule = schedule
            model.exploration_rate = schedule(model._current_progress_remaining)
        if isinstance(model.learner, TorchLearner):
            model.learner.counts = lambda: int(model.num_timesteps)
        self._show_pieces(model)
        if hasattr(model.policy, "explored"):
            model.policy.explored = model.num_timesteps
        shown: Any = None
        if self._hooks.wants_episodes():
            kind = EndsElsewhere if self.config.num_env_runners else EpisodesOfTraining
            shown = kind(self._hooks.shown(self, evaluating=False))
        if self._learners is not None:
            self._learners.stop()
        with learns_with(model, self.get_module()):
            spec = self.config.get_multi_rl_module_spec(spaces={DEFAULT_MODULE_ID: self._spaces})
            self._learners = self.learner_group = self.config.build_learner_group(rl_module_spec=spec)
        self._updates_by_group = bool(changed(type(self.learner_group), LearnerGroup, ["update"]))
        self._updates_by_group &= not self.learner_group.is_remote
        fix = f"{self.config.name} learns from no episodes, so that update() of a group of one's own is never called."
        fits = not self._updates_by_group or self.config.steps_itself
        require(fits, "build_learner_group()", type(self.learner_group), fix)
        self.env_runner_group = self._make_runners(model, shown, restart)

    def _make_runners(self, model: Any, shown: Any, restart: bool) -> Any:
        """Returns the object that collects experience for a model."""
        remote = envs_of_runners(model.get_env())
        if remote is None:
            return LocalRunner(model, shown, restart, self.env_runner)
        return RemoteRunners(self.config, remote, model, shown, restart)

    def _show_pieces(self, model: Any) -> None:
        """Give the module and the logger to the connector pieces around it, and the training data to those before the
        learner."""
        layers = layers_of(model.get_env())
        for layer in layers:
            layer.rl_module, layer.explore = self.get_module(), self.config.explore
            layer.metrics = self._hooks.metrics_logger
        if layers and isinstance(model, ActsByPieces):
            model.runner.actor.layer = layers[0]
        if isinstance(model.learner, TorchLearner) and model.learner.pipeline is not None:
            check_pieces(model)
        if pieces_of_learner(model) is not None and self.config.shown_to_pieces == "rollouts":
            fix = "pieces of the learner are shown the episodes of this process: set num_env_runners=0."
            require(bool(layers), "num_env_runners", self.config.num_env_runners, fix)
            fix = "pieces of the learner see rollouts of equal lengths: set batch_mode='truncate_episodes'."
            require(not getattr(self.config, "_is_whole", False), "batch_mode", self.config.batch_mode, fix)
            layers[0].keeps = True

    def _end_replay(self) -> None:
        """End the processes that hold the replay buffer, if there are any."""
        buffer = getattr(vars(self).get("model"), "replay_buffer", None)
        if buffer is not None:
            buffer.close()

    def _begin_with(self, path: Any) -> None:
        """Give the module, and its target networks, the weights of another."""
        self.get_module().set_state(read_state(path))
        policy = self.model.policy
        if hasattr(policy, "q_net_target"):
            policy.q_net_target.load_state_dict(policy.q_net.state_dict())
        if hasattr(self.model.learner, "target_policy"):
            self.model.learner.target_policy.load_state_dict(policy.state_dict())

    # -- training ------------------------------------------------------------------------------------------------------

    def training_step(self) -> None:
        """Collect one batch and learn from it. A subclass may do otherwise."""
        if not self._updates_by_group:
            self.env_runner_group.iterate()
            return
        config = self.config
        self.learner_group.update(
            episodes=self.env_runner_group.sample(num_timesteps=config.total_train_batch_size),
            timesteps={"num_env_steps_sampled_lifetime": self._sampled},
            num_epochs=config.num_epochs,
            minibatch_size=config.minibatch_size,
            shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
        )

    def train(self) -> dict[str, Any]:
        """Makes one iteration: training steps until the config's least seconds and steps are reached; then, every
        ``evaluation_interval`` iterations, an evaluation.

        Returns:
            nested results; ``"evaluation"`` only if there was one in this iteration.

        Raises:
            RuntimeError: the algorithm was stopped.
        """
        if self._stopped:
            raise RuntimeError("the algorithm was stopped: build another, or restore one by from_checkpoint().")
        config, model = self.config, self.model
        began, steps, episodes = time.perf_counter(), self._sampled, self._episodes.lifetime
        split, updates, calls, rows = model.time_split, model.learner.steps, 0, 0
        evaluates = config.evaluation_interval is not None and (self.iteration + 1) % config.evaluation_interval == 0
        meanwhile = evaluates and config.evaluation_parallel_to_training
        if meanwhile:
            self._tell_of_recreated(self.eval_env_runner_group, True)
            self._begin_evaluation()
        with self.env_runner_group.under_way():
            while True:
                self._tell_of_recreated(self.env_runner_group, False)
                self.training_step()
                if meanwhile:
                    self._evaluators.iterate()
                calls += 1
                rows = self._rows(model.learner.steps - updates)
                if (
                    time.perf_counter() - began >= (config.min_time_s_per_iteration or 0)
                    and self._sampled - steps >= config.min_sample_timesteps_per_iteration
                    and rows >= config.min_train_timesteps_per_iteration
                ):
                    break
        self.learner_group.settle()
        self.iteration += 1
        self._counters["rows"] += rows
        seconds = time.perf_counter() - began
        result = {
            "training_iteration": self.iteration,
            "num_training_step_calls_per_iteration": calls,
            "num_env_steps_sampled_lifetime": self._sampled,
            "env_runners": self._of_runners(self._sampled - steps, self._episodes.lifetime - episodes, seconds),
            "learners": self._of_learners(rows, model.learner.steps - updates, seconds),
            "fault_tolerance": {
                "num_healthy_workers": self.env_runner_group.num_healthy_env_runners,
                "num_remote_worker_restarts": self.env_runner_group.num_restarts,
            },
            "done": False,
            "trial_id": self.trial_id,
            "config": config.to_dict(),
            **results.of_now(),
        }
        self._add_timers(result, split, seconds, calls)
        for name, value in self.metrics.reduced().items():
            result[name] = {**result.get(name, {}), **value} if isinstance(value, dict) else value
        if config.collects and (buffer := getattr(model, "replay_buffer", None)) is not None:
            so_far = self._sampled, rows, self._counters["rows"]
            result["replay_buffer"] = results.of_replay(buffer, self._sampled - steps, *so_far)
        if evaluates:
            evaluated = time.perf_counter()
            if not meanwhile:
                self._tell_of_recreated(self.eval_env_runner_group, True)
            result["evaluation"] = self._end_evaluation() if meanwhile else self.evaluate()
            result["timers"]["evaluation_iteration"] = time.perf_counter() - evaluated
            seconds = time.perf_counter() - began
        self._counters["seconds"] += seconds
        self._since.iterations += 1
        self._since.seconds += seconds
        result |= {
            "time_this_iter_s": seconds,
            "time_total_s": self._counters["seconds"],
            "iterations_since_restore": self._since.iterations,
            "time_since_restore": self._since.seconds,
        }
        if config.log_sys_usage:
            result["perf"] = results.of_machine()
        self._hooks("on_train_result", algorithm=self, result=result)
        self._files.add(result)
        self._last_result = result
        return result

    def _tell_of_recreated(self, group: RunnerGroup, is_evaluation: bool) -> None:
        """Call back for runners that have taken the place of others."""
        if indices := group.recreated():
            known = {"env_runner_group": group, "env_runner_indices": indices, "is_evaluation": is_evaluation}
            self._hooks("on_env_runners_recreated", is_evaluation, algorithm=self, **known)

    @property
    def _sampled(self) -> int:
        """Environment steps so far; rows, if the data were recorded."""
        return int(self.model.num_timesteps)

    @property
    def _source(self) -> Any:
        """The source of experience of a restored model."""
        return self.model.get_env()

    @property
    def _envs(self) -> int:
        return self.config.num_envs_per_env_runner * max(1, self.config.num_env_runners)

    def _rows(self, updates: int) -> int:
        """Returns the number of rows that ``updates`` gradient steps learned from."""
        model = self.model
        if not isinstance(model, OnPolicyAlgorithm):
            return updates * int(model.batch_size)
        rows = model.rollout_buffer.buffer_size * model.rollout_buffer.n_envs
        if model.batch_size is None:
            return updates * rows * getattr(model.rollouts, "per_batch", 1)
        if not self.config.shuffle_batch_per_epoch:
            return updates * int(model.batch_size)
        return round(updates / -(-rows // model.batch_size) * rows)

    def _of_runners(self, steps: int, episodes: int, seconds: float) -> dict[str, Any]:
        return {
            **results.of_training(self._episodes, self._envs),
            **results.of_steps(steps, self._sampled, episodes, self._episodes.lifetime),
            "num_episodes_kept": len(self._episodes),
            "num_env_steps_sampled_lifetime_throughput": self._since.rates("steps", steps, seconds),
            "weights_seq_no": float(self.model.learner.steps),
            **self._hooks.metrics_logger.reduced(),
        }

    def _of_learners(self, rows: int, updates: int, seconds: float) -> dict[str, Any]:
        others = beside(self.model.learner)
        counts = {name: sum(p.numel() for p in one.parameters() if p.requires_grad) for name, one in others.items()}
        lifetime, learner = self._counters["rows"], self.model.learner
        found = results.of_learner(self._log.taken(), learner, rows, updates, lifetime, seconds, self._since)
        found[DEFAULT_MODULE_ID]["num_trainable_parameters"] -= sum(counts.values())
        if "entropy_coeff" in self.config.to_dict():
            found[DEFAULT_MODULE_ID]["curr_entropy_coeff"] = float(self.model.learner.tunables["ent_coef"])
        if self.config.name == "PPO" and "vf_loss" in found[DEFAULT_MODULE_ID]:
            found[DEFAULT_MODULE_ID].setdefault("vf_loss_unclipped", found[DEFAULT_MODULE_ID]["vf_loss"])
        if isinstance(learner, TorchLearner) and learner.names_optimizers:
            found[DEFAULT_MODULE_ID].pop("default_optimizer_learning_rate", None)
            found[DEFAULT_MODULE_ID] |= learner.rates(DEFAULT_MODULE_ID)
        for name, count in counts.items():
            found[name] = {"num_trainable_parameters": count, **self.model.learner.rates(name)}
            if self.model.learner.metrics.peek((name, "total_loss")) is not None:
                found[name]["num_module_steps_trained"] = rows
        if isinstance(self.model.learner, TorchLearner):
            for name, value in self.model.learner.metrics.reduced().items():
                found[name] = {**found.get(name, {}), **value} if isinstance(value, dict) else value
        return found

    def _add_timers(self, result: dict[str, Any], before: Mapping[str, float], seconds: float, calls: int) -> None:
        """Adds the timers of an iteration. Acting and stepping are separated if this process does them."""
        spent = {name: max(now - before.get(name, 0.0), 0.0) for name, now in self.model.time_split.items()}
        sampling = spent["env"] + spent["inference"] + spent["copy"]
        result["timers"] = {
            "training_iteration": seconds,
            "training_step": seconds / calls,
            "env_runner_sampling_timer": sampling,
            "learner_update_timer": spent["update"] + spent["sample"],
            "synch_weights": 0.0,
        }
        runners = result["env_runners"] | {
            "sample": sampling / calls,
            "time_between_sampling": (seconds - sampling) / calls,
        }
        if self.config.num_env_runners == 0 and (steps := runners["num_env_steps_sampled"] // self._envs):
            runners |= {"env_step_timer": spent["env"] / steps, "rlmodule_inference_timer": spent["inference"] / steps}
        result["env_runners"] = runners

    @staticmethod
    def summary(result: Mapping[str, Any]) -> str:
        """Returns one line with the main entries of a result of :meth:`train`."""
        return results.summary(result)

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """Play episodes without learning, in separate environments; training continues as if nothing had been.

        Args:
            parallel_train_future: RLlib's, which must be ``None``: ``evaluation_parallel_to_training`` does so.

        Returns:
            ``{"env_runners": {"episode_return_mean": ...}}``, and in which iteration.
        """
        fix = "set evaluation(evaluation_parallel_to_training=True)."
        require(parallel_train_future is None, "parallel_train_future", parallel_train_future, fix)
        self._begin_evaluation()
        return self._end_evaluation()

    def _begin_evaluation(self) -> None:
        self._hooks("on_evaluate_start", algorithm=self)
        self._evaluators.begin(self.model, order_of(self.config, int(self._counters["evaluations"])))

    def _end_evaluation(self) -> dict[str, Any]:
        function = self.config.custom_evaluation_function
        if function is not None:
            with undisturbed(self.model):
                given = function(self, self.eval_env_runner_group)
            found, *steps = given if isinstance(given, tuple) else (given,)
            fix = f"it returned {given!r:.80}. Let it return (dict of results, environment steps, agent steps)."
            right = isinstance(found, dict) and len(steps) in (0, 2) and all(isinstance(n, int) for n in steps)
            require(right, "custom_evaluation_function", function, fix)
        else:
            returns, lengths = self._evaluators.result()
            sampled, played, counters = int(sum(lengths)), len(returns), self._counters
            counters["evaluated_steps"] += sampled
            counters["evaluated_episodes"] += played
            lifetime = int(counters["evaluated_steps"]), int(counters["evaluated_episodes"])
            counts = results.of_steps(sampled, lifetime[0], played, lifetime[1])
            logged = self._hooks.evaluation_logger.reduced()
            found = {"env_runners": {**results.of_episodes(returns, lengths), **counts, **logged}}
        found = {
            **found,
            "iteration": self.iteration,
            "num_healthy_workers": self.config.evaluation_num_env_runners,
            "num_remote_worker_restarts": self._evaluators.num_restarts,
        }
        self._counters["evaluations"] += 1
        self._hooks("on_evaluate_end", algorithm=self, evaluation_metrics=found)
        return found

    # -- acting --------------------------------------------------------------------------------------------------------

    def compute_single_action(
        self, observation: Any, state: Any = None, *, explore: bool = False, **kwargs: Any
    ) -> Any:
        """Returns the action for one observation, in the environment's units.

        Args:
            observation: the environment's observation.
            state: the recurrent state of a module; ``None`` at the start of an episode.
            explore: explore as in training, instead of taking the best action.
            kwargs: RLlib's others, which must be ``None``.

        Returns:
            the action; of a module with a memory, or with ``state``, (action, next state, {}).
        """
        for name, value in kwargs.items():
            require(value is None, name, value, "there are observation, state and explore.")
        action, then = self.model.predict(self._filtered(observation), state, deterministic=not explore)
        action = self._in_units(action)
        is_recurrent = state is not None or self.model.policy.acting_memory(1) is not None
        return (action, then, {}) if is_recurrent else action

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> Any:
        """Returns actions for one observation or several, and the next state, as every algorithm of polyak does."""
        action, then = self.model.predict(self._filtered(observation), state, episode_start, deterministic)
        return self._in_units(action), then

    def _filtered(self, observation: Any) -> Any:
        """Returns an observation as the model was trained on it."""
        if layers_of(self.model.get_env()):
            raise RuntimeError(
                "the pieces of connectors see episodes, and not observations alone. Pass them a "
                "SingleAgentEpisode: algo.env_runner._env_to_module(episodes=[episode], rl_module=algo.get_module(), "
                "explore=False), and what comes out to algo.get_module().forward_inference()."
            )
        known = filter_around(self.model.get_env())
        return observation if known is None else known.normalize_obs(observation)

    def _in_units(self, action: Any) -> Any:
        """Converts an action to the environment's units, if the model acts in [-1, 1]."""
        if not isinstance(self.action_space, gym.spaces.Box) or self.action_space == self.model.action_space:
            return action
        return in_units_of(self.action_space, action)

    @property
    def training_iteration(self) -> int:
        """RLlib's name of :attr:`iteration`."""
        return self.iteration

    @property
    def observation_space(self) -> gym.Space:
        """The environment's."""
        return self._spaces[0]

    @property
    def action_space(self) -> gym.Space:
        """The environment's, in its own units."""
        return self._spaces[1]

    # -- collecting and logging ----------------------------------------------------------------------------------------

    @property
    def env_runner(self) -> EnvRunner:
        """The runner of this process, with its environments and networks."""
        return EnvRunner(self._hooks, self, evaluating=False)

    @property
    def eval_env_runner(self) -> EnvRunner:
        """The evaluation runner of this process, with its environments.

        Raises:
            AttributeError: other processes evaluate.
        """
        runner = self.eval_env_runner_group.local_env_runner
        if runner is None:
            raise AttributeError("eval_env_runner")  # __getattr__ names the replacement
        return runner

    @property
    def eval_env_runner_group(self) -> EvaluationRunners:
        """The evaluation runners, in this process or in others."""
        return EvaluationRunners(self._hooks, self)

    @cached_property
    def metrics(self) -> MetricsLogger:
        """The logger for a program's own training steps: its entries are among the results themselves."""
        steps = {"env_runners": "num_env_steps_sampled_lifetime"}
        return MetricsLogger({names: lambda: self._sampled for names in (*steps.items(), (steps["env_runners"],))})

    # -- networks ------------------------------------------------------------------------------------------------------

    def get_module(self, module_id: str = DEFAULT_MODULE_ID) -> Any:
        """Returns the networks that learn, themselves and not a copy: value function and target networks included.

        Raises:
            KeyError: there is only the default module.
        """
        if module_id in beside(self.model.learner):
            raise KeyError(f"{module_id!r} is the learner's: learner_group._learner.module[{module_id!r}].")
        if module_id != DEFAULT_MODULE_ID:
            raise KeyError(f"there is no module {module_id!r}, only {DEFAULT_MODULE_ID!r}.")
        return view_of(self.model.policy, self._spaces[0], self._turned)

    def get_weights(self, policies: Any = None) -> dict[str, dict[str, np.ndarray]]:
        """Returns {"default_policy": {name: array}}: the result of :meth:`get_module`'s ``get_state()``, and the same
        of each module that only the learner has.

        Args:
            policies: names of modules; ``None``: all.
        """
        return self.learner_group.get_weights(policies)

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore weights that :meth:`get_weights` returned.

        Raises:
            ValueError: they do not fit; nothing is changed then.
        """
        self.learner_group.set_weights(weights)

    # -- state ---------------------------------------------------------------------------------------------------------

    def get_state(self, components: Any = None, *, not_components: Any = None) -> dict[str, Any]:
        """Returns a copy of the learned state and the counters, nested by RLlib's names of components. It does not
        contain collected experience and random streams: :meth:`save_to_path` writes those that a training continues
        from.

        Args:
            components: names of components, such as ``"learner_group/learner/rl_module"``; ``None``: all.
            not_components: names of components to leave out.

        Raises:
            HyperparameterError: there is no component of that name.
        """
        return states.state_of(self, states.ComponentChoice(components, not_components, beside(self.model.learner)))

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`get_state` returned, or parts of it.

        Raises:
            ValueError: the state is of another algorithm, or of other networks.
        """
        states.take_state(self, state)

    # -- files ---------------------------------------------------------------------------------------------------------

    @property
    def logdir(self) -> str:
        """The folder with the results as files, created at the first access or by ``logger_config``: see
        :mod:`polyak.compat.rllib_face.result_files`."""
        return str(self._files.folder)

    def save_to_path(self, path: Any) -> str:
        """Write a checkpoint: a folder with one file, which takes the place of an older one only when it is complete.
        The module by itself is in it, too, for
        ``RLModule.from_checkpoint(path + "/learner_group/learner/rl_module")``.

        Returns:
            the folder.
        """
        return checkpoints.save(self, path)

    def restore_from_path(self, path: Any, component: str | None = None) -> None:
        """Continue from a checkpoint: weights, optimizers, counters and random states, and new episodes.

        Args:
            path: a result of :meth:`save_to_path`.
            component: load a single component of :meth:`get_state`, such as ``"learner_group"``, ``"env_runner"`` or
                ``"learner_group/learner/rl_module"``; ``"rl_module"`` is short for the last.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: it is damaged, or of another algorithm or other networks; nothing is changed then.
            HyperparameterError: there is no component of that name.
        """
        checkpoints.restore(self, path, component)
        self._hooks("on_checkpoint_loaded", algorithm=self)

    def save(self, checkpoint_dir: Any = None) -> checkpoints.SavedTraining:
        """Saves a checkpoint by RLlib's earlier method: see :meth:`save_to_path`.

        Args:
            checkpoint_dir: the folder; ``None``: a new temporary folder, which the caller deletes.

        Returns:
            ``.checkpoint.path``, and the latest result of :meth:`train` as ``.metrics``.
        """
        folder = tempfile.mkdtemp() if checkpoint_dir is None else checkpoint_dir
        return checkpoints.SavedTraining(checkpoints.Checkpoint(self.save_to_path(folder)), self._last_result)

    def restore(self, checkpoint_path: Any) -> None:
        """Restore a checkpoint by its path, or by a result of :meth:`save`: see :meth:`restore_from_path`."""
        self.restore_from_path(checkpoints.folder_of(checkpoint_path))

    save_checkpoint, load_checkpoint = save_to_path, restore_from_path

    def get_config(self) -> AlgorithmConfig:
        """Returns the config."""
        return self.config

    @classmethod
    def from_checkpoint(cls, path: Any, config: AlgorithmConfig | None = None, *, trust: bool = False) -> Algorithm:
        """Build an algorithm from a checkpoint.

        Args:
            path: a result of :meth:`save_to_path` or :meth:`save`.
            config: replaces the file's. The file's own classes (callbacks, modules, learners, environments) are found
                if the program has imported or defined them under the same names.
            trust: let functions and other objects of the file's config be unpickled, which may run any code.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: it is damaged, or has settings for which a config or trust is needed.
        """
        path = checkpoints.folder_of(path)
        algorithm = checkpoints.built(path, config, cls, trust)
        try:
            algorithm.restore_from_path(path)
        except BaseException:
            algorithm.stop()
            raise
        return algorithm

    # -- the end -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Close all environments; a second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        self.env_runner_group.stop()
        self.learner_group.stop()
        self._end_replay()
        self._evaluators.stop()
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(env={self.config.env!r}, iteration={self.iteration})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _REPLACED:
            raise AttributeError(f"{type(self).__name__} has no {name}. Use {_REPLACED[name]}.")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.{did_you_mean(name, dir(type(self)))}")


_REPLACED = {
    "get_policy": "get_module()",
    "compute_action": "compute_single_action(observation)",
    "compute_actions": "predict(observations)",
    "workers": "env_runner_group",
    "eval_env_runner": "evaluation_num_env_runners=0, or eval_env_runner_group: evaluation runs in other processes",
    "evaluation_workers": "evaluate()",
    "add_module": "one agent, whose networks rl_module(rl_module_spec=...) says",
    "remove_module": "one agent, whose networks rl_module(rl_module_spec=...) says",
    "export_policy_model": "get_module().save_to_path(path)",
    "export_policy_checkpoint": "get_module().save_to_path(path)",
}
"""Names that RLlib has, or had in earlier versions, with their replacements."""
