"""Outside baselines: PPO from stable-baselines3 and RecurrentPPO from sb3-contrib as agents of the harness.

They get what AMAGO gets: its inputs, its actions, its time limits. What SB3 does with them is SB3's own.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from amago_core.checkpoint import load_state, save_state
from amago_core.config import Rollout
from amago_core.learner import Diverged
from amago_core.seeding import child, integer_seed
from amago_core.spaces import ActionCodec, ObservationCodec
from benchmarks.agents import sb3_presets
from benchmarks.agents.protocol import AgentSpec, Progress, VectorStep
from results.errors import UserError

try:
    import sb3_contrib
    import stable_baselines3
    from sb3_contrib.common.recurrent.type_aliases import RNNStates
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    known = ", ".join(sb3_presets.PRESETS)
    raise UserError(f"{error}; the agents {known} come with pip install 'amago-bench[sb3]'") from error


class Sb3:
    """PPO or RecurrentPPO, on the CPU, as SB3 recommends for networks of this size.

    Args:
        spec: the run.
        preset: a key of `sb3_presets.PRESETS`.

    Raises:
        UnsupportedSpace: a space that AMAGO cannot train on either.
    """

    resumes = True

    def __init__(self, spec: AgentSpec, preset: str = "sb3-ppo") -> None:
        torch.set_num_threads(spec.threads)
        self.spec = spec
        self.config = sb3_presets.configure(preset, spec.task, spec.tier, spec.settings)
        self._codec = Codec(spec)
        self._slots = Slots(self._codec, spec.num_envs)
        with _global_generators(child(spec.seed, "agent", "weights")):
            self._model = _build(self.config, self._slots)
        self._model.set_logger(Logger(None, []))
        self._clock = Clock()
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
        """One iteration of SB3's own loop, which takes `n_steps` in every slot and learns from them.

        Each iteration has its own random stream, so a checkpoint between two of them stores no generator.
        """
        model, started, collected = self._model, time.perf_counter(), self._clock.collect_s
        try:
            with _global_generators(child(seeds, "iteration", self._iterations)):
                model.learn(self._steps, self._clock, log_interval=None, reset_num_timesteps=False)
        finally:  # SB3 may have raised an error because of them
            if not all(torch.isfinite(weight).all() for weight in model.policy.parameters()):
                raise Diverged(
                    f"training diverged: weights are not finite after {model.num_timesteps} steps; "
                    "try a lower lr, and look for huge rewards or observations"
                )
        self._clock.learn_s += time.perf_counter() - started - (self._clock.collect_s - collected)

    @property
    def _steps(self) -> int:
        """Steps of all slots together in one iteration."""
        return self.config.n_steps * self.spec.num_envs

    @property
    def _iterations(self) -> int:
        return self._model.num_timesteps // self._steps

    def _progress(self) -> Progress:
        config, clock = self.config, self._clock
        passes = self._iterations * config.n_epochs
        metrics = {
            name: float(self._model.logger.name_to_value[f"train/{key}"])
            for name, key in (("critic", "value_loss"), ("policy", "policy_gradient_loss"), ("entropy", "entropy_loss"))
        }
        return Progress(passes * config.minibatches, passes * self._steps, clock.collect_s, clock.learn_s, metrics)

    def act(self, step: VectorStep, memory: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        timestep, hidden = memory or (Timestep(self._codec, len(step.first)), None)
        timestep.begin(step.first)
        inputs = timestep.inputs(step.observation, step.reward, step.first | step.inner_reset)
        with _global_generators(int(rng.integers(2**63))):
            actions, hidden = self._model.predict(inputs, hidden, step.first, not self.spec.task.sample_actions)
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
        """The state of training between two iterations, without SB3's buffer of steps, which each of them refills."""
        model = self._model
        states = getattr(model, "_last_lstm_states", None)
        return {
            "model": model.get_parameters(),
            "env_steps": model.num_timesteps,
            "seen": [model._last_obs, model._last_episode_starts],
            "hidden": None if states is None else [list(states.pi), list(states.vf)],
            "timestep": self._slots.timestep.state(),
            "seconds": [self._clock.collect_s, self._clock.learn_s],
        }

    def _go_on(self, state: Mapping[str, Any], envs: Any) -> None:
        """The inverse of `_training_state`; the weights are loaded already."""
        model = self._model
        model.num_timesteps = state["env_steps"]
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


def _build(config: sb3_presets.PPO, slots: Slots) -> Any:
    """The algorithm, without a `seed`: SB3 would seed the global generators with it and leave them like that."""
    networks: dict[str, Any] = {"net_arch": list(config.hidden)}
    common: dict[str, Any] = {
        "env": slots,
        "device": "cpu",
        "policy_kwargs": networks,
        "learning_rate": config.lr,
        "n_steps": config.n_steps,
        "batch_size": config.n_steps * slots.num_envs // config.minibatches,
        "n_epochs": config.n_epochs,
        "gamma": config.gamma,
        "gae_lambda": config.gae_lambda,
        "clip_range": config.clip_range,
        "ent_coef": config.ent_coef,
        "vf_coef": config.vf_coef,
        "max_grad_norm": config.max_grad_norm,
    }
    if isinstance(config, sb3_presets.RecurrentPPO):
        networks["lstm_hidden_size"] = config.lstm_hidden_size
        return sb3_contrib.RecurrentPPO("MlpLstmPolicy", **common)
    return stable_baselines3.PPO("MlpPolicy", **common)


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


