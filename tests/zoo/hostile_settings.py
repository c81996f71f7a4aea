"""Settings, run folders and command lines made to do harm; `test_hostile_settings` has the commands meet them.

``CANARY`` stands for the path of a file that would come to be if code was run, or a file was written where none may be.
"""

from __future__ import annotations

TOUCH = "touch CANARY"


def alias_bomb(width: int = 9) -> str:
    """A few lines that stand for 9**8 values."""
    lines = ["env_kwargs:", f"  a: &a [{', '.join('x' * width)}]"]
    lines += [f"  {c}: &{c} [{', '.join([f'*{p}'] * width)}]" for p, c in zip("abcdefg", "bcdefgh", strict=True)]
    return "\n".join(lines)


def merge_bomb(width: int = 9) -> str:
    """The same with mappings that are merged."""
    lines = ["x: &a {k: 1}"]
    lines += [
        f"{c}{c}: &{c} {{<<: [{', '.join([f'*{p}'] * width)}]}}" for p, c in zip("abcdefg", "bcdefgh", strict=True)
    ]
    return "\n".join(lines)


#: Blocks of settings that commands which make environments refuse -> what the message has, beside the file.
OF_ENVIRONMENTS: dict[str, tuple[str, str]] = {
    "a builtin": ("env_wrapper: [{builtins.eval: {}}]", "env_wrapper names 'builtins.eval'"),
    "a chain of builtins": (
        "env_wrapper: [builtins.vars, {builtins.max: {key: x}}, builtins.eval]",
        "env_wrapper names 'builtins.vars'",
    ),
    "a shell": ("env_wrapper: [{os.system: {command: 'TOUCH'}}]", "env_wrapper names 'os.system'"),
    "a program": ("env_wrapper: [{subprocess.Popen: {args: 'TOUCH', shell: true}}]", "names 'subprocess.Popen'"),
    "a colon": ("env_wrapper: 'os:system'", "env_wrapper names 'os:system'"),
    "an archive of code": ("env_wrapper: pickle.loads", "names 'pickle.loads'"),
    "a module beside the logs": ("env_wrapper: beside.Wrapper", "names 'beside.Wrapper'"),
    "a peer's name beside the logs": ("env_wrapper: rl_zoo3.beside.Wrapper", "names 'rl_zoo3.beside.Wrapper'"),
    "a package with environments beside the logs": ("env_wrapper: minigrid.Wrapper", "names 'minigrid.Wrapper'"),
    "through a module of ours": ("env_wrapper: polyak.zoo.seeds.subprocess.call", "polyak.zoo.seeds.subprocess"),
    "through a module of gymnasium's": ("env_wrapper: gymnasium.core.np.load", "gymnasium.core.np"),
    "a function of ours": (
        "env_wrapper: [{polyak.checkpoint.serialise.decode: {trust: true}}]",
        "names 'polyak.checkpoint.serialise.decode', which is not a subclass of Wrapper",
    ),
    "a class of ours": ("env_wrapper: polyak.envs.DummyVecEnv", "which is not a subclass of Wrapper"),
    "a function of gymnasium's": ("env_wrapper: [{gymnasium.make: {id: 'beside:X-v0'}}]", "gymnasium.make"),
    "what was imported elsewhere": (
        "env_wrapper: polyak.zoo.literals.import_name",
        "names 'polyak.zoo.literals.import_name', code",
    ),
    "a private module": ("env_wrapper: polyak.__main__.main", "names 'polyak.__main__.main'"),
    "a module that changes the program": ("env_wrapper: polyak.compat.startup.sitecustomize.X", "sitecustomize"),
    "a vector's wrapper for one": ("env_wrapper: polyak.envs.VecNormalize", "not a subclass of Wrapper"),
    "a wrapper for a vector": ("vec_env_wrapper: polyak.envs.FrameSkip", "not a subclass of VecEnvWrapper"),
    "a shell for a vector": ("vec_env_wrapper: os.system", "vec_env_wrapper names 'os.system'"),
    "a loader for a vector": ("vec_env_wrapper: [{polyak.envs.VecNormalize.load: {}}]", "vec_env_wrapper"),
    "a file to write": ("env_wrapper: [{polyak.envs.Monitor: {filename: CANARY}}]", "filename='CANARY"),
    "a file here": ("env_wrapper: [{polyak.envs.Monitor: {filename: canary}}]", "filename='canary'"),
    "a file of a peer's": (
        "env_wrapper: [{stable_baselines3.common.monitor.Monitor: {filename: CANARY}}]",
        "filename='CANARY",
    ),
    "a file for a vector": ("vec_env_wrapper: [{polyak.envs.VecMonitor: {filename: CANARY}}]", "filename='CANARY"),
    "a folder to write": (
        "env_wrapper: [{gymnasium.wrappers.RecordVideo: {video_folder: CANARY}}]",
        "video_folder='CANARY",
    ),
    "a folder for a vector": (
        "vec_env_wrapper: [{polyak.envs.VecVideoRecorder: {video_folder: CANARY, record_video_trigger: x}}]",
        "video_folder='CANARY",
    ),
    "a function by its name": (
        "env_wrapper: [{gymnasium.wrappers.TransformReward: {func: os.system}}]",
        "func='os.sys",
    ),
    "the monitor's file": ("monitor_kwargs: {filename: CANARY}", "monitor_kwargs: filename='CANARY"),
    "the monitor's file as text": ("monitor_kwargs: \"dict(filename='CANARY')\"", "monitor_kwargs: filename='CANARY"),
    "a file to read": ("env_kwargs: {xml_file: /etc/passwd}", "env_kwargs: xml_file='/etc/passwd'"),
    "a file of the user's": ("env_kwargs: {desc: '~/secrets'}", "desc='~/secrets'"),
    "a file above": ("env_kwargs: {map_name: ../canary}", "map_name='../canary'"),
    "code for an environment": ("env_kwargs: {config: {vehicle: os.system}}", "vehicle='os.system'"),
    "an environment of a module": ("env_kwargs: {inner: 'beside:X-v0'}", "inner='beside:X-v0'"),
    "arguments that are a list": ("env_kwargs: [1, 2]", "env_kwargs must"),
    "a number for the name of an argument": ("env_kwargs: {1: 2}", "env_kwargs"),
    "Python's object": ("!!python/object/apply:os.system ['TOUCH']", "Python objects are refused"),
    "Python's name": ("env_wrapper: !!python/name:os.system", "Python objects are refused"),
    "Python's module": ("env_kwargs: {a: !!python/module:beside ''}", "Python objects are refused"),
    "Python's new object": ("a: !!python/object/new:os.system ['TOUCH']", "Python objects are refused"),
    "an object among the Zoo's": (
        "!!python/object/apply:collections.OrderedDict\n- - - a\n    - !!python/object/apply:os.system [TOUCH]",
        "Python objects are refused",
    ),
    "an expression": ("env_kwargs: \"dict(a=__import__('os').system('TOUCH'))\"", "Cannot read the value"),
    "aliases that multiply": (alias_bomb(), "aliases count each time"),
    "merges that multiply": (merge_bomb(), "aliases count each time"),
    "what contains itself": ("env_kwargs: &a {b: *a}", "it contains itself"),
    "a list of itself": ("env_wrapper: &a [*a]", "it contains itself"),
    "a merge of itself": ("env_kwargs: &a\n  <<: *a", "it contains itself"),
    "depth": (f"env_kwargs: {'[' * 2000}{']' * 2000}", "within each other"),
    "depth that never ends": (f"env_kwargs: {'[' * 90_000}", "within each other"),
    "depth in text": (f"env_kwargs: '{'[' * 5000}{']' * 5000}'", "Cannot read the value"),
    "width": (f"env_kwargs: [{'1, ' * 30_000}]", "keys and values"),
    "length": (f"env_kwargs: {{a: '{'x' * 200_000}'}}", "characters"),
    "5,000 digits": (f"frame_stack: {'9' * 5000}", "digits"),
    "5,000 digits in text": (f"env_kwargs: {{a: '{'9' * 5000}'}}", "digits"),
    "20 digits": (f"frame_stack: {'9' * 20}", "digits"),
    "a truth value for a name": ("yes: 1", "in quotes"),
    "nothing for a name": ("~: 1", "in quotes"),
    "a truth value for an argument": ("env_kwargs: {on: 1}", "in quotes"),
    "a list for a name": ("? [a]\n: 1", "unhashable"),
    "bytes": ("env_kwargs: {a: !!binary aGk=}", "Python objects are refused"),
    "a number that is none": ("frame_stack: !!int x", "Cannot read"),
    "a truth value that is none": ("env_kwargs: {a: !!bool x}", "Cannot read"),
    "a million frames": ("frame_stack: 1000000", "frame_stack must be at most 1,000"),
    "frames without end": ("frame_stack: .inf", "frame_stack must be a whole number"),
    "frames that are no number": ("frame_stack: .nan", "frame_stack must be a whole number"),
    "a billion frames of a wrapper": (
        "env_wrapper: [{gymnasium.wrappers.FrameStackObservation: {stack_size: 1000000000}}]",
        "stack_size=1000000000 is a number beyond 1,000",
    ),
    "a billion frames for a vector": (
        "vec_env_wrapper: [{polyak.envs.VecFrameStack: {n_stack: 1000000000}}]",
        "n_stack=1000000000 is a number beyond 1,000",
    ),
    "a long history": ("env_wrapper: [{rl_zoo3.wrappers.HistoryWrapper: {horizon: 1000000000}}]", "horizon=1000000000"),
    "a step without end": ("env_wrapper: [{rl_zoo3.wrappers.FrameSkip: {skip: 1000000000000}}]", "skip=1000000000000"),
    "a huge image": ("env_wrapper: [{gymnasium.wrappers.ResizeObservation: {shape: [99999, 99999]}}]", "shape=[99"),
    "two names in one": ("env_wrapper: [{a.b: {}, c.d: {}}]", "neither an import path"),
    "a number for a wrapper": ("env_wrapper: [3]", "neither an import path"),
    "normalisation by a file": ("normalize: {path: CANARY}", "path='CANARY"),
}

