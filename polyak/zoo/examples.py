"""The examples at the end of each command's help."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "train": (
        "polyak train --algo ppo --env CartPole-v1",
        "polyak train --algo dqn --env LunarLander-v3 --hyperparams learning_rate=1e-3 batch_size=64",
        "polyak train --algo ppo --env CartPole-v1 --conf-file my_settings.yml",
        "polyak train --algo ppo --env my_env.py:MyEnv --n-envs 8 --vec-env subproc --env-kwargs size=5",
        "polyak train --algo sac --env Pendulum-v1 -n 20000 --eval-freq 5000 --eval-episodes 10",
        "polyak train --algo td3 --env Pendulum-v1 --save-freq 10000 --save-replay-buffer -tb tensorboard",
        "polyak train --algo td3 --env Pendulum-v1 --trained-agent logs/td3/Pendulum-v1_1/Pendulum-v1.zip",
        "polyak train --resume logs/td3/Pendulum-v1_1",
        "polyak train --algo bc --dataset expert.npz",
        "polyak train --algo ppo --env CartPole-v1 --seeds 0..9 --processes 4",
        "polyak train --algo ppo --env CartPole-v1 --track --wandb-project-name cartpole",
        "polyak train --algo ppo --env CartPole-v1 -optimize --n-trials 30",
        "polyak train --algo ppo --env CartPole-v1 --n-envs 8 --n-runners 4 --address auto --working-dir .",
    ),
    "replay-fault": ("polyak replay-fault logs/ppo/CartPole-v1_1",),
    "tune": (
        "polyak tune --algo ppo --env CartPole-v1 -n 20000 --n-trials 30",
        "polyak tune --algo sac --env Pendulum-v1 --seeds 3 --objective iqm --pruner hyperband --n-jobs 2",
        "polyak tune --algo ppo --env CartPole-v1 --ray --address auto --storage /shared/study.journal",
    ),
    "enjoy": (
        "polyak enjoy --algo ppo --env CartPole-v1",
        "polyak enjoy --pretrained --algo sac --env Pendulum-v1",
        "polyak enjoy --algo ppo --env CartPole-v1 --load-best --no-render --record run.gif",
    ),
    "evaluate": (
        "polyak evaluate --algo ppo --env CartPole-v1 -n 100",
        "polyak evaluate --algo ppo --env CartPole-v1 --load-best --stochastic --output json",
    ),
    "export": (
        "polyak export --algo ppo --env CartPole-v1 -o policy.onnx",
        "polyak export model.zip -o policy.pt2",
    ),
    "record-video": ("polyak record-video --algo ppo --env CartPole-v1 -n 500",),
    "record-training": ("polyak record-training --algo ppo --env CartPole-v1 -n 300",),
    "plot": (
        "polyak plot -a ppo -e CartPole-v1 -x steps -y reward -w 50 -o curve.png",
        "polyak plot --kind training -a ppo -e CartPole-v1 -f logs",
        "polyak plot --kind table -a ppo sac -e Pendulum-v1 -f logs -o results",
        "polyak plot --kind file -i results.pkl -o figures/x -b -r -vs",
    ),
    "play": ("polyak play --game connect4 --simulations 400",),
    "report": ("polyak report logs -o report.html",),
    "status": ("polyak status logs", "polyak status logs/ppo/CartPole-v1_3 --json"),
    "board": ("polyak board logs",),
    "benchmark-agents": ("polyak benchmark-agents --organization sb3",),
    "push-to-hub": ("polyak push-to-hub --algo ppo --env CartPole-v1 -orga me",),
    "load-from-hub": ("polyak load-from-hub --algo ppo --env CartPole-v1 -orga sb3",),
    "list": ("polyak list --algo sac --arguments",),
    "gallery": ("polyak gallery", "polyak gallery --output json"),
    "demo": ("polyak demo --output demo",),
    "doctor": ("polyak doctor --quick",),
    "data collect": ("polyak data collect --env Pendulum-v1 --n 10000 --out random.npz",),
    "data show": ("polyak data show random.npz --output random.png",),
    "data convert": ("polyak data convert random.npz random.parquet",),
    "run": ("polyak run train.py --its-own-flag 3", "polyak run -m package.module", "polyak run notebook.ipynb"),
}
"""Examples by the name of the command; those of `polyak train` are one for each panel of its options."""


def epilogue(command: str, everything: bool = True) -> str:
    """Return the end of a command's help: its examples, a line each; or one of them and the flag that shows
    `everything`."""
    lines = EXAMPLES[command]
    if not everything:
        return f"Example: {lines[0]}\n\nAll options: polyak {command} --help-all"
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines])
