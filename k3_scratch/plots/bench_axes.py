"""Axes of the benchmark's pictures: logarithmic ones with plain numbers, and labels that are written last."""

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from k3_scratch.plots.style import label_ends


def plain_log(axes, which="y"):
    """A logarithmic axis in base 10 that writes 20 and 1,000 in place of powers."""
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    axis = axes.yaxis if which == "y" else axes.xaxis
    low, high = axes.get_ylim() if which == "y" else axes.get_xlim()
    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def log_lengths(axes, lengths):
    """An x axis of token counts in base 2, a tick for each length: 512, 1k, 16k."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [tokens(length) for length in lengths])
    axes.minorticks_off()


def tokens(length):
    """
    >>> tokens(512), tokens(16384)
    ('512', '16k')
    """
    return f"{length / 1024:g}k" if length >= 1024 and length % 1024 == 0 else f"{length:g}"


def label_panels(figure, panels):
    """Write the ends of all lines once the layout stands.       panels [(axes, ends, labels, colours)]"""
    figure.get_layout_engine().execute(figure)
    for axes, ends, labels, colours in panels:
        label_ends(axes, ends, labels, colours)