#: Blocks that are refused when an environment is made.
OF_BUILDING: dict[str, tuple[str, str]] = {
    "a reward that is a word": ("env_wrapper: [{polyak.envs.LearnedReward: {reward: x}}]", "reward='x'"),
    "a class to pickle": ("env_wrapper: [{polyak.envs.FrameSkip: {skip: nn.ReLU}}]", "FrameSkip"),
    "an argument twice": ("env_kwargs: {id: CartPole-v1}", "env"),
    "an argument that is not there": ("env_kwargs: {no_such: 1}", "no_such"),
    "a wrapper with the wrong arguments": ("env_wrapper: [{polyak.envs.FrameSkip: {skip: x}}]", "FrameSkip"),
    "a wrapper with no such argument": ("env_wrapper: [{polyak.envs.FrameSkip: {trust: true}}]", "trust"),
}

#: Blocks that only training and `load-from-hub` read.
OF_TRAINING: dict[str, tuple[str, str]] = {
    "a callback that is a program": ("callback: [{subprocess.call: {args: 'TOUCH', shell: true}}]", "subprocess.call"),
    "a callback that is a function": ("callback: polyak.zoo.train.train", "names 'polyak.zoo.train.train', code"),
    "a callback that is a wrapper": ("callback: polyak.envs.FrameSkip", "not a subclass of BaseCallback"),
    "checkpoints elsewhere": (
        "callback: [{stable_baselines3.common.callbacks.CheckpointCallback: {save_freq: 1, save_path: CANARY}}]",
        "save_path='CANARY",
    ),
    "evaluations elsewhere": (
        "callback: [{polyak.callbacks.evaluating.EvalCallback: {eval_env: CartPole-v1, log_path: canary}}]",
        "log_path='canary'",
    ),
    "evaluations of a module": (
        "callback: [{polyak.callbacks.evaluating.EvalCallback: {eval_env: 'beside:X-v0'}}]",
        "eval_env='beside:X-v0' is neither a plain word",
    ),
    "a callback of a callback": (
        "callback: [{polyak.callbacks.periodic.EveryNTimesteps: {n_steps: 1, callback: os.system}}]",
        "callback='os.system' is neither a plain word",
    ),
    "a policy that is a shell": ("policy: os.system", "policy names 'os.system'"),
    "a policy that is a function": ("policy: polyak.zoo.train.train", "names 'polyak.zoo.train.train', code"),
    "a policy that is a wrapper": ("policy: polyak.envs.FrameSkip", "not a subclass of Policy"),
    "a policy beside the logs": ("policy: beside.Policy", "policy names 'beside.Policy'"),
}

