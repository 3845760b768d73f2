"""What cannot be tested without a GPU: the flash backend, acting and learning on the card, and how fast it learns.

usage: python tests/gpu/check.py OUTPUT.json
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from amago_core.agent import Agent
from amago_core.config import Config, Rollout
from amago_core.learner import Learner
from amago_core.nets import attention
from amago_core.seeding import child
from amago_core.sequences import Packing
from amago_core.train import Trainer
from benchmarks.catalog import get_task
from benchmarks.harness_env import HarnessEnv
from benchmarks.throughput import cases

TOKENS, SEQUENCES = 1_000, 24


def flash_equals_reference() -> dict[str, Any]:
    """The largest difference of outputs and gradients, half precision, ragged lengths."""
    packing = Packing([1, 7, 64, 300], "cuda")
    grids = [torch.randn(packing.tokens, 4, 32, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
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


def cached_equals_full() -> dict[str, Any]:
    """Acting step by step and learning at once give the same states, float32."""
    rollout = Rollout(40)
    agent = _agent(Config(width=64, layers=2, heads=2, encoder_hidden=(64,), encoder_width=32), rollout).eval()
    model, (slots, steps) = agent.sequence_model, (5, 40)
    tokens = torch.randn(slots, steps, 32, device="cuda")
    position = torch.arange(steps, device="cuda")
    with torch.no_grad():
        full = model(tokens.flatten(0, 1), Packing([steps] * slots, "cuda"), position.repeat(slots))
        cache = model.new_cache(slots)
        stepped = torch.stack([model.step(tokens[:, t], cache, position[t].expand(slots)) for t in range(steps)], 1)
    worst = float((full.view_as(stepped) - stepped).abs().max())
    assert worst < 1e-3, f"acting differs from learning by {worst:.2g}"
    return {"largest difference": worst}


def learner_speed() -> dict[str, Any]:
    """Milliseconds of an update, width 256, 24 sequences of 1,000 tokens, bfloat16."""
    found = {}
    for backend in ("sdpa", "flash"):
        for compiled in (False, True):
            name = f"{backend}{', compiled' if compiled else ''}"
            try:
                found[name] = _update_ms(backend, compiled)
            except Exception as error:  # one way that does not work here must not hide the others
                found[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    assert any(isinstance(value, dict) for value in found.values()), f"no way of learning works: {found}"
    return found


def _update_ms(backend: str, compiled: bool) -> dict[str, float]:
    config = cases.WIDE.replace({"attention": backend, "dtype": "bfloat16"})
    agent = _agent(config, Rollout(TOKENS - 1))
    assert agent.attention == backend, agent.attention_note
    with tempfile.TemporaryDirectory() as folder:
        replay = cases.filled_replay(agent, Path(folder), TOKENS)
        batch = replay.sample(np.random.default_rng(0), SEQUENCES, 10**9, TOKENS).to("cuda")
    learner = Learner(agent)
    if compiled:  # with CUDA graphs; the samplers' generators stay outside
        agent.encoder.compile(mode="max-autotune-no-cudagraphs")
        agent.actor_critic.critics.compile(mode="reduce-overhead")
    for _ in range(5):
        learner.update(batch)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        learner.update(batch)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / 20
    flops = cases.update_flops(config, agent, SEQUENCES, TOKENS)
    return {"ms": seconds * 1e3, "tflops": flops / seconds / 1e12, "memory_gb": torch.cuda.max_memory_allocated() / 1e9}


def short_training() -> dict[str, Any]:
    """Corridor 10 from nothing, on the card."""
    task = get_task("long_term_memory/tmaze/passive-10")
    from benchmarks.agents.presets import configure

    config = configure("amago", task, "laptop", {})
    agent = _agent(config, Rollout(task.horizon))
    envs = HarnessEnv(task.make(32), task, np.random.SeedSequence(1000), "train")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(agent, envs, child(1000, "agent"), Path(folder))
        start = time.perf_counter()
        for progress in trainer.run():
            if progress.updates >= 600:
                break
    finite = all(torch.isfinite(p).all().item() for p in agent.parameters())
    assert finite and trainer.learner.skipped == 0, "weights or gradients are not finite"
    return {"updates": 600, "seconds": time.perf_counter() - start, "critic": progress.metrics["critic"]}


def _agent(config: Config, rollout: Rollout) -> Agent:
    env = get_task("long_term_memory/tmaze/passive-10").make(1)
    seed = np.random.SeedSequence(0)
    return Agent(config, env.single_observation_space, env.single_action_space, rollout, seed, "cuda")


CHECKS: tuple[Callable[[], dict[str, Any]], ...] = (
    flash_equals_reference,
    cached_equals_full,
    learner_speed,
    short_training,
)


def main(output: Path) -> int:
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was checked", file=sys.stderr)
        return 2
    report: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "checks": {}}
    for check in CHECKS:
        start = time.perf_counter()
        try:
            result = {"passed": True, "found": check()}
        except Exception as error:
            traceback.print_exc()
            result = {"passed": False, "error": f"{type(error).__name__}: {error}"}
        report["checks"][check.__name__] = result | {"seconds": time.perf_counter() - start}
        print(check.__name__, "passed" if result["passed"] else "FAILED", flush=True)
        output.write_text(json.dumps(report, indent=2) + "\n")
    return int(not all(entry["passed"] for entry in report["checks"].values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
