"""Every oracle test writes what it measured; the session puts the rows together in build/oracles.json.

`make oracles` starts from no rows, runs these tests alone and copies the result to figures/results/oracles.json.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS, MERGED = ROOT / "build" / "oracles", ROOT / "build" / "oracles.json"


@pytest.fixture
def record(request):
    """record(oracle, version, covers, quantity, value, limit): keep a measured number and hold it to its limit.

    oracle, version   the outside program
    covers            what was compared, in words; rows with the same words become one, with the largest value
    quantity          what the number is
    value, limit      the number and the most it may be; limit None: only told
    """
    rows = []

    def keep(oracle, version, covers, quantity, value, limit):
        rows.append({"oracle": oracle, "version": version, "covers": covers, "quantity": quantity,
                     "value": float(value), "limit": limit})
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", request.node.nodeid).strip("_")
        ROWS.mkdir(parents=True, exist_ok=True)
        (ROWS / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        assert limit is None or value <= limit, f"{oracle}, {covers}: {quantity} is {value:g}, at most {limit:g} wanted"

    return keep


def pytest_sessionfinish(session):
    """One process writes the merged rows: the only one, or the one that watches the others."""
    if not hasattr(session.config, "workerinput") and ROWS.is_dir():
        MERGED.write_text(json.dumps({"rows": merged(ROWS)}, indent=1) + "\n", encoding="utf-8")


def merged(folder):
    """The rows of all tests, one for each thing compared: its largest value and in how many tests it was measured."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        for row in json.loads(file.read_text(encoding="utf-8")):
            key = tuple(row[name] for name in ("oracle", "version", "covers", "quantity"))
            best = found.setdefault(key, {**row, "times": 0})
            best["value"], best["times"] = max(best["value"], row["value"]), best["times"] + 1
    return [found[key] for key in sorted(found)]
