"""The table of all comparison parts, made from the registries: `python -m k3_scratch.baselines.table`."""

from k3_scratch.baselines.ffns import FFNS
from k3_scratch.baselines.mixers import MIXERS
from k3_scratch.baselines.residuals import RESIDUALS

COLUMNS = ("name", "part", "used by", "the equation", "keeps of a sequence (numbers)", "source")


def baseline_table():
    """A Markdown table, one row a part; what K3 has is among them.                                        -> str"""
    entries = [*MIXERS.values(), *FFNS.values(), *RESIDUALS.values()]
    rows = [(f"`{entry.name}`", entry.part, entry.used_by, f"`{entry.equation}`", getattr(entry, "keeps", "–"),
             entry.source) for entry in entries]
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    print(baseline_table(), end="")
