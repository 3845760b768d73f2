"""From stored rollouts to packed batches: draw rollouts, pass each through the hook, cut it, pack the pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from amago_core.checkpoint import as_arrays
from amago_core.replay import Replay
from amago_core.sequences import Batch, Packing, Timesteps


class Hook(Protocol):
    """Changes a rollout before the learner sees it, as hindsight relabelling does.

    Split in two, so that a checkpoint stores the decision and not the rollout: `decide` draws, may change the hook's
    own state, and returns plain data (numbers, lists, arrays; None: leave the rollout as it is). `apply` depends on
    its arguments alone; it may change goals, rewards, ends and the length. Stored rollouts are read-only.
    """

    def decide(self, rollout: Timesteps, rng: np.random.Generator) -> Any: ...

    def apply(self, rollout: Timesteps, decision: Any) -> Timesteps: ...

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Piece(NamedTuple):
    """A slice of a rollout, after the hook."""

    serial: int
    start: int  # timestep of the rollout
    size: int  # timesteps
    decision: Any = None  # of the hook


class Sampler:
    """Draws packed batches of slices from a replay.

    Args:
        replay: the rollouts.
        sequences: slices in a batch.
        tokens: budget of a batch, counted after the hook; the slice that would exceed it opens the next batch instead.
        context: c, the most transitions in a slice. A rollout of T <= c transitions is taken whole. For a longer one
            a start is drawn uniformly from -(c - 1) to T - 1, and the slice is the part of [start, start + c) inside
            the rollout: every transition, the first and the last included, is in c of the T + c - 1 slices, and slices
            at the ends are shorter.
        by_transition: draw a rollout in proportion to the inverse of that share, (T + c - 1) / c if it is longer than
            c and 1 if not, so that all transitions in the replay are equally likely; otherwise uniformly (the paper's
            rule, which over-samples the transitions of short rollouts where longer ones are cut). Where none is cut
            the two are the same. The token budget changes neither, since no slice is dropped.
        hook: applied to each stored rollout before the cut.
    """

    def __init__(
        self,
        replay: Replay,
        sequences: int,
        tokens: int,
        context: int,
        by_transition: bool = False,
        hook: Hook | None = None,
    ) -> None:
        self.replay, self.sequences, self.tokens, self.context = replay, sequences, tokens, context
        self.by_transition, self.hook = by_transition, hook
        self._waiting: Piece | None = None  # the slice that crossed the last batch's budget

    def sample(self, rng: np.random.Generator) -> Batch:
        """A packed batch. Raises ValueError if no rollout is stored yet."""
        if not len(self.replay):
            raise ValueError("the replay is empty: collect a rollout before the first update")
        serials = self._draw(rng)
        lengths = self.replay.lengths(serials)
        decisions: list[Any] = [None] * self.sequences
        if self.hook is not None:
            for i, serial in enumerate(serials.tolist()):
                stored = self.replay.rollout(serial)
                decisions[i] = self.hook.decide(stored, rng)
                lengths[i] = len(self._hooked(stored, decisions[i])["reward"])
        starts, sizes = self._cut(lengths, rng)
        pieces = map(Piece, serials.tolist(), starts.tolist(), sizes.tolist(), decisions)
        return self._pack(self._within_budget(list(pieces)))

    def _draw(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Serial numbers of the rollouts of a batch, drawn with replacement."""
        if not self.by_transition:
            return self.replay.first + rng.integers(len(self.replay), size=self.sequences)
        transitions = self.replay.lengths(self.replay.serials) - 1
        weights = np.where(transitions > self.context, (transitions + self.context - 1) / self.context, 1.0)
        cumulative = np.cumsum(weights)
        drawn = rng.uniform(high=cumulative[-1], size=self.sequences)
        return self.replay.first + np.searchsorted(cumulative[:-1], drawn, side="right")

    def _cut(
        self, lengths: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """First timestep and number of timesteps of a slice of each rollout."""
        transitions, context = lengths - 1, self.context
        before = np.where(transitions > context, context - 1, 0)  # possible starts before the rollout, if it is cut
        raw = rng.integers(np.where(transitions > context, transitions + before, 1)) - before
        starts = np.maximum(raw, 0)
        return starts, np.minimum(raw + context, transitions) - starts + 1

    def _within_budget(self, pieces: list[Piece]) -> list[Piece]:
        """As many as the budget allows, at least one, led by the waiting one if its rollout is still kept."""
        if self._waiting is not None and self._waiting.serial >= self.replay.first:
            pieces = [self._waiting, *pieces[:-1]]
        total, self._waiting = 0, None
        for i, piece in enumerate(pieces):
            total += piece.size
            if total > self.tokens and i:
                self._waiting = piece
                return pieces[:i]
        return pieces

    def _pack(self, pieces: list[Piece]) -> Batch:
        *places, decisions = zip(*pieces, strict=True)
        serials, starts, sizes = (np.array(column, np.int64) for column in places)
        packing = Packing(sizes)
        position = np.arange(packing.tokens) + np.repeat(starts - packing.starts, sizes)
        if decisions.count(None) == len(decisions):
            fields = self.replay.gather(serials, starts, sizes)
        else:
            cut = [self._cut_out(piece) for piece in pieces]
            fields = {name: np.concatenate([part[name] for part in cut]) for name in cut[0]}
        tensors = {name: torch.from_numpy(field) for name, field in fields.items()}
        return Batch(packing, torch.from_numpy(position), tensors)

    def _cut_out(self, piece: Piece) -> Timesteps:
        rollout = self._hooked(self.replay.rollout(piece.serial), piece.decision)
        return {name: field[piece.start : piece.start + piece.size] for name, field in rollout.items()}

    def _hooked(self, rollout: Timesteps, decision: Any) -> Timesteps:
        if self.hook is None or decision is None:
            return rollout
        return self.hook.apply(rollout, decision)

    def state_dict(self) -> dict[str, Any]:
        """All that the next batch depends on, apart from the replay and the generator."""
        waiting = None if self._waiting is None else list(self._waiting)
        return {"waiting": waiting, "hook": None if self.hook is None else self.hook.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self._waiting = None if state["waiting"] is None else Piece(*as_arrays(state["waiting"]))
        if self.hook is not None:
            self.hook.load_state_dict(as_arrays(state["hook"]))