#: Blocks that only training refuses: they matter when a model is made.
OF_MODELS: dict[str, tuple[str, str]] = {
    "an encoder by its name": (
        "policy_kwargs: {features_extractor_class: beside.Net}",
        "='beside.Net' is neither a plain word",
    ),
    "a module for an encoder": ("policy_kwargs: 'dict(features_extractor_class=os.system)'", "os.system"),
    "tensorboard elsewhere": ("tensorboard_log: CANARY", "tensorboard_log='CANARY"),
    "passes without end": ("n_epochs: 1000000000000", "n_epochs=1000000000000 is a number beyond 10,000"),
    "a million environments": ("n_envs: 1000000", "n_envs must be at most 1,000, got 1000000"),
    "environments without end": ("n_envs: .inf", "n_envs must be a whole number"),
    "environments that are no number": ("n_envs: .nan", "n_envs must be a whole number"),
    "steps without end": ("n_timesteps: 1.0e+300", "n_timesteps must be at most"),
    "wide layers": ("policy_kwargs: {net_arch: [7000, 7000]}", "weights"),
    "wide layers in text": ("policy_kwargs: 'dict(net_arch=dict(pi=[7000, 7000], vf=[7000, 7000]))'", "weights"),
    "many layers": (f"policy_kwargs: {{net_arch: [{', '.join(['2'] * 5000)}]}}", "more than 1,000 items"),
    "layers that no memory holds": (
        "policy_kwargs: {net_arch: [10000000, 10000000]}",
        "net_arch=10000000 is a number beyond 1,000,000",
    ),
    "a large memory": ("policy_kwargs: {memory: lstm, memory_size: 4000}", "weights"),
    "a deep memory": ("policy_kwargs: {memory: lstm, memory_size: 2, memory_layers: 100000}", "tensors"),
    "noise without end": ("noise_type: normal\nnoise_std: .inf", "noise"),
    "a rollout that nothing holds": ("n_steps: 100000000000000", "n_steps"),
}

