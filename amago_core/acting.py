"""Acting: one step in every slot at a time, with the sequence model's cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from amago_core.agent import Agent
from amago_core.precision import float32_products
from amago_core.sequences import Batch, Packing


class Actor:
    """What an agent remembers in B slots: the cache, the previous actions, the timesteps of the rollouts.

    Memory is cleared where a rollout begins and nowhere else: not at inner episodes and not between calls
    (agent.md 3.4).

    Attributes:
        previous: stored action that each slot executed last; the caller writes it after every step.
        position: timestep within its rollout of each slot's last step [B].
    """

    def __init__(self, agent: Agent, slots: int) -> None:
        self.agent = agent
        self.cache = agent.sequence_model.new_cache(slots)
        codec = agent.actions
        self.previous: npt.NDArray[Any] = np.full((slots, *codec.field.shape), codec.blank, codec.field.dtype)
        self.position = np.zeros(slots, np.int64)
        self._packing = Packing(np.ones(slots, np.int64), agent.device)

    def step(
        self,
        observation: Mapping[str, npt.NDArray[Any]],
        reward: npt.NDArray[np.float32],
        first: npt.NDArray[np.bool_],
        inner_reset: npt.NDArray[np.bool_],
        rng: np.random.Generator,
        sample: bool,
    ) -> npt.NDArray[Any]:
        """Returns the stored actions [B] or [B, A] for a stored observation of each slot.

        Args:
            observation: fields [B, ...], see `ObservationCodec.store`.
            reward: of the previous step [B], 0 where first.
            first: a rollout begins here [B].
            inner_reset: an inner episode begins here [B].
            rng: draws the action samples.
            sample: sample the policy, or take its mode.
        """
        self.position = np.where(first, 0, self.position + 1)
        if first.any():
            self.previous = self.previous.copy()
            self.previous[first] = self.agent.actions.blank
        with torch.inference_mode(), float32_products("ieee"):
            known = {"action": self.previous, "reward": reward, "reset": first | inner_reset}
            policy = self.agent.actor_critic.policy(self._state({**observation, **known}))
        return self.agent.actor_critic.act(policy, rng, sample).astype(self.agent.actions.field.dtype)

    def state_dict(self, tokens: int) -> dict[str, Any]:
        """What the slots remember, if no rollout has played more than `tokens` timesteps."""
        cache = self.agent.sequence_model.save_cache(self.cache, tokens)
        return {"cache": cache, "previous": self.previous, "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        cache = state["cache"]
        self.cache = self.agent.sequence_model.load_cache(cache if cache is None else cache.to(self.agent.device))
        self.previous, self.position = np.asarray(state["previous"]), np.asarray(state["position"])

    def _state(self, fields: Mapping[str, npt.NDArray[Any]]) -> Tensor:
        agent = self.agent
        if agent.training:
            agent.eval()
        position = torch.from_numpy(self.position).to(agent.device)
        tensors = {name: torch.from_numpy(field).to(agent.device) for name, field in fields.items()}
        token = agent.encoder(Batch(self._packing, position, tensors))
        state: Tensor = agent.sequence_model.step(token, self.cache, position)
        return state
