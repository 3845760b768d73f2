"""What cannot be tested without a GPU: flash, acting, learning, resuming and bfloat16 on the card, and its speed.

usage: python tests/gpu/check.py OUTPUT.json

`test_check.py` runs the same checks on a CPU, at small sizes and without flash.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from amago_core import checkpoint
from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.learner import Learner
from amago_core.nets import attention
from amago_core.precision import float32_products
from amago_core.sampler import Sampler
from amago_core.sequences import Packing
from amago_core.train import Trainer
from benchmarks.throughput import cases
from tests.amago_core.decisions import bfloat16_beside_float32
from tests.amago_core.envs import Clock, Corridor, CuedTask, Reach
from tests.amago_core.tiny import CONTINUOUS, DISCRETE, tiny_agent

Found = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much is checked, and where."""

    device: str = "cuda"
    updates: int = 200  # of each short training
    speed: Config = cases.WIDE
    tokens: int = 1_000  # of each of its sequences
    timed: int = 20  # updates


def flash_equals_reference(size: Size) -> Found:
    """The largest difference of outputs and gradients, half precision, ragged lengths."""
    packing = Packing([1, 7, 64, 300], size.device)
    grids = [torch.randn(packing.tokens, 4, 32, device=size.device, dtype=torch.bfloat16) for _ in range(4)]
    outputs = []
    for backend in (attention.flash, attention.reference):
        q, k, v = (x.clone().requires_grad_() for x in grids[:3])
        out = backend(q, k, v, packing)
        out.backward(grids[3])
        outputs.append([out, *(x.grad for x in (q, k, v))])
    names = ("out", "dq", "dk", "dv")
    found = {name: float((a - b).abs().max() / b.abs().max()) for name, a, b in zip(names, *outputs, strict=True)}
    worst = max(found.values())
    assert worst < 0.03, f"flash differs from the reference by {worst:.3f} of its largest value: {found}"
    return found


MODELS: dict[str, Found] = {
    "learned positions": {},
    "sinusoidal positions": {"positions": "sinusoidal"},
    "rotary positions": {"positions": "rotary"},
    "gru": {"sequence_model": "gru"},
}


def acting_equals_learning(size: Size) -> Found:
    """The largest difference between the states that acting finds step by step and learning at once, float32."""
    found = {}
    slots, steps = 5, 40
    for name, settings in MODELS.items():
        model = tiny_agent(horizon=steps, device=size.device, **settings).eval().sequence_model
        tokens = torch.randn(slots, steps, 12, device=size.device)
        position = torch.arange(steps, device=size.device)
        with torch.no_grad(), float32_products("ieee"):
            full = model(tokens.flatten(0, 1), Packing([steps] * slots, size.device), position.repeat(slots))
            cache = model.new_cache(slots)
            stepped = [model.step(tokens[:, t], cache, position[t].expand(slots)) for t in range(steps)]
        found[name] = float((full.view(slots, steps, -1) - torch.stack(stepped, 1)).abs().max())
        assert found[name] < 1e-4, f"{name}: acting differs from learning by {found[name]:.2g}"
    return found


def autocast_leaves_a_gru_alone(size: Size) -> Found:
    """Autocast runs cuDNN's networks in float16, whose largest number is 65,504: the GRU must not notice it."""
    model = tiny_agent(device=size.device, sequence_model="gru").sequence_model
    tokens = torch.randn(30, 12, device=size.device) * 1e6
    args = tokens, Packing([10, 20], size.device), torch.zeros(30, device=size.device)
    hidden: list[torch.Tensor] = []
    model.gru.register_forward_hook(lambda module, inputs, outputs: hidden.append(outputs[0]))
    with float32_products("ieee"):
        model(*args)
        with torch.autocast(size.device, torch.bfloat16):
            model(*args)
    assert torch.equal(*hidden), "the GRU's states are not those of float32"
    return {"largest input": float(tokens.abs().max())}


