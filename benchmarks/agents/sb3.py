"""The algorithms of stable-baselines3 and sb3-contrib as agents of the harness.

They get what AMAGO gets: its inputs, its actions, its time limits. What SB3 does with them is SB3's own. Two are
baselines with settings of ours, `sb3-ppo` and `sb3-recurrent-ppo`; the others are `sb3:DQN` and the like, with SB3's.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from amago_core.checkpoint import load_state, save_state
from amago_core.learner import Diverged
from amago_core.seeding import child, integer_seed
from benchmarks.agents import sb3_presets
from benchmarks.agents.protocol import AgentSpec, Progress, VectorStep
from results.errors import UserError

try:
    import sb3_contrib
    import stable_baselines3
    from sb3_contrib.common.recurrent.type_aliases import RNNStates
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
except ImportError as error:
    known = ", ".join(sb3_presets.PRESETS)
    raise UserError(f"{error}; the agents {known} and sb3:... come with pip install 'amago-bench[sb3]'") from error

from benchmarks.agents import sb3_algorithms
from benchmarks.agents.sb3_slots import Codec, Slots, Timestep

#: What we call a loss -> what SB3's algorithms call it; the first that there is (of PPO, `train/loss` is the sum).
LOSSES = {
    "critic": ("train/value_loss", "train/critic_loss", "train/loss"),
    "policy": ("train/policy_gradient_loss", "train/policy_loss", "train/actor_loss", "train/policy_objective"),
    "entropy": ("train/entropy_loss",),
}
#: Counters, and what DQN explores by, which `get_parameters` leaves out; not every algorithm has all of them.
COUNTERS = ("num_timesteps", "_n_updates", "_n_calls", "exploration_rate")
REPLAY = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


class Sb3:
    """An algorithm on the CPU, as SB3 recommends for networks of this size.

    Args:
        spec: the run.
        preset: a key of `sb3_presets.PRESETS`, or `sb3:` and the name of an algorithm.

    Raises:
        UnsupportedSpace: a space that AMAGO cannot train on either.
        UserError: SB3 refuses the space of actions or a setting.
    """

    resumes = True
    learns = True

    def __init__(self, spec: AgentSpec, preset: str = "sb3-ppo") -> None:
        torch.set_num_threads(spec.threads)
        self.spec = spec
        module = sb3_presets if preset in sb3_presets.PRESETS else sb3_algorithms
        self.config = module.configure(preset, spec.task, spec.tier, spec.settings)
        self._codec = Codec(spec)
        self._slots = Slots(self._codec, spec.num_envs)
        try:
            with _global_generators(child(spec.seed, "agent", "weights")):
                self._model = _build(self.config, self._slots)
        except (AssertionError, TypeError, ValueError) as error:
            what = str(error).partition("\n")[0]
            raise UserError(
                f"agent {preset} cannot be built for {spec.task.id} ({spec.action_space} actions): {what}"
            ) from error
        self._model.set_logger(Logger(None, []))
        self._clock = Clock(spec.env_steps)
        self._off_policy = isinstance(self._model, OffPolicyAlgorithm)
        self._learning = False
        self._state: dict[str, Any] | None = None  # of the training to resume

    def learn(self, envs: VectorEnv, seeds: np.random.SeedSequence) -> Iterator[Progress]:
        self._slots.envs = envs
        if self._state is not None:
            self._go_on(self._state, envs)
        self._state = None
        self._learning = True
        try:
            while True:
                self._iterate(seeds)
                yield self._progress()
        finally:
            self._learning = False  # what is saved from now on is the trained policy

    def _iterate(self, seeds: np.random.SeedSequence) -> None:
        """One iteration of SB3's own loop, which takes a few steps in every slot and then learns.

        Each iteration has its own random stream, so a checkpoint between two of them stores no generator.
        """
        model, started, collected = self._model, time.perf_counter(), self._clock.collect_s
        stream = child(seeds, "iteration", model.num_timesteps // self._steps)
        model.action_space.seed(integer_seed(child(stream, "actions")))  # random actions come from there
        try:
            with _global_generators(stream):
                model.learn(self._steps, self._clock, log_interval=None, reset_num_timesteps=False)
        finally:  # SB3 may have raised an error because of them
            if not all(torch.isfinite(weight).all() for weight in model.policy.parameters()):
                raise Diverged(
                    f"training diverged: weights are not finite after {model.num_timesteps} steps; "
                    "try a lower learning rate, and look for huge rewards or observations"
                )
        self._clock.learn_s += time.perf_counter() - started - (self._clock.collect_s - collected)

    @property
    def _steps(self) -> int:
        """Steps of all slots together in one iteration."""
        model = self._model
        return (model.train_freq.frequency if self._off_policy else model.n_steps) * self.spec.num_envs

    def _progress(self) -> Progress:
        """SB3 counts as updates what it draws from a replay, or passes over what it has just collected."""
        model, clock, values = self._model, self._clock, self._model.logger.name_to_value
        updates = model._n_updates * (math.ceil(self._steps / model.batch_size) if hasattr(model, "n_epochs") else 1)
        tokens = model._n_updates * (model.batch_size if self._off_policy else self._steps)
        found = {name: [key for key in keys if key in values] for name, keys in LOSSES.items()}
        metrics = {name: float(values[keys[0]]) for name, keys in found.items() if keys}
        values.clear()  # TD3 does not learn its policy every time, and an old loss is none of this report
        return Progress(updates, tokens, clock.collect_s, clock.learn_s, metrics)

    def act(self, step: VectorStep, memory: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        timestep, hidden = memory or (Timestep(self._codec, len(step.first)), None)
        timestep.begin(step.first)
        inputs = timestep.inputs(step.observation, step.reward, step.first | step.inner_reset)
        with _global_generators(int(rng.integers(2**63))):
            # Not the model's own `predict`, in which DQN explores.
            policy, mode = self._model.policy, not self.spec.task.sample_actions
            actions, hidden = policy.predict(inputs, hidden, step.first, mode)
        return timestep.act(actions), (timestep, hidden)

    def save(self, folder: Path) -> None:
        if self._learning:
            save_state(folder / "training.pt", self._training_state())
        else:
            save_state(folder / "agent.pt", {"policy": self._model.policy.state_dict()})

    def load(self, folder: Path) -> None:
        if (folder / "training.pt").exists():
            self._state = load_state(folder / "training.pt")
            self._model.set_parameters(self._state["model"])
        else:
            self._model.policy.load_state_dict(load_state(folder / "agent.pt")["policy"])

    def _training_state(self) -> dict[str, Any]:
        """The state of training between two iterations, without a buffer of steps that each of them refills."""
        model = self._model
        states = getattr(model, "_last_lstm_states", None)
        return {
            "model": model.get_parameters(),
            "variables": {name: getattr(model, name).detach() for name in model._get_torch_save_params()[1]},
            "counters": {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)},
            "replay": _replay_state(model.replay_buffer) if self._off_policy else None,
            "seen": [model._last_obs, model._last_episode_starts],
            "hidden": None if states is None else [list(states.pi), list(states.vf)],
            "timestep": self._slots.timestep.state(),
            "seconds": [self._clock.collect_s, self._clock.learn_s],
        }

    def _go_on(self, state: Mapping[str, Any], envs: Any) -> None:
        """The inverse of `_training_state`; the weights are loaded already."""
        model = self._model
        for name, value in state["variables"].items():
            getattr(model, name).data.copy_(value)
        for name, value in state["counters"].items():
            setattr(model, name, value)
        if self._off_policy:
            _refill(model.replay_buffer, state["replay"])
        model._last_obs, model._last_episode_starts = (part.numpy() for part in state["seen"])
        if state["hidden"] is not None:
            model._last_lstm_states = RNNStates(*(tuple(pair) for pair in state["hidden"]))
        self._slots.timestep.restore(state["timestep"])
        self._clock.collect_s, self._clock.learn_s = state["seconds"]
        if envs.needs_reset.any():
            lost = envs.needs_reset.copy()
            model._last_obs = np.where(lost[:, None], self._slots.begin(lost), model._last_obs)
            model._last_episode_starts = model._last_episode_starts | lost

    def describe(self) -> Mapping[str, Any]:
        parameters = sum(weight.numel() for weight in self._model.policy.parameters())
        return {"parameters": parameters, "device": "cpu", "attention": "none", "dtype": "float32"}


def _build(config: sb3_presets.PPO | sb3_algorithms.Arguments, slots: Slots) -> Any:
    """The algorithm, without a `seed`: SB3 would seed the global generators with it and leave them like that."""
    if isinstance(config, sb3_algorithms.Arguments):
        algorithm, arguments = config.algorithm, config.arguments()
    else:
        recurrent = isinstance(config, sb3_presets.RecurrentPPO)
        algorithm = sb3_contrib.RecurrentPPO if recurrent else stable_baselines3.PPO
        arguments = _ppo_arguments(config, slots.num_envs)
    policy = "MlpLstmPolicy" if algorithm is sb3_contrib.RecurrentPPO else "MlpPolicy"
    return algorithm(policy, slots, device="cpu", **arguments)


def _ppo_arguments(config: sb3_presets.PPO, slots: int) -> dict[str, Any]:
    lstm = {"lstm_hidden_size": config.lstm_hidden_size} if isinstance(config, sb3_presets.RecurrentPPO) else {}
    return {
        "policy_kwargs": {"net_arch": list(config.hidden), **lstm},
        "learning_rate": config.lr,
        "n_steps": config.n_steps,
        "batch_size": config.n_steps * slots // config.minibatches,
        "n_epochs": config.n_epochs,
        "gamma": config.gamma,
        "gae_lambda": config.gae_lambda,
        "clip_range": config.clip_range,
        "ent_coef": config.ent_coef,
        "vf_coef": config.vf_coef,
        "max_grad_norm": config.max_grad_norm,
    }


def _replay_state(buffer: Any) -> dict[str, Any]:
    filled = buffer.buffer_size if buffer.full else buffer.pos
    return {"pos": buffer.pos, "full": buffer.full, **{name: getattr(buffer, name)[:filled] for name in REPLAY}}


def _refill(buffer: Any, state: Mapping[str, Any]) -> None:
    buffer.pos, buffer.full = state["pos"], state["full"]
    for name in REPLAY:
        getattr(buffer, name)[: len(state[name])] = state[name].numpy()


@contextlib.contextmanager
def _global_generators(stream: np.random.SeedSequence | int) -> Iterator[None]:
    """SB3 draws from the global generators of PyTorch and NumPy: seeds them from a stream, then restores them.

    SB3 would only seed Python's own generator, and it is not given a seed.
    """
    numpy_state = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(integer_seed(child(stream, "torch")))
        np.random.set_state(np.random.MT19937(child(stream, "numpy")).state)  # type: ignore[arg-type]
        try:
            yield
        finally:
            np.random.set_state(numpy_state)


class Clock(BaseCallback):
    """Total seconds of collecting and of learning; and the budget, by which DQN's exploration falls."""

    def __init__(self, env_steps: int) -> None:
        super().__init__()
        self.collect_s = self.learn_s = 0.0
        self._env_steps = env_steps

    def _on_training_start(self) -> None:
        self.model._total_timesteps = self._env_steps  # SB3 takes the end of the iteration for that of training

    def _on_rollout_start(self) -> None:
        self._started = time.perf_counter()

    def _on_rollout_end(self) -> None:
        self.collect_s += time.perf_counter() - self._started

    def _on_step(self) -> bool:
        return True
