"""Encodes what the agent knows at a timestep as the input of the sequence model (agent.md 1.1, 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from amago_core.config import Config
from amago_core.nets.layers import Float32Linear, mlp
from amago_core.nets.moments import Moments
from amago_core.sequences import Batch
from amago_core.spaces import ActionCodec, ObservationCodec


class InputNorm(nn.Module):
    """Per-feature normalisation by moving moments.

    Statistics are updated in training mode only, and from the raw input: the paper-time code fed them the normalised
    input. They start from the first batch, not from mean 0 as in that code, where the start still outweighs the spread
    of a large feature after tens of thousands of updates. A feature that hardly varies (sigma <= 0.01) is only centred.
    """

    def __init__(self, features: int, rate: float = 1e-4) -> None:
        super().__init__()
        self.moments = Moments(features, rate)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.moments.update(x.detach())
        sigma = self.moments.variance.clamp(min=1e-5).sqrt()
        sigma = torch.where(sigma <= 0.01, torch.ones_like(sigma), sigma.clamp(max=1e6))
        return ((x - self.moments.mean.to(x.dtype)) / sigma.to(x.dtype)).clamp(-1e4, 1e4)


class TimestepEncoder(nn.Module):
    """Observation, reset flag, previous reward, time, previous action and goals -> one vector (agent.md 1.1, 2).

    Args:
        config: sizes and switches.
        observations, actions: codecs of the environment's spaces.
        time_scale: steps at which the time input is 1; infinity hides the time.
    """

    def __init__(self, config: Config, observations: ObservationCodec, actions: ActionCodec, time_scale: float) -> None:
        super().__init__()
        self.observations, self.actions, self.time_scale = observations, actions, time_scale
        features = observations.features + 3 + actions.size
        self.norm: nn.Module = InputNorm(features) if config.input_norm else nn.Identity()
        goals, of_goal = observations.goal_shape
        self.goal_encoder: nn.Module | None = None
        if goals:
            sizes = (goals * of_goal, 2 * of_goal, config.goal_width)
            self.goal_encoder = nn.Sequential(
                mlp(sizes, config.encoder_activation, first=Float32Linear, last=Float32Linear),
                nn.LayerNorm(config.goal_width),
            )
            features += config.goal_width
        sizes = (features, *config.encoder_hidden, config.encoder_width)
        self.map = nn.Sequential(
            # With eight bits, how far a position has moved since the last timestep would be lost.
            mlp(sizes, config.encoder_activation, first=Float32Linear),
            nn.LayerNorm(config.encoder_width),
        )

    def forward(self, batch: Batch) -> Tensor:
        """N timesteps -> [N, encoder_width]."""
        observation, goals = self.observations.expand(batch.fields)
        time = batch.position / self.time_scale
        known = torch.stack([batch["reset"].float(), batch["reward"], time], dim=1)  # [N, 3]
        x = self.norm(torch.cat([observation, known, self.actions.features(batch["action"])], dim=1))
        if self.goal_encoder is not None:
            x = torch.cat([x, self.goal_encoder(goals)], dim=1)
        out: Tensor = self.map(x)
        return out