class Codec:
    """The spaces as SB3 sees them: one vector in, an index or a vector in [-1, 1] out."""

    def __init__(self, spec: AgentSpec) -> None:
        task = spec.task
        self.observations, self.actions = ObservationCodec(spec.observation_space), ActionCodec(spec.action_space)
        self.time_scale = Rollout(task.horizon, task.time_limit == "finite").time_scale
        self.finite = task.time_limit == "finite"
        width = self.observations.features + math.prod(self.observations.goal_shape) + 3 + self.actions.size
        self.input_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.output_space = (
            spaces.Discrete(self.actions.size)
            if self.actions.discrete
            else spaces.Box(-1.0, 1.0, self.actions.field.shape, np.float32)
        )


class Timestep:
    """Where B slots stand in their rollouts, and the vectors that describe it: the inputs of AMAGO (agent.md 1.1).

    Unlike AMAGO's they are not normalised, so a finite time goes from 0 to 1, whatever AMAGO divides it by.

    Call `inputs`, `act`, `inputs`, `act`, ...; `begin` starts new rollouts in between.
    """

    def __init__(self, codec: Codec, slots: int) -> None:
        self._codec = codec
        self._position = np.zeros(slots, np.int64)
        self._previous = np.full((slots, *codec.actions.field.shape), codec.actions.blank, codec.actions.field.dtype)

    def begin(self, slots: np.ndarray) -> None:
        """Puts the slots of a mask, bool [B], at the first timestep of a rollout."""
        self._position[slots] = 0
        self._previous[slots] = self._codec.actions.blank

    def inputs(self, observation: Any, reward: np.ndarray, reset: np.ndarray) -> np.ndarray:
        """Observation, reset flag, previous reward, time, previous action: float32 [B, width]."""
        codec = self._codec
        stored = codec.observations.store(observation)
        features, goals = codec.observations.expand({name: torch.from_numpy(field) for name, field in stored.items()})
        known = np.stack([reset, reward, self._position / codec.time_scale], axis=1, dtype=np.float32)
        previous = codec.actions.features(torch.from_numpy(self._previous))
        return torch.cat([features, goals, torch.from_numpy(known), previous], dim=1).numpy()

    def act(self, actions: np.ndarray) -> np.ndarray:
        """Records the policy's actions [B] or [B, A] and returns those of the environment."""
        codec = self._codec.actions
        self._previous = actions.astype(codec.field.dtype)
        self._position += 1
        return codec.to_env(self._previous)

    def state(self) -> list[np.ndarray]:
        return [self._position, self._previous]

    def restore(self, state: Sequence[torch.Tensor]) -> None:
        self._position, self._previous = (part.numpy() for part in state)


class Slots(VecEnv):
    """The environments of the harness as SB3 expects them: a slot that is done resets itself."""

    envs: VectorEnv  # set when learning begins

    def __init__(self, codec: Codec, slots: int) -> None:
        super().__init__(slots, codec.input_space, codec.output_space)
        self._codec = codec
        self.timestep = Timestep(codec, slots)

    def begin(self, slots: np.ndarray) -> np.ndarray:
        """Begins the next rollout in the slots of a mask, bool [B]; inputs [B, width], meaningless for the others."""
        observation, _ = self.envs.reset(options={"reset_mask": slots})
        self.timestep.begin(slots)
        return self.timestep.inputs(observation, np.zeros(self.num_envs, np.float32), slots)

    def reset(self) -> np.ndarray:
        return self.begin(np.ones(self.num_envs, bool))

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = self.timestep.act(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observation, reward, terminated, truncated, info = self.envs.step(self._actions)
        inputs = self.timestep.inputs(observation, reward, info["inner_reset"])
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in done]
        if done.any():
            if not self._codec.finite:  # SB3 bootstraps where this is set, so a finite limit does not set it
                for slot in np.flatnonzero(truncated):
                    infos[slot] = {"TimeLimit.truncated": True, "terminal_observation": inputs[slot]}
            inputs = np.where(done[:, None], self.begin(done), inputs)
        return inputs, reward, done, infos

    def close(self) -> None:
        """Nothing to do: the environments belong to the harness."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs  # SB3 asks for `render_mode`

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Clock(BaseCallback):
    """Total seconds of collecting and of learning."""

    def __init__(self) -> None:
        super().__init__()
        self.collect_s = self.learn_s = 0.0

    def _on_rollout_start(self) -> None:
        self._started = time.perf_counter()

    def _on_rollout_end(self) -> None:
        self.collect_s += time.perf_counter() - self._started

    def _on_step(self) -> bool:
        return True
