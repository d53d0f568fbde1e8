"""Draw functions for experiments: they take a result (the JSON as a dict) and give arrays to `plots/`."""

from functools import partial

from k3_scratch.lab.summary import spread
from k3_scratch.plots.lab_curves import lab_curves
from k3_scratch.plots.lab_dots import lab_dots


def dots(values, *, title, x_label, **options):
    """A draw function: dots for each seed. values {value name: panel title}, or one name: then a panel for each size.

    A list of (value name, words) gives a panel for each value and size, the words behind the name of the size.
    options as of `lab_dots`
    """
    return partial(_dots, values=values, options={"title": title, "x_label": x_label, **options})


def curves(lines, *, x, title, x_label, y_label, **options):
    """A draw function: curves of every seed. lines {name in "curve": panel title}, or one name: a panel for each size.

    x        name in "curve" of what is drawn to the right, such as "step"
    options  as of `lab_curves`
    """
    return partial(_curves, lines=lines, x=x,
                   options={"title": title, "x_label": x_label, "y_label": y_label, **options})


def curves_of(result, size, line, x):
    """{variant: (x [n], runs [seeds, n])} of one size; runs that ended early go on with their last value."""
    found = {}
    for cell in result["cells"]:
        if (size is None or cell["size"] == size) and line in cell.get("curve", {}):
            found.setdefault(cell["variant"], []).append((cell["curve"][x], cell["curve"][line]))
    drawn = {}
    for variant, runs in found.items():
        longest = max((places for places, _ in runs), key=len)
        drawn[variant] = longest, [[*line, *[line[-1]] * (len(longest) - len(line))] for _, line in runs]
    return drawn


def sizes_of(result):
    """Names of the sizes in a result, in order."""
    return list(dict.fromkeys(cell["size"] for cell in result["cells"]))


def _dots(result, values, options):
    if isinstance(values, str):
        values = [(values, "")]
    if isinstance(values, (list, tuple)):
        panels = {size + words: _rows(result, value, size) for value, words in values for size in sizes_of(result)}
    else:
        panels = {title: _rows(result, value, None) for value, title in values.items()}
    return lab_dots({title: rows for title, rows in panels.items() if rows}, **options)


def _rows(result, value, size):
    found = {name: spread(result, name, value, size) for name in result["variants"]}
    return {name: numbers.values for name, numbers in found.items() if numbers}


def _curves(result, lines, x, options):
    if isinstance(lines, str):
        panels = {size: curves_of(result, size, lines, x) for size in sizes_of(result)}
    else:
        panels = {title: curves_of(result, None, line, x) for line, title in lines.items()}
    return lab_curves({title: drawn for title, drawn in panels.items() if drawn}, **options)
