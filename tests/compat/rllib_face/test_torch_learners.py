"""Learners under RLlib's contract: losses, optimizers and gradients of a program's own, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from polyak.compat.rllib_face import (
    APPOConfig,
    APPOTorchLearner,
    Columns,
    DQNTorchLearner,
    IMPALATorchLearner,
    PPOTorchLearner,
    RLModuleSpec,
    SACTorchLearner,
    TorchLearner,
)
from polyak.experience.batch import RolloutBufferSamples, Transition
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.nn.errors import PolicyError
from tests.compat.rllib_face import own_networks as own
from tests.compat.rllib_face.test_algorithm import SMALL, dqn, equal, impala, ppo, weights

LEARNERS = {"PPO": PPOTorchLearner, "DQN": DQNTorchLearner, "IMPALA": IMPALATorchLearner, "APPO": APPOTorchLearner}
ONCE = pytest.mark.filterwarnings("ignore:.* runs as it is written")


def asking(base: type[Any]) -> type[Any]:
    """A learner whose loss is the algorithm's."""

    class Asking(base):
        def compute_loss_for_module(self, **known: Any) -> torch.Tensor:
            loss: torch.Tensor = super().compute_loss_for_module(**known)
            return loss

    return Asking


def gradients(learner: Any, batch: Any, step: Any) -> dict[str, torch.Tensor]:
    """Of a copy of a learner, after one gradient step by ``step(learner, batch)``."""
    other = copy.deepcopy(learner)
    step(other, batch)
    return {name: one.grad for name, one in other.named_parameters() if one.grad is not None}


@ONCE
@pytest.mark.parametrize("name", LEARNERS)
def test_a_loss_that_is_the_algorithms_makes_its_gradient_step(name: str) -> None:
    """From the module's outputs and columns the same gradients as from polyak's policy, to rounding of float32."""
    base = LEARNERS[name]
    config = SMALL[name]().training(learner_class=asking(base), grad_clip=0.5)
    if name == "PPO":  # whose own divergence is an estimate, and the module's is exact
        config.training(use_kl_loss=False)
    if name == "DQN":  # whose own dueling heads scale what they hand back to the encoder
        config.training(dueling=False)
    batches: list[Any] = []
    with config.build() as algo:
        learner, asked = algo.model.learner, "own_step" if name == "PPO" else "update"
        made = getattr(learner, asked)
        note = lambda batch: (batches.append(copy.copy(batch)), made(batch))[1]  # noqa: E731
        object.__setattr__(learner, asked, note)
        algo.train()
        object.__delattr__(learner, asked)
        batch = batches[-1]
        theirs = next(kind for kind in base.__mro__ if kind.__module__.startswith("polyak.algorithms"))
        step = "own_step" if name == "PPO" else "gradient_step"
        ours = gradients(learner, batch, lambda one, rows: getattr(one, step)(rows))
        sample = sample_of(batch["default_policy"]) if name == "PPO" else batch
        plain = gradients(learner, sample, lambda one, rows: _as_polyak(one, rows, theirs))
    assert ours.keys() == plain.keys()
    for key, grad in plain.items():
        assert grad.abs().max() > 0
        torch.testing.assert_close(ours[key], grad, atol=1e-5 * float(grad.abs().max()), rtol=0)


def sample_of(columns: Any) -> RolloutBufferSamples:
    """Columns of PPO as polyak's learner reads them, without the steps that count in no loss."""
    names = ("obs", "actions", "vf_preds", "action_logp", "advantages", "value_targets")
    obs, actions, *others = (columns[one][columns["loss_mask"]] for one in names)
    return RolloutBufferSamples(obs, actions[:, None].float(), *others)


def _as_polyak(learner: Any, batch: Any, theirs: type[Any]) -> None:
    """Its step without the contract, on advantages as they are."""
    learner.normalize_advantage = False
    learner.__class__ = type("Plain", (theirs,), {})
    learner.gradient_step(batch)


