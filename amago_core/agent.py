"""The AMAGO agent: one sequence model under an actor-critic, and the losses of the paper line by line (agent.md 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from amago_core.config import Config, Rollout
from amago_core.nets import attention
from amago_core.nets.actor_critic import ActorCritic, ContinuousActorCritic, DiscreteActorCritic, check_table
from amago_core.nets.encoders import TimestepEncoder
from amago_core.nets.popart import PopArt
from amago_core.nets.recurrent import GRU, Memoryless
from amago_core.nets.sequence_model import SequenceModel
from amago_core.nets.transformer import Transformer
from amago_core.seeding import child, integer_seed, torch_generator
from amago_core.sequences import Batch
from amago_core.spaces import ActionCodec, ObservationCodec


@dataclass(frozen=True)
class Losses:
    """The loss and its parts, scalars."""

    total: Tensor
    critic: Tensor
    online: Tensor
    offline: Tensor
    accepted: Tensor  # share of transitions that the advantage filter lets through
    value: Tensor  # mean target in units of scaled return, at the acting discount


class Agent(nn.Module):
    """Networks and losses.

    Args:
        config: hyper-parameters.
        observation_space, action_space: of one environment.
        rollout: horizon and time limit of the task.
        seed: root of the agent's streams (weights, dropout and samples).
        device: where the networks live.

    Raises:
        UnsupportedSpace: a space that the core cannot train on, or more actions than memory allows.
        ValueError: positions that show the time where the time limit is artificial.
    """

    discounts: Tensor

    def __init__(
        self,
        config: Config,
        observation_space: Space,
        action_space: Space,
        rollout: Rollout,
        seed: np.random.SeedSequence,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        if config.sequence_model == "transformer" and not rollout.finite and config.positions != "rotary":
            raise ValueError(
                f"positions={config.positions} shows the agent the time, which an artificial time limit hides from it: "
                "use positions=rotary"
            )
        self.config, self.rollout, self.device, self.seed = config, rollout, device, seed
        self.observations, self.actions = ObservationCodec(observation_space), ActionCodec(action_space)
        self.generator = torch_generator(child(seed, "learning"), device)
        wanted = config.attention
        if wanted == "auto" and device != "cpu" and config.dtype == "float32":
            wanted = "sdpa"  # flash works in half precision, so learning would round what acting in float32 does not
        self.attention, self.attention_note = attention.choose(wanted, device, config.width // config.heads)
        discounts = config.all_discounts(self.actions.discrete)
        if self.actions.discrete:
            check_table(config, rollout.horizon, len(discounts), self.actions.size)
        with torch.random.fork_rng(devices=[]):  # PyTorch's initialisers know the global generator only: lend it
            # Not torch.manual_seed, which would also reseed the generators of every GPU.
            torch.default_generator.manual_seed(integer_seed(child(seed, "weights")))
            self.encoder = TimestepEncoder(config, self.observations, self.actions, rollout.time_scale)
            self.sequence_model = self._sequence_model()
            self.actor_critic: ActorCritic = (
                DiscreteActorCritic(config, len(discounts), self.actions.size)
                if self.actions.discrete
                else ContinuousActorCritic(config, discounts, self.actions.size, self.generator)
            )
        self.popart = PopArt(len(discounts), config.popart_rate)
        self.register_buffer("discounts", torch.tensor(discounts))
        self.to(device)

    def _sequence_model(self) -> SequenceModel:
        build: dict[str, Callable[[], SequenceModel]] = {
            "transformer": lambda: Transformer(
                self.config, self.config.encoder_width, self.rollout.horizon, self.attention, self.generator
            ),
            "gru": lambda: GRU(self.config, self.config.encoder_width),
            "memoryless": lambda: Memoryless(self.config, self.config.encoder_width),
        }
        return build[self.config.sequence_model]()

    def states(self, batch: Batch) -> Tensor:
        """States of all tokens, [N, D]."""
        return self.sequence_model(self.encoder(batch), batch.packing, batch.position)

    def losses(self, batch: Batch) -> Losses:
        """The training loss of a packed batch; also moves the PopArt and input statistics.

        Every transition has one term per discount: M x G terms, averaged. `online` drives the policy up the
        critics, `offline` clones replayed actions better than the policy's own, `critic` is the squared TD error.
        """
        config, popart = self.config, self.popart
        current = batch.packing.current  # [M]
        following = current + 1
        states = self.states(batch).float()  # [N, D]
        q = self.actor_critic.evaluate_actions(states[current], batch["action"][following])

        with torch.no_grad():
            reward = config.reward_multiplier * batch["reward"][following]  # [M]
            bootstrap = popart.value(self.actor_critic.bootstrap(states[following].detach()).float())  # [M, C, G]
            going_on = self.discounts * (~batch["terminal"][following]).unsqueeze(1)  # [M, G]
            targets = reward.view(-1, 1, 1) + going_on.unsqueeze(1) * bootstrap
            target = self._reduce_pair(targets)  # [M, G]
            popart.update(target)
            normalised = popart.standardise(target).unsqueeze(1)  # [M, 1, G]
            # Raw units, before PopArt; in half precision the mean over critics would round the threshold away. [M, G]
            advantage = q.q_action.float().mean(1) - q.q_policy.float().mean(1)
            accept = (advantage > config.advantage_threshold).float()

        critic = (popart.normalise(q.q_action) - normalised).square().mean()
        # The expectation over actions is inside q.q_policy; only then the minimum over the critics (agent.md 5.4).
        online = -popart.normalise(q.q_policy.amin(1)).mean()
        offline = -(accept * q.log_prob).mean()
        total = config.online_weight * online + config.offline_weight * offline + config.critic_weight * critic
        return Losses(total, critic.detach(), online.detach(), offline.detach(), accept.mean(), target[:, -1].mean())

    def _reduce_pair(self, targets: Tensor) -> Tensor:
        """REDQ (agent.md 5.1): targets [M, C, G] -> the smaller of two drawn with replacement per entry [M, G].

        Without the online term nothing drives the policy to exploit the critics' errors, and the paper takes the mean.
        """
        m, c, g = targets.shape
        pair = torch.randint(c, (m, 2, g), generator=self.generator, device=targets.device)
        drawn = targets.gather(1, pair)
        return drawn.amin(1) if self.config.online_weight > 0 else drawn.mean(1)

    def parameter_count(self) -> int:
        """Trained parameters; the target networks do not count."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)