#: Contents of args.yml that commands on run folders, and `load-from-hub`, refuse -> what the message has.
ARGUMENTS: dict[str, tuple[str, str]] = {
    "a file for an environment": ("env: beside.py:CartPole-v1", "env names 'beside.py:CartPole-v1', code"),
    "a file in the logs": ("env: logs/ppo/CartPole-v1_1/evil.py:CartPole-v1", "env names 'logs/ppo/CartPole-v1_1/evil"),
    "a module for an environment": ("env: beside:CartPole-v1", "env names 'beside:CartPole-v1', code"),
    "a module of Python's": ("env: 'antigravity:CartPole-v1'", "env names 'antigravity:CartPole-v1'"),
    "a package to import": ("gym_packages: [beside]", "gym_packages names 'beside', code"),
    "a package of Python's": ("gym_packages: [this]", "gym_packages names 'this', code"),
    "a word for packages": ("gym_packages: beside", "gym_packages must be a list"),
    "a number for packages": ("gym_packages: [3]", "gym_packages must be a list"),
    "an environment's file": ("env_kwargs: {xml_file: /etc/passwd}", "env_kwargs: xml_file='/etc/passwd'"),
    "an environment's code": ("env_kwargs: {kind: os.system}", "kind='os.system' is neither a plain word"),
    "a list of arguments": ("env_kwargs: [1]", "env_kwargs must map"),
    "a huge number": ("env_kwargs: {width: 1000000000}", "width=1000000000 is a number beyond"),
    "Python in the arguments": ("env: !!python/object/apply:os.system [TOUCH]", "Python objects are refused"),
    "arguments that contain themselves": ("env_kwargs: &a [*a]", "it contains itself"),
}

#: Words for the command line -> what the message has.
COMMAND_LINES: dict[str, str] = {
    "train --n-envs 1000000": "--n-envs must be at most 100,000, got 1000000",
    "train --n-envs 5000 --vec-env subproc": "n_envs must be at most 1,024, got 5000",
    "train --n-eval-envs 1000000": "--n-eval-envs must be at most 100,000",
    "train --processes 1000000 --seeds 0..3": "--processes must be at most 1,024",
    "train --num-threads 1000000": "--num-threads must be at most 1,024",
    "train --seeds 0..99999999999": "at most 10,000 seeds",
    "train -params frame_stack:1000000": "frame_stack must be at most 1,000",
    "train -params n_envs:1000000": "n_envs must be at most 100,000",
    "tune --n-jobs 1000000": "--n-jobs must be at most 1,024",
    "tune --seeds 1000000": "--seeds must be at most 10,000",
    "enjoy --n-envs 1000000": "--n-envs must be at most 100,000",
    "record-video --n-envs 1000000": "--n-envs must be at most 100,000",
    "data collect --n-envs 1000000 -e CartPole-v1 -o x.npz": "--n-envs must be at most 100,000",
}
