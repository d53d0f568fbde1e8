"""What several seeds have measured: mean, spread, and tables of them, from a result of the lab (its JSON as a dict).

Here and not in the lab, because the notebooks show such tables as well.
"""

import statistics
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Some numbers, one a seed, in the order of the seeds."""

    values: tuple

    @property
    def mean(self):
        """Their mean."""
        return statistics.fmean(self.values)

    @property
    def low(self):
        """The smallest."""
        return min(self.values)

    @property
    def high(self):
        """The largest."""
        return max(self.values)

    @property
    def sd(self):
        """Standard deviation between seeds (n - 1); 0 for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def __str__(self):
        return f"{show(self.mean)} ({show(self.low)}…{show(self.high)})"


def show(value):
    """Three digits that count.

    >>> show(0.98765), show(12.345), show(1.234e-5), show(0.0), show(16384.0), show(0.04)
    ('0.988', '12.3', '1.2e-05', '0', '16,384', '0.04')
    """
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.1e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(result, variant, value, size=None):
    """The values of all seeds of a cell in a result, as a `Spread`; None when there are none.

    size None: of the only or first size at which the variant was measured
    """
    cells = [cell for cell in result["cells"] if cell["variant"] == variant and value in cell["values"]]
    if size is None and cells:
        size = cells[0]["size"]
    cells = sorted((cell for cell in cells if cell["size"] == size), key=lambda cell: cell["seed"])
    return Spread(tuple(float(cell["values"][value]) for cell in cells)) if cells else None


def fewest_seeds(result):
    """Seeds of the cell that has the fewest; "seeds" of the result counts all that there are."""
    return min(Counter((cell["variant"], cell["size"]) for cell in result["cells"]).values())


def seeds_text(result):
    """How many seeds a result has, in words.

    >>> cells = [{"variant": v, "size": "", "seed": s} for v, s in (("a", 0), ("a", 1), ("b", 0))]
    >>> seeds_text({"seeds": 2, "cells": cells})
    '1 seed, 2 where a difference is small beside its spread'
    """
    most, fewest = result["seeds"], fewest_seeds(result)
    if most == 1:
        return "one run, nothing is random"
    some = f"{fewest} seed{'s' if fewest > 1 else ''}"
    return some if most == fewest else f"{some}, {most} where a difference is small beside its spread"


def table(result):
    """Markdown: a row for each variant and size, mean and spread of each value, and the seeds one by one."""
    values = list(result["table"]) or list(dict.fromkeys(name for cell in result["cells"] for name in cell["values"]))
    rows = dict.fromkeys((cell["variant"], cell["size"]) for cell in result["cells"])
    sized = any(size for _, size in rows)
    several = len({cell["seed"] for cell in result["cells"]}) > 1
    heads = ["variant", *(["size"] if sized else []),
             *(f"{name}: mean ± sd (seeds)" if several else name for name in values)]
    lines = [heads, ["---"] * len(heads)]
    for variant, size in rows:
        cells = [_entry(spread(result, variant, name, size)) for name in values]
        lines.append([variant, *([size] if sized else []), *cells])
    return _markdown(lines)


def brief_table(result, values=None, sizes=None, variants=None):
    """Markdown for a page of text: a row for each variant, mean ± standard deviation for each value at each size.

    values, sizes, variants   which of them, and in which order; None: all.  ValueError names one that is not there
    """
    there = {"value": list(dict.fromkeys(name for cell in result["cells"] for name in cell["values"])),
             "size": list(dict.fromkeys(cell["size"] for cell in result["cells"])),
             "variant": list(dict.fromkeys(cell["variant"] for cell in result["cells"]))}
    for kind, asked in (("value", values), ("size", sizes), ("variant", variants)):
        for name in asked or ():
            if name not in there[kind]:
                raise ValueError(f"{kind}s must be among {there[kind]}, but {name!r} came")
    values, sizes = list(values or result["table"] or there["value"]), list(sizes or there["size"])
    rows = variants or there["variant"]
    columns = [(value, size) for value in values for size in sizes
               if any(spread(result, row, value, size) for row in rows)]
    one_value, one_size = len(values) == 1, len(sizes) == 1
    heads = [size or value if one_value else value if one_size else f"{value}, {size}" for value, size in columns]
    lines = [[values[0] if one_value and not one_size else "", *heads], ["---"] + ["---:"] * len(heads)]
    lines += [[row, *(_short(spread(result, row, value, size)) for value, size in columns)] for row in rows]
    return _markdown(lines)


def _markdown(lines):
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _short(numbers):
    if numbers is None:
        return "–"
    return show(numbers.mean) if numbers.low == numbers.high else f"{show(numbers.mean)} ± {show(numbers.sd)}"


def _entry(numbers):
    if numbers is None:
        return "–"
    if len(numbers.values) == 1 or numbers.low == numbers.high:
        return f"**{show(numbers.mean)}**"
    return f"**{show(numbers.mean)}** ± {show(numbers.sd)} ({', '.join(map(show, numbers.values))})"
