"""How long a million rows of the eICU schema take to become triples, and how much memory.

    python benchmarks/bench_mapping.py [--rows 1000000] [--format tsv]

The rows are drawn at random, in the proportions of the eICU demo's tables, and written as CSV files, one of
them packed; the mapping is the shipped one. The aim: a million rows in under 60 s and under 2 GB.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

DEMO_ROWS = {  # of the demo's 173,082
    "patient": 2_520,
    "hospital": 186,
    "treatment": 38_290,
    "admissionDrug": 7_417,
    "allergy": 2_475,
    "carePlanCareProvider": 5_627,
    "diagnosis": 24_978,
    "nurseAssessment": 91_589,
}
SECONDS, GIGABYTES = 60, 2.0


def words(rng: np.random.Generator, kind: str, kinds: int, count: int, filled: float = 1.0) -> list[str]:
    """Free text such as real tables have: blanks, slashes, percents, letters beyond ASCII."""
    numbers = rng.zipf(1.3, count) % kinds
    is_there = rng.random(count) < filled
    return [
        f"{kind} {number} | café 5%/d" if there else ""
        for number, there in zip(numbers, is_there, strict=True)
    ]


def columns(table: str, rows: int, stays: int, rng: np.random.Generator) -> dict[str, list[str] | list[int]]:
    """The columns of a table that the mapping reads."""
    own = (np.arange(rows) + 1).tolist()
    stay = rng.integers(1, stays + 1, rows).tolist()
    hospitals = max(stays // 14, 1)
    if table == "patient":
        return {
            "patientunitstayid": own,
            "gender": words(rng, "gender", 3, rows),
            "ethnicity": words(rng, "ethnicity", 6, rows, 0.98),
            "hospitalid": rng.integers(1, hospitals + 1, rows).tolist(),
            "unittype": words(rng, "unit", 8, rows),
            "uniquepid": [f"002-{number}" for number in stay],
        }
    if table == "hospital":
        return {"hospitalid": own, "region": words(rng, "region", 4, rows, 0.9)}
    columns_of = {
        "treatment": {"treatmentid": own},
        "admissionDrug": {
            "drugname": words(rng, "drug", 2_000, rows),
            "specialtytype": words(rng, "type", 20, rows),
        },
        "allergy": {
            "allergyname": words(rng, "allergy", 600, rows),
            "allergytype": words(rng, "kind", 3, rows),
        },
        "carePlanCareProvider": {"specialty": words(rng, "specialty", 40, rows, 0.9)},
        "diagnosis": {
            "diagnosisstring": words(rng, "organ|disorder", 2_500, rows),
            "icd9code": words(rng, "401.", 900, rows, 0.85),
        },
        "nurseAssessment": {"nurseassessid": own, "cellattribute": words(rng, "attribute", 80, rows)},
    }
    return {"patientunitstayid": stay, **columns_of[table]}


def write_tables(folder: Path, rows: int, seed: int = 0) -> int:
    """CSV files with so many rows in all; returns how many they are."""
    rng = np.random.default_rng(seed)
    share = rows / sum(DEMO_ROWS.values())
    stays = max(round(DEMO_ROWS["patient"] * share), 1)
    total = 0
    for table, count in DEMO_ROWS.items():
        count = max(round(count * share), 1)
        made = columns(table, count, stays, rng)
        lines = io.StringIO()
        lines.write(",".join(made) + "\n")
        lines.writelines(",".join(map(str, row)) + "\n" for row in zip(*made.values(), strict=True))
        text = lines.getvalue().encode()
        if table == "treatment":
            (folder / f"{table}.csv.gz").write_bytes(gzip.compress(text, 1))
        else:
            (folder / f"{table}.csv").write_bytes(text)
        total += count
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--format", choices=("tsv", "nt"), default="tsv")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tables").mkdir()
        rows = write_tables(folder / "tables", chosen.rows)
        out = folder / f"graph.{chosen.format}"
        command = ["data", "map", str(folder / "tables"), "--mapping", "eicu", "--out", str(out), "--json"]
        started = perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "fedkge.simulations.cli.main", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = perf_counter() - started
        if done.returncode:
            sys.exit(done.stderr)
        report = json.loads(done.stdout)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = out.stat().st_size
    memory = used.ru_maxrss / 1e6
    print("| rows | triples | seconds | of a processor | memory | file |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {rows:,} | {report['triples']:,} | {seconds:.1f} | {used.ru_utime + used.ru_stime:.1f} | "
        f"{memory:.2f} GB | {size / 1e6:.0f} MB |"
    )
    if seconds > SECONDS or memory > GIGABYTES:
        sys.exit(f"more than {SECONDS} s or {GIGABYTES} GB")


if __name__ == "__main__":
    main()
