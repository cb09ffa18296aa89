"""The same bits, whether kernels were compiled in this process or came from the disk, in whatever order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORK = """
import hashlib
import sys
import numpy as np
from fedkge.client.kernels.gradients import triple_gradients
from fedkge.client.models import build_model
from fedkge.client.training.negatives import NegativeSampler
from fedkge.client.training.steps import KernelStep
from fedkge.datasets import load_graph
from fedkge.experiment import ModelSettings, TrainingSettings

graph, settings = load_graph("UMLS"), TrainingSettings(negatives=16, learning_rate=0.01)
if "passes" in sys.argv:  # they share kernels with a step
    model = build_model(ModelSettings(dim=8), graph, 1)
    batch = NegativeSampler(graph, settings).batch(np.arange(200), np.random.default_rng(1))
    step = KernelStep(model, settings)
    triples = triple_gradients(model, step.objective, batch)
    rows = np.arange(graph.num_entities, dtype=np.int32)
    step.optimizer.begin_step()
    step.optimizer.update("entity", rows, triples.entity_sums(model.tables["entity"]).rows(rows))
model = build_model(ModelSettings(dim=8), graph, 0)
step, sampler = KernelStep(model, settings), NegativeSampler(graph, settings)
for seed in range(5):
    step(sampler.batch(np.arange(200), np.random.default_rng(seed)))
print(hashlib.sha256(b"".join(table.tobytes() for table in model.tables.values())).hexdigest())
"""


def run(cache: Path, *words: str) -> str:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", WORK, *words], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_bits_do_not_depend_on_who_compiled_and_what_was_loaded_before(tmp_path: Path) -> None:
    compiled = run(tmp_path, "passes")
    assert any(tmp_path.rglob("*.nbc"))
    assert run(tmp_path, "passes") == compiled  # from the disk, passes first
    assert run(tmp_path) == compiled  # from the disk, the step alone