@ONCE
def test_a_term_more_in_the_loss_moves_weights_and_is_reported() -> None:
    class Decayed(PPOTorchLearner):
        def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> torch.Tensor:
            squares = torch.stack([w.square().sum() for w in self.get_parameters(self.module[module_id])]).sum()
            self.metrics.log_value((module_id, "squares"), squares, window=1)
            return config.learner_config_dict["weight"] * squares

    config = ppo(learner_class=Decayed, learner_config_dict={"weight": 1.0})
    with config.build() as algo:
        sizes = [algo.train()["learners"]["default_policy"]["squares"] for _ in range(3)]
        assert algo.learner_group._learner is algo.model.learner
        assert algo.learner_group._learner.module["default_policy"] is algo.get_module()
    assert sizes[0] > sizes[1] > sizes[2]


@ONCE
def test_gradients_are_a_programs_before_they_are_applied() -> None:
    class Frozen(DQNTorchLearner):
        def postprocess_gradients(self, gradients_dict: Any) -> Any:
            return {parameter: torch.zeros_like(grad) for parameter, grad in gradients_dict.items()}

    class Untouched(DQNTorchLearner):
        def should_module_be_updated(self, module_id: str, multi_agent_batch: Any = None) -> bool:
            return False

    for kind in (Frozen, Untouched):
        with dqn(learner_class=kind).build() as algo:
            before = algo.get_module().get_state(inference_only=True)
            algo.train()
            assert algo.model.learner.steps > 0
            assert equal(algo.get_module().get_state(inference_only=True), before)


@ONCE
def test_errors_of_the_algorithms_loss_are_those_that_replay_goes_by() -> None:
    with dqn(learner_class=asking(DQNTorchLearner)).build() as algo:
        algo.train()
        batch = algo.model.replay_buffer.sample(8)
        assert algo.model.learner.update(Transition.from_samples(batch, algo.model.gamma)).td_error.shape == (8,)


@ONCE
def test_optimizers_of_ones_own_keep_their_rates_and_are_in_checkpoints(tmp_path: Any) -> None:
    class Two(PPOTorchLearner):
        def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
            module = self.module[module_id]
            for name, part, rate in (("a", module.pi, 0.5), ("b", module.vf, [[0, 0.1], [256, 0.3]])):
                params = self.get_parameters(part)
                optimizer = torch.optim.SGD(params, lr=9.0, momentum=0.5)
                self.register_optimizer(
                    module_id=module_id, optimizer_name=name, optimizer=optimizer, params=params, lr_or_lr_schedule=rate
                )

    config = ppo(learner_class=Two)
    with config.build() as algo:
        encoder = {k: v for k, v in weights(algo).items() if k.startswith("encoder")}
        algo.train()
        learner = algo.model.learner
        rates = {name: one.param_groups[0]["lr"] for name, one in learner.get_optimizers_for_module()}
        assert rates == {"a": 0.5, "b": pytest.approx(0.2)}
        assert equal({k: v for k, v in weights(algo).items() if k.startswith("encoder")}, encoder)
        algo.save_to_path(tmp_path)
        state = algo.get_state()["learner_group"]["learner"]["optimizer"]
        with config.build() as other:
            other.restore_from_path(tmp_path)
            again = other.get_state()["learner_group"]["learner"]["optimizer"]
    assert sorted(again) == sorted(state) == ["default_policy_a", "default_policy_b"]
    for name, kept in state.items():
        for index, values in kept["state"].items():
            assert torch.equal(again[name]["state"][index]["momentum_buffer"], values["momentum_buffer"])


@pytest.mark.parametrize("name", [*LEARNERS, "SAC"])
def test_what_happens_around_updates_is_a_programs_and_steps_stay_polyaks(name: str) -> None:
    base = {**LEARNERS, "SAC": SACTorchLearner}[name]
    seen: list[Any] = []

    class Watching(base):  # type: ignore[misc, valid-type]
        def build(self) -> None:
            super().build()
            seen.append("built")

        def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
            seen.append(("before", timesteps["num_env_steps_sampled_lifetime"], self.steps))

        def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
            super().after_gradient_based_update(timesteps=timesteps)
            self.metrics.log_value(("default_policy", "updates"), 1, reduce="sum")
            seen.append(("after", timesteps["num_env_steps_sampled_lifetime"], self.steps))

        def shutdown(self) -> None:
            seen.append("ended")

    with SMALL[name]().training(learner_class=Watching).build() as algo:
        result, found, steps = algo.train(), weights(algo), algo.model.learner.steps
    with SMALL[name]().build() as usual:
        usual.train()
        assert equal(found, weights(usual))
    assert seen[0] == "built"
    assert seen[-1] == "ended"
    assert seen[1][0] == "before"
    assert seen[1][2] == 0
    assert seen[-2][::2] == ("after", steps)
    assert result["learners"]["default_policy"]["updates"] == sum(one[0] == "after" for one in seen[1:-1])