def bfloat16_decides_as_float32(size: Size) -> Found:
    """Decisions of the advantage filter that differ and the cosine of the actor's gradients, where values are large."""
    found = {}
    for name, space in (("discrete", DISCRETE), ("continuous", CONTINUOUS)):
        for raw in (0.0, 10.0, 50.0):
            agreement = bfloat16_beside_float32(space, raw, size.device)
            assert 0.2 < agreement.accepted < 0.8, f"{name} at {raw}: the filter accepts {agreement.accepted:.2f}"
            assert agreement.flips <= 0.01, f"{name} at {raw}: {agreement.flips:.3f} of the decisions differ"
            assert agreement.cosine >= 0.99, f"{name} at {raw}: the gradients have cosine {agreement.cosine:.3f}"
            found[f"{name} at {raw:g}"] = {"flips": agreement.flips, "cosine": agreement.cosine}
    return found


TASKS: dict[str, type[CuedTask]] = {"discrete": Corridor, "continuous": Reach}


def trainings_stay_finite(size: Size) -> Found:
    """Short trainings of each model, kind of action and type; the seconds of each."""
    found = {}
    for actions, task in TASKS.items():
        for model, settings in MODELS.items():
            for dtype in ("float32", "bfloat16"):
                name, start = f"{actions}, {model}, {dtype}", time.perf_counter()
                with tempfile.TemporaryDirectory() as folder:
                    envs = task(32)
                    envs.reset(seed=1000)
                    trainer = _trainer(envs, task.horizon, size.device, Path(folder), dtype=dtype, **settings)
                    for progress in trainer.run():
                        if progress.updates == size.updates:
                            break
                assert _finite(trainer), f"{name}: weights or gradients are not finite"
                found[name] = time.perf_counter() - start
    return found


def resumes_where_it_was(size: Size) -> Found:
    """Whether 30 reports after a stop are bitwise those of a training that was not stopped.

    Weights, moments and generators must be; afterwards the order in which a card adds may differ.
    """
    found = {}
    for name, space in (("discrete", DISCRETE), ("continuous", CONTINUOUS)):
        with tempfile.TemporaryDirectory() as temporary:
            folder, envs, again = Path(temporary), Clock(3, space), Clock(3, space)
            first = _trainer(envs, 9, size.device, folder / "first")
            list(islice(first.run(), 20))
            checkpoint.save_state(folder / "state", first.state_dict())
            shutil.copytree(folder / "first", folder / "second")
            again.state = envs.state.copy()
            second = _trainer(again, 9, size.device, folder / "second", checkpoint.load_state(folder / "state"))
            assert _numbers(second.learner.state_dict()) == _numbers(first.learner.state_dict()), name
            straight, resumed = ([dict(p.metrics) for p in islice(t.run(), 30)] for t in (first, second))
        close = [np.allclose(list(a.values()), list(b.values()), rtol=1e-3, atol=1e-3) for a, b in
                 zip(straight, resumed, strict=True)]  # fmt: skip
        assert all(close), f"{name}: a resumed training differs after {close.index(False)} reports"
        found[name] = {"bitwise": straight == resumed}
    return found


def moves_to_a_cpu(size: Size) -> Found:
    """A checkpoint of the card resumes on a CPU with the same weights, and another checkpoint of that on the card."""
    state: Found | None = None
    expected = b""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for device in (size.device, "cpu", size.device):
            trainer = _trainer(Clock(3, CONTINUOUS), 9, device, folder / "replay", state)
            assert state is None or _numbers(trainer.agent.state_dict()) == expected, f"other weights on {device}"
            list(islice(trainer.run(), 20))
            assert _finite(trainer), f"weights or gradients are not finite on {device}"
            expected = _numbers(trainer.agent.state_dict())
            checkpoint.save_state(folder / "state", trainer.state_dict())
            state = checkpoint.load_state(folder / "state")
    return {"updates": trainer.learner.updates}


