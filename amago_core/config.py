"""Every hyper-parameter of the agent, with its unit and its value in the paper; agent.md 1 to 8 explain them.

The defaults are the settings that the paper's experiments share (agent.md 10.1); tasks and presets override some of
them. Flat on purpose: `--set lr=3e-4` names a field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from amago_core.hyperparameters import Hyperparameters, setting

#: Discount lists of the paper-time code (agent.md 4.1). The acting discount `gamma` is appended as the last entry.
DISCRETE_DISCOUNTS = (
    0.7, 0.9, 0.93, 0.95, 0.98, 0.99, 0.992, 0.994, 0.995, 0.997, 0.998, 0.999,
    0.9991, 0.9992, 0.9993, 0.9994, 0.9995,
)  # fmt: skip
CONTINUOUS_DISCOUNTS = (0.9, 0.95, 0.99, 0.993, 0.996)

Activation = Literal["leaky_relu", "relu", "gelu"]


@dataclass(frozen=True)
class Rollout:
    """What the agent is told about its rollouts: facts of the task, not choices."""

    horizon: int  # limit of a rollout, steps
    finite: bool = True  # the horizon ends the value target and the agent sees the time; if not, the target bootstraps
    time_scale: float = math.nan  # steps that make the time input 1; nan: the horizon (POPGym in the paper: 10,000)

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ValueError(f"horizon must be at least one step, not {self.horizon}")
        if math.isnan(self.time_scale):
            object.__setattr__(self, "time_scale", float(self.horizon) if self.finite else math.inf)


@dataclass(frozen=True)
class Config(Hyperparameters):
    """Hyper-parameters of one agent."""

    # Timestep encoder (agent.md 2)
    encoder_hidden: tuple[int, ...] = setting((512, 512), "hidden layers of the timestep encoder", low=1)
    encoder_width: int = setting(256, "width of an encoded timestep; paper: 200 in POPGym", low=1)
    encoder_activation: Activation = setting("leaky_relu", "activation of the timestep encoder")
    input_norm: bool = setting(True, "normalise inputs by their moving mean and variance", also=("normalize_obs",))
    goal_width: int = setting(32, "width of the goals' embedding; 1 hides every goal behind its LayerNorm", low=1)

    # Sequence model (agent.md 3)
    sequence_model: Literal["transformer", "gru", "memoryless"] = setting(
        "transformer", "what remembers", also=("traj_encoder", "memory", "model")
    )
    width: int = setting(
        256, "width of the sequence model", low=1, also=("hidden_size", "hidden_dim", "d_model", "embed_dim")
    )
    layers: int = setting(3, "layers of the sequence model", low=1, also=("n_layers", "num_layers"))
    heads: int = setting(8, "attention heads, which share the width", low=1, also=("n_heads", "num_heads"))
    dropout: float = setting(0.05, "on the embedded input and behind the second feed-forward map", low=0, high=0.99)
    sequence_activation: Activation = setting("leaky_relu", "activation of the sequence model", also=("activation",))
    sigma_reparam: bool = setting(True, "scale the Transformer's maps by their spectral norm")
    normformer: bool = setting(True, "both extra LayerNorms of a Transformer layer")
    head_scaling: bool = setting(True, "a learned factor for each attention head")
    positions: Literal["learned", "sinusoidal", "rotary"] = setting(
        "learned", "all but rotary show the timestep", also=("pos_emb", "pos_encoding")
    )
    context: int = setting(
        0, "transitions in a training slice, timesteps a Transformer acts on; 0: the whole rollout",
        low=0, also=("seq_len", "max_seq_len", "context_length", "sequence_length"),
    )  # fmt: skip
    attention: Literal["auto", "reference", "sdpa", "blocked", "flash"] = setting(
        "auto", "how attention is computed, which changes rounding only"
    )

    # Actor and critics (agent.md 4)
    actor_critic_hidden: tuple[int, ...] = setting(
        (256, 256), "hidden layers of the actor and of each critic", low=1, also=("net_arch", "hidden_sizes", "hidden")
    )
    actor_critic_activation: Activation = setting("leaky_relu", "activation of actor and critics")
    critics: int = setting(4, "critics in the ensemble", low=1, also=("n_critics", "num_critics"))
    gamma: float = setting(0.999, "discount of the acting policy, in [0, 1)", also=("discount", "discount_factor"))
    discounts: tuple[float, ...] | None = setting(
        None, "trained beside gamma; none: the paper's list for the kind of action", also=("gammas",)
    )

    # Losses (agent.md 5)
    reward_multiplier: float = setting(
        10.0, "of rewards, in the losses only; 100 in POPGym and T-Maze", also=("reward_scale",)
    )
    online_weight: float = setting(1.0, "weight of the actor's online loss", low=0)
    offline_weight: float = setting(0.1, "weight of filtered behaviour cloning", low=0, also=("bc_weight", "bc_coef"))
    critic_weight: float = setting(10.0, "weight of the critic loss", low=0, also=("vf_coef", "value_coef"))
    advantage_threshold: float = setting(1e-3, "actions with more advantage are cloned; raw critic units")
    popart_rate: float = setting(5e-4, "step of PopArt's statistics per update", low=1e-6, high=1)

    # Optimisation (agent.md 6)
    lr: float = setting(1e-4, "learning rate of AdamW", low=0, also=("learning_rate", "actor_lr", "critic_lr"))
    warmup_updates: int = setting(
        10_000, "updates in which the learning rate rises from 0, linearly", low=0, also=("warmup_steps", "lr_warmup")
    )
    weight_decay: float = setting(1e-3, "of AdamW, on all parameters", low=0, also=("l2", "wd"))
    gradient_clip: float = setting(  # a limit of 0 would stop all learning, not turn clipping off
        1.0, "largest global norm of the summed gradient", low=1e-6, also=("max_grad_norm", "grad_clip", "clip_grad")
    )
    tau: float = setting(
        0.003, "step of the target networks towards the trained ones per update; 0.0025 in POPGym",
        low=0, high=1, also=("target_update", "target_update_rate", "polyak", "soft_update"),
    )  # fmt: skip
    dtype: Literal["float32", "bfloat16"] = setting(
        "float32", "of learning; bfloat16 brings TF32 with it", also=("precision",)
    )
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "auto: the GPU where there is one")

    # Data (agent.md 8)
    batch_sequences: int = setting(24, "sequences in a batch", low=1, also=("batch_size",))
    batch_tokens: int = setting(
        1_000_000, "tokens in a batch, which is closed before the sequence that would exceed this", low=1
    )
    steps_per_iteration: int = setting(
        1000, "collected in every slot before a round of updates", low=1, also=("n_steps", "train_freq", "num_steps")
    )
    updates_per_iteration: int = setting(
        1000, "updates in a round", low=0, also=("gradient_steps", "updates_per_step", "utd_ratio")
    )
    warmup_iterations: int = setting(
        0, "iterations collected before the first update", low=0, also=("learning_starts", "start_learning")
    )
    replay_trajectories: int = setting(
        20_000, "rollouts that the replay keeps; paper: 80,000 in POPGym",
        low=1, also=("buffer_size", "replay_size", "replay_capacity", "capacity"),
    )  # fmt: skip
    replay_tokens: int = setting(20_000_000, "tokens that the replay keeps, allocated in full", low=1)
    replay_sampling: Literal["trajectory", "transition"] = setting(
        "trajectory", "draw uniformly over rollouts, as in the paper, or over their transitions"
    )

    # Exploration (agent.md 7)
    sample_actions: bool = setting(True, "sample the policy in training; false: its mode")
    epsilon_start: tuple[float, float] = setting(
        (1.0, 0.05), "random actions at the start of a rollout: share at the start and at the end of the schedule",
        low=0, high=1, also=("epsilon", "eps", "exploration_initial_eps"),
    )  # fmt: skip
    epsilon_end: tuple[float, float] = setting(
        (0.8, 0.01), "the same at the end of a rollout; equal to epsilon_start: plain epsilon-greedy",
        low=0, high=1, also=("exploration_final_eps", "epsilon_final"),
    )  # fmt: skip
    anneal_steps: int = setting(
        1_000_000, "length of the schedule, steps in each slot", low=1, also=("exploration_steps", "epsilon_decay")
    )
    corridor_epsilon: float | None = setting(
        None, "share of random actions in the corridor of a T-Maze, constant; none: the schedule everywhere",
        low=0, high=1,
    )  # fmt: skip
    corridor_ends: tuple[int, int] = setting(
        (1, 3), "steps before and after the corridor, which keep the schedule", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.actor_critic_hidden:
            raise ValueError("actor_critic_hidden needs at least one hidden layer")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        for gamma in (*(self.discounts or ()), self.gamma):
            if not 0 <= gamma < 1:
                raise ValueError(f"discounts must lie in [0, 1), not {gamma}")

    def all_discounts(self, discrete: bool) -> tuple[float, ...]:
        """The trained discounts, `gamma` last even where it repeats an entry (agent.md 4.1)."""
        listed = self.discounts
        if listed is None:
            listed = DISCRETE_DISCOUNTS if discrete else CONTINUOUS_DISCOUNTS
        return (*listed, self.gamma)