def test_that_a_loss_runs_plainly_is_said_once() -> None:
    config = ppo(learner_class=asking(PPOTorchLearner)).framework(torch_compile_learner=True)
    with pytest.warns(UserWarning, match=r"Asking.compute_loss_for_module\(\) of learner_class") as caught:
        algo = config.build()
    with algo:
        algo.train()
        assert not algo.model.engine.compiles
    assert sum("as it is written" in str(one.message) for one in caught) == 1


@ONCE
@pytest.mark.parametrize(
    ("config", "words"),
    [
        (lambda: ppo(learner_class=DQNTorchLearner), "learner_class.*PPO"),
        (lambda: ppo(learner_class=TorchLearner), "learner_class"),
        (lambda: dqn(learner_class=asking(DQNTorchLearner), num_atoms=51), "num_atoms=51"),
        (lambda: ppo(learner_class=asking(PPOTorchLearner)).learners(num_learners=1), "num_learners=1"),
    ],
)
def test_what_cannot_be_is_refused(config: Any, words: str) -> None:
    with pytest.raises(HyperparameterError, match=words):
        config().build()


@ONCE
def test_wrong_losses_and_optimizers_are_named() -> None:
    class Rows(PPOTorchLearner):
        def compute_loss_for_module(self, *, batch: Any, **known: Any) -> Any:
            return batch[Columns.ADVANTAGES]

    class Nothing(PPOTorchLearner):
        def configure_optimizers(self) -> None:
            pass

    class Others(PPOTorchLearner):
        def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
            optimizer = torch.optim.Adam(self.module[module_id].pi.parameters())
            self.register_optimizer(optimizer=optimizer, params=self.get_parameters(self.module[module_id].vf))

    with ppo(learner_class=Rows).build() as algo, pytest.raises(PolicyError, match="must be one number"):
        algo.train()
    with pytest.raises(HyperparameterError, match="registers no optimizer"):
        ppo(learner_class=Nothing).build()
    with pytest.raises(HyperparameterError, match="the same parameters"):
        ppo(learner_class=Others).build()


@ONCE
def test_a_module_and_a_loss_of_ones_own_go_together() -> None:
    class Regression(PPOTorchLearner):
        def compute_losses(self, *, fwd_out: Any, batch: Any) -> Any:
            kind = self.module["default_policy"].get_train_action_dist_cls()
            outputs = fwd_out["default_policy"][Columns.ACTION_DIST_INPUTS]
            chosen = kind.from_logits(outputs).logp(batch["default_policy"][Columns.ACTIONS])
            assert self.curr_kl_coeffs_per_module["default_policy"] == pytest.approx(0.2)
            assert self.entropy_coeff_schedulers_per_module["default_policy"].get_current_value() == 0
            return {"default_policy": -(chosen * batch["default_policy"][Columns.ADVANTAGES]).mean()}

    spec = RLModuleSpec(module_class=own.OwnModule, model_config={"hidden": 8})
    config = ppo(learner_class=Regression).rl_module(model_config={}, rl_module_spec=spec)
    with config.build() as algo:
        before = weights(algo)
        algo.train()
        assert not equal(weights(algo), before)


def test_how_far_values_moved_is_reported_without_the_limit() -> None:
    with ppo(vf_clip_param=1e-4).build() as algo:
        limited = algo.train()["learners"]["default_policy"]
    with ppo(vf_clip_param=None).build() as algo:
        free = algo.train()["learners"]["default_policy"]
    assert limited["vf_loss_unclipped"] < limited["vf_loss"]
    assert free["vf_loss_unclipped"] == free["vf_loss"]
    with impala(APPOConfig()).build() as algo:
        assert "vf_loss_unclipped" not in algo.train()["learners"]["default_policy"]