def speed(size: Size) -> Found:
    """Milliseconds of an update in each type and with each backend; bfloat16 must be the faster type on a card."""
    ways = [("float32", "sdpa", False), ("bfloat16", "sdpa", False)]
    if size.device == "cuda":
        ways += [("bfloat16", "flash", False), ("bfloat16", "flash", True)]
    found: Found = {}
    for dtype, backend, compiled in ways:
        name = f"{dtype}, {backend}{', compiled' if compiled else ''}"
        try:
            found[name] = _update_speed(size, dtype, backend, compiled)
        except Exception as error:  # flash or the compiler may be missing; that must not hide the others
            found[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    plain = [found[f"{dtype}, sdpa"] for dtype in ("float32", "bfloat16")]
    assert all(isinstance(each, dict) for each in plain), f"learning does not work: {found}"
    slow, fast = (each["ms"] for each in plain)
    assert size.device == "cpu" or fast < slow, f"bfloat16 takes {fast:.1f} ms, float32 {slow:.1f} ms"
    return found


def _update_speed(size: Size, dtype: str, backend: str, compiled: bool) -> Found:
    config = size.speed.replace({"attention": backend, "dtype": dtype})
    agent = Agent(
        config, Corridor.single_observation_space, DISCRETE, Rollout(size.tokens - 1), np.random.SeedSequence(0),
        size.device,
    )  # fmt: skip
    assert agent.attention == backend, agent.attention_note
    with tempfile.TemporaryDirectory() as folder:
        replay = cases.filled_replay(agent, Path(folder), size.tokens)
        sampler = Sampler(replay, config.batch_sequences, 10**9, size.tokens)
        batch = sampler.sample(np.random.default_rng(0)).to(size.device)
    learner = Learner(agent)
    if compiled:  # with CUDA graphs; the samplers' generators stay outside
        agent.encoder.compile(mode="max-autotune-no-cudagraphs")
        agent.actor_critic.critics.compile(mode="reduce-overhead")
    seconds = _seconds(lambda: learner.update(batch), size)
    flops = cases.update_flops(config, agent, config.batch_sequences, size.tokens)
    memory = torch.cuda.max_memory_allocated() if size.device == "cuda" else 0
    return {"ms": seconds * 1e3, "tflops": flops / seconds / 1e12, "memory_gb": memory / 1e9}


def _seconds(call: Callable[[], object], size: Size) -> float:
    wait = torch.cuda.synchronize if size.device == "cuda" else (lambda: None)
    for _ in range(size.timed // 4):
        call()
    wait()
    start = time.perf_counter()
    for _ in range(size.timed):
        call()
    wait()
    return (time.perf_counter() - start) / size.timed


def _trainer(
    envs: Any, horizon: int, device: str, folder: Path, state: Found | None = None, **settings: Any
) -> Trainer:
    """A training from the start or from `state`."""
    config = Config(
        encoder_hidden=(32,), encoder_width=32, width=32, layers=2, heads=2, actor_critic_hidden=(32, 32),
        discounts=(0.5, 0.9), steps_per_iteration=8, updates_per_iteration=8, batch_sequences=16, warmup_updates=20,
        replay_tokens=20_000, replay_trajectories=2_000,
    ).replace(settings)  # fmt: skip
    seed = np.random.SeedSequence(1000)
    agent = Agent(config, envs.single_observation_space, envs.single_action_space, Rollout(horizon), seed, device)
    return Trainer(agent, envs, seed, folder, state)


def _finite(trainer: Trainer) -> bool:
    weights = all(torch.isfinite(p).all().item() for p in trainer.agent.parameters())
    return weights and not trainer.learner.skipped


def _numbers(state: Any) -> bytes:
    """All tensors of a nested state, byte by byte."""
    if isinstance(state, dict):
        return b"".join(_numbers(part) for part in state.values())
    return state.cpu().numpy().tobytes() if isinstance(state, torch.Tensor) else b""


CHECKS: tuple[Callable[[Size], Found], ...] = (
    flash_equals_reference,
    acting_equals_learning,
    autocast_leaves_a_gru_alone,
    bfloat16_decides_as_float32,
    trainings_stay_finite,
    resumes_where_it_was,
    moves_to_a_cpu,
    speed,
)


def main(output: Path) -> int:
    """Runs all checks; 1 if one fails, 2 without a card."""
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was checked", file=sys.stderr)
        return 2
    report: Found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "checks": {}}
    for check in CHECKS:
        start = time.perf_counter()
        try:
            result: Found = {"passed": True, "found": check(Size())}
        except Exception as error:
            traceback.print_exc()
            result = {"passed": False, "error": f"{type(error).__name__}: {error}"}
        report["checks"][check.__name__] = result | {"seconds": time.perf_counter() - start}
        print(check.__name__, "passed" if result["passed"] else "FAILED", flush=True)
        output.write_text(json.dumps(report, indent=2) + "\n")
    return int(not all(entry["passed"] for entry in report["checks"].values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
