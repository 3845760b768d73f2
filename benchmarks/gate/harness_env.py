"""The only interface between an agent and an environment: horizon, seeds, counting, checks and casts."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from amago_core.seeding import child
from benchmarks.agents.protocol import ContractError
from benchmarks.gate.observations import bounds, cast, checked
from benchmarks.gate.rollout_log import RolloutLog, extended
from benchmarks.gate.slots import SUCCESS, SlotFault, own
from results.errors import UserError

if TYPE_CHECKING:
    from benchmarks.task import Task

Role = Literal["train", "evaluate"]
BLOCK = 256  # seeds drawn at once for a slot: one hash per rollout would cost more than a short rollout's steps
INNER = ("inner_reset", "inner_truncated")  # infos that are flags of all slots, whether an environment has them or not
TOLERANCE = 1e-5  # by how much a float action may exceed its bound, relative: rounding after squashing or rescaling


class EnvironmentFault(UserError):
    """An environment broke its own declaration: a number that is not finite, a wrong shape, a changed instance."""


def rollout_seeds(root: np.random.SeedSequence, role: Role, slot: int, block: int) -> np.ndarray:
    """The seeds of rollouts [block * BLOCK, (block + 1) * BLOCK) of a slot, int64 [BLOCK], below 2**31.

    Training seeds are even and evaluation seeds odd, so that no rollout is ever both trained and evaluated on.
    """
    state = child(root, role, slot, block).generate_state(BLOCK).astype(np.int64) >> 1
    return state & ~1 | (role == "evaluate")


def instance_name(instance: Any) -> str:
    """A hidden instance as a text: an integer as it is, any other record as 16 hex digits of a hash of its JSON.

    Raises TypeError or ValueError for what JSON cannot hold.
    """
    if isinstance(instance, int | np.integer):
        return str(int(instance))
    text = json.dumps(instance, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class HarnessEnv(VectorWrapper):
    """A task's environment as an agent gets it, in training and in evaluation alike.

    - A rollout ends at the task's horizon whether or not the environment says so; if both flags are set, termination
      wins. Nothing resets itself: call `reset(options={"reset_mask": done})`.
    - Every (slot, rollout) has a seed of its own, drawn from the root and the role; a `seed` argument is refused.
    - `env_steps` counts the steps of all slots. For each slot, int64 [B], `t` is the step, `rollouts` the number of
      rollouts begun, and `seeds` the seed of the current rollout; `instance`, text [B], names its hidden instance
      (empty: not told), see `instance_name`; `needs_reset`, bool [B], marks the slots that are done.
    - Rewards are float32 [B], flags bool [B] (False, True, 0 or 1 of any type; anything else is a fault). `infos`
      are read as the task declares them, and an info that a slot does not tell is unknown; `infos["success"]`, if
      present, is False in such a slot. `infos["inner_reset"]` and `infos["inner_truncated"]` (that inner episode
      was cut off by its time limit) are always present, observations are fresh contiguous arrays of the declared dtype.
    - In training, `stream` is a checksum of all actions, observations and rewards so far, in order; None: not known.
    - In training, `state` is the state of all slots, and `restore` brings a fresh environment into it; `ended` takes
      the returns and lengths of the rollouts that have ended since the last call.

    Raises `EnvironmentFault` if the environment breaks the contract, and `ContractError` if the agent does.
    """

    def __init__(self, env: VectorEnv, task: Task, root: np.random.SeedSequence, role: Role) -> None:
        super().__init__(env)
        if env.metadata.get("autoreset_mode") != AutoresetMode.DISABLED:
            raise EnvironmentFault(
                f"task {task.id}: its environment resets itself; "
                'build it with metadata["autoreset_mode"] = AutoresetMode.DISABLED'
            )
        self.task, self.role = task, role
        self.env_steps = 0
        self.stream: int | None = 0
        self.t = np.zeros(self.num_envs, np.int64)
        self.rollouts = np.zeros(self.num_envs, np.int64)
        self.seeds = np.zeros(self.num_envs, np.int64)
        self._root = root
        self._upcoming = np.zeros((self.num_envs, BLOCK), np.int64)
        self.needs_reset = np.ones(self.num_envs, bool)
        self._return = np.zeros(self.num_envs)  # float64: thousands of small rewards
        self._ended: list[tuple[float, int]] = []
        self.instance = np.full(self.num_envs, "", object)
        self._told: list[Any] = [None] * self.num_envs  # the instances as the environment gave them
        self._none = np.zeros(self.num_envs, bool)
        self._none.flags.writeable = False  # shared by all steps
        self._bounds = bounds(self.action_space)
        logged = role == "train" and self._bounds is not None
        self._log = RolloutLog(self.action_space, self.num_envs) if logged else None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next rollout in the slots of `options["reset_mask"]` (bool [B]; without it, in all slots)."""
        if seed is not None:
            raise ContractError(f"task {self.task.id}: reset() got a seed; the harness seeds every rollout itself")
        options = dict(options or {})  # gymnasium pops the mask
        mask = options["reset_mask"] = np.array(options.get("reset_mask", np.ones(self.num_envs, bool)))
        if unknown := options.keys() - {"reset_mask", "instance"}:
            raise ContractError(
                f"task {self.task.id}: reset() got the option {min(unknown)!r}; it takes only reset_mask and instance"
            )
        if "instance" in options and np.asarray(options["instance"]).dtype.kind not in "iu":
            self._blame(f"asked reset() for the instances {options['instance']}, which are not whole numbers", None)
        slots = np.flatnonzero(mask)
        self._begin_rollouts(slots)
        seeds: list[int | None] = [None] * self.num_envs
        for slot, value in zip(slots.tolist(), self.seeds[slots].tolist(), strict=True):
            seeds[slot] = value
        with self._naming():
            observation, infos = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]
        told = self._column(infos, "instance") if self._is_told(infos, "instance") else [None] * self.num_envs
        for slot in slots.tolist():
            self._told[slot] = told[slot]
            self.instance[slot] = self._name(slot)
        self._check_instance(slots, options.get("instance"))
        observation = self._observation(self.observation_space, observation)
        self._extend_stream(observation)
        if self._log is not None:
            self._log.begin(slots, options.get("instance"), observation)
        return observation, infos | dict.fromkeys(INNER, self._none)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of every slot; the observation of a slot that is done is the last of its rollout."""
        if self.needs_reset.any():
            slot = int(self.needs_reset.argmax())
            self._blame(f"stepped slot {slot}, which is done; reset it first", slot)
        actions = self._actions(actions)
        self.t += 1
        self.env_steps += self.num_envs
        with self._naming():
            observation, reward, terminated, truncated, infos = self.env.step(own(actions))  # it may change them
        terminated = self._flags(terminated, "terminated")
        truncated = (self._flags(truncated, "truncated") | (self.t >= self.task.horizon)) & ~terminated
        self.needs_reset = terminated | truncated
        observation, reward = self._observation(self.observation_space, observation), self._reward(reward)
        self._extend_stream(actions, observation, reward)
        if self.role == "train":
            self._count(reward)
        if self._log is not None:
            self._log.add(self.t - 1, actions, observation, reward)
        return observation, reward, terminated, truncated, self._infos(infos)

    def ended(self) -> list[tuple[float, int]]:
        """Return and length of each training rollout that has ended since the last call, exploration included."""
        ended, self._ended = self._ended, []
        return ended

    def __del__(self) -> None:
        """Leaves the wrapped environment open, because it is reused; gymnasium before 1.2 would close it here."""

    def _count(self, reward: np.ndarray) -> None:
        """Adds up the returns that `ended` takes; in an evaluation they are counted by episode, elsewhere."""
        self._return += reward
        if (done := self.needs_reset).any():
            self._ended += zip(self._return[done].tolist(), self.t[done].tolist(), strict=True)

    def _extend_stream(self, *parts: Any) -> None:
        if self.role == "train" and self.stream is not None:
            self.stream = extended(self.stream, self.num_envs, *parts)

    def _begin_rollouts(self, slots: np.ndarray) -> None:
        for slot in slots[self.rollouts[slots] % BLOCK == 0].tolist():
            block = int(self.rollouts[slot]) // BLOCK
            self._upcoming[slot] = rollout_seeds(self._root, self.role, slot, block)
        self.seeds[slots] = self._upcoming[slots, self.rollouts[slots] % BLOCK]
        self.rollouts[slots] += 1
        self.t[slots], self._return[slots] = 0, 0.0
        self.needs_reset[slots] = False
        self.instance[slots] = ""

    # --- resuming in another process ---------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """The state of every slot: the number of its rollout, and its actions since the reset."""
        state = {name: getattr(self, name).copy() for name in ("rollouts", "t", "needs_reset")}
        state["env_steps"] = np.array(self.env_steps)
        if self.stream is not None:
            state["stream"] = np.array(self.stream)
        if self._log is not None:
            state |= {"asked": self._log.asked, "checksum": self._log.checksum()}
            state["actions"] = self._log.actions[: int(self.t.max())]
        return state

    def restore(self, state: Mapping[str, np.ndarray]) -> str:
        """Replay the rollouts under way. If that fails, every slot needs a reset, and the reason is returned."""
        for slot, number in enumerate(state["rollouts"].tolist()):
            self._upcoming[slot] = rollout_seeds(self._root, self.role, slot, max(number - 1, 0) // BLOCK)
        try:
            problem = self._replay(state)
        except UserError as error:
            problem = str(error)
        self.env_steps, self.rollouts = int(state["env_steps"]), state["rollouts"].copy()
        self.stream = int(state["stream"]) if "stream" in state else None  # checkpoints from before have none
        self._ended.clear()  # what was replayed has been reported
        self.needs_reset = np.ones(self.num_envs, bool) if problem else state["needs_reset"].copy()
        return problem

    def _replay(self, state: Mapping[str, np.ndarray]) -> str:
        """All slots step together, so the shorter a slot's rollout, the later it begins.

        Until then it repeats the actions of the longest rollout, and is reset whenever they end its own.
        """
        alive = ~state["needs_reset"]
        if self._log is None:
            return "" if not alive.any() else "its actions are not arrays, so they were not logged"
        t, actions = np.where(alive, state["t"], 0), state["actions"]
        longest, leader, slots = int(t.max()), int(t.argmax()), np.arange(self.num_envs)
        for step in range(longest + 1):
            own = step - (longest - t)  # timestep in each slot's own rollout; negative: not begun
            self._begin_again(self.needs_reset | (own == 0), state)
            if step < longest:
                begun = (own >= 0).reshape(-1, *[1] * (actions.ndim - 2))
                self.step(np.where(begun, actions[np.maximum(own, 0), slots], actions[step, leader]))
                if (self.needs_reset & (own >= 0)).any():
                    return "a rollout ended earlier than before"
        same = self._log.checksum() == state["checksum"]
        return "" if same[alive].all() else "the same seed and actions gave other observations or rewards"

    def _begin_again(self, mask: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
        """Reset slots to the start of their rollout in `state`."""
        self.rollouts[mask] = np.maximum(state["rollouts"][mask] - 1, 0)
        chosen = state["asked"] >= 0
        for part, options in ((mask & chosen, {"instance": np.maximum(state["asked"], 0)}), (mask & ~chosen, {})):
            if part.any():
                self.reset(options={"reset_mask": part, **options})

    # --- checks of what the agent passes in --------------------------------------------------------------------------

    def _actions(self, actions: Any) -> Any:
        space = self.action_space
        if self._bounds is None or space.dtype is None:
            return actions
        low, high = self._bounds
        array = np.asarray(actions)
        if array.shape != space.shape:
            self._blame(f"gave actions of shape {array.shape}; {self.single_action_space} needs {space.shape}", None)
        is_float = space.dtype.kind == "f"
        if array.dtype.kind not in ("fiu" if is_float else "iub"):
            self._blame(f"gave actions of dtype {array.dtype}; {self.single_action_space} needs {space.dtype}", None)
        slack = TOLERANCE * (1 + np.abs(array)) if is_float else 0
        inside = (array >= low - slack) & (array <= high + slack)  # false for NaN
        if not inside.all():
            slot = int(np.argwhere(~inside)[0, 0])
            self._blame(f"gave action {array[slot]}, which is outside {self.single_action_space}", slot)
        if is_float:
            array = np.clip(array, low, high)
        return array.astype(space.dtype, copy=False)

    def _blame(self, what: str, slot: int | None) -> NoReturn:
        method = "learn()" if self.role == "train" else "act()"
        raise ContractError(f"{method} {what} ({self._where(slot)})")

    # --- checks of what the environment returns ----------------------------------------------------------------------

    def _observation(self, space: Space, value: Any) -> Any:
        with self._naming():
            return checked(space, value, "the observation")

    def _reward(self, reward: Any) -> np.ndarray:
        array = np.asarray(reward)
        if array.size != self.num_envs:  # (B, 1) is accepted: it can mean only one thing
            self._fault(f"the reward has shape {array.shape} instead of ({self.num_envs},)")
        with self._naming():
            return cast(array.reshape(self.num_envs), (self.num_envs,), np.dtype(np.float32), "the reward")

    def _flags(self, flags: Any, name: str) -> np.ndarray:
        array = np.asarray(flags)
        if array.shape != (self.num_envs,):
            self._fault(f"{name} has shape {array.shape} instead of ({self.num_envs},)")
        if array.dtype == bool:
            return array
        for slot, value in enumerate(array.tolist()):
            if not _is_number(value) or value not in (0, 1):
                self._fault(f"{name} is {value!r}, which is neither 0 nor 1", slot)
        return array.astype(bool)

    def _infos(self, infos: dict[str, Any]) -> dict[str, Any]:
        read = {name: value for name, value in infos.items() if name not in SUCCESS}
        for name in SUCCESS:
            if name in infos and (success := self._known(infos, name)) is not None:
                read["success"] = success
                break
        for name in INNER:
            known = self._known(infos, name) if self._is_told(infos, name) else None
            read[name] = self._none if known is None else known
        if self._is_told(infos, "instance") and (told := self._column(infos, "instance")) != self._told:
            for slot, (old, new) in enumerate(zip(self._told, told, strict=True)):
                if old is not None and new is not None and old != new:
                    self._fault(f"the hidden instance changed inside a rollout, from {old} to {new}", slot)
        return read

    def _is_told(self, infos: dict[str, Any], name: str) -> bool:
        return infos.get(name) is not None and name in self.task.infos

    def _known(self, infos: dict[str, Any], name: str) -> np.ndarray | None:
        """The flags of an info, bool [B], False in a slot that does not tell it; None if no slot does."""
        flags, label = infos[name], f"infos[{name!r}]"
        if isinstance(flags, np.ndarray) and flags.dtype == bool and f"_{name}" not in infos:
            return self._flags(flags, label)
        values = self._column(infos, name)
        if name not in self.task.infos:  # None or a text is no success and no failure
            values = [value if _is_number(value) else None for value in values]
        if all(value is None for value in values):
            return None
        known = [False if value is None else value for value in values]
        return self._flags(np.fromiter(known, object, len(known)), label)

    def _column(self, infos: dict[str, Any], name: str) -> list[Any]:
        """What each slot tells; None: nothing. Gymnasium's vector environments mark who does in `_name`."""
        values = infos[name]
        values = [values] * self.num_envs if values is None else _as_list(values)
        if len(values) != self.num_envs:
            self._fault(f"infos[{name!r}] has {len(values)} values instead of {self.num_envs}")
        told = infos.get(f"_{name}")
        return values if told is None else [value if t else None for value, t in zip(values, told, strict=True)]

    def _name(self, slot: int) -> str:
        if self._told[slot] is None:
            return ""
        try:
            return instance_name(self._told[slot])
        except (TypeError, ValueError) as error:
            self._fault(f"its hidden instance is not plain data: {error}", slot)

    def _check_instance(self, slots: np.ndarray, wanted: np.ndarray | None) -> None:
        if wanted is None:
            return
        for slot in slots.tolist():
            if self.instance[slot] not in ("", str(wanted[slot])):
                self._fault(f"asked for instance {wanted[slot]}, the environment took {self.instance[slot]}", slot)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Turns whatever the environment raises into one line that says where; the traceback goes to log.txt."""
        try:
            yield
        except SlotFault as fault:
            self._fault(str(fault), fault.slot)
        except (Exception, SystemExit) as error:
            self._fault(f"the environment raised {type(error).__name__}: {error}")

    def _fault(self, what: str, slot: int | None = None) -> NoReturn:
        raise EnvironmentFault(f"{self._where(slot)}: {what}")

    def _where(self, slot: int | None) -> str:
        shown, which = (0, f"all {self.num_envs} slots, of which slot 0") if slot is None else (slot, f"slot {slot}")
        return f"task {self.task.id}, {which}, seed {self.seeds[shown]}, step {self.t[shown]}"


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.number)


def _as_list(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)
