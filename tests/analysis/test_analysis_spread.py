"""Means, spreads and tables of what several seeds have measured."""

import pytest

from k3_scratch.analysis.spread import Spread, brief_table, spread, table


def cell(variant, size, seed, **values):
    return {"variant": variant, "size": size, "seed": seed, "values": values}


def result(**variants):
    """A result with one value "v" at one size: variant=[value of each seed]."""
    return {"table": [], "cells": [cell(name, "", seed, v=value)
                                   for name, values in variants.items() for seed, value in enumerate(values)]}


# two variants, two sizes, two values, two seeds; "b" was not measured at the size "large"
BOTH = {"table": [], "cells": [cell(name, size, seed, hits=hits + seed, error=0.5)
                               for name, size, hits in (("a", "small", 1.0), ("a", "large", 3.0), ("b", "small", 7.0))
                               for seed in range(2)]}


def test_spread_and_table():
    numbers = result(a=[1.0, 2.0, 6.0], b=[2.0, 2.0, 2.0])
    assert spread(numbers, "a", "v") == Spread((1.0, 2.0, 6.0)) and spread(numbers, "c", "v") is None
    assert (spread(numbers, "a", "v").mean, spread(numbers, "a", "v").sd) == (3.0, pytest.approx(2.6457513))
    assert table(numbers) == ("| variant | v: mean ± sd (seeds) |\n| --- | --- |\n"
                              "| a | **3** ± 2.65 (1, 2, 6) |\n| b | **2** |\n")


def test_brief_table_of_one_value_at_one_size():
    numbers = result(a=[1.0, 2.0, 6.0], b=[2.0, 2.0, 2.0])
    assert brief_table(numbers) == "|  | v |\n| --- | ---: |\n| a | 3 ± 2.65 |\n| b | 2 |\n"


def test_brief_table_has_columns_for_values_and_sizes():
    head = "|  | hits, small | hits, large | error, small | error, large |\n| --- | ---: | ---: | ---: | ---: |\n"
    assert brief_table(BOTH) == (head + "| a | 1.5 ± 0.707 | 3.5 ± 0.707 | 0.5 | 0.5 |\n"
                                        "| b | 7.5 ± 0.707 | – | 0.5 | – |\n")
    assert brief_table(BOTH, values=["hits"]) == ("| hits | small | large |\n| --- | ---: | ---: |\n"
                                                  "| a | 1.5 ± 0.707 | 3.5 ± 0.707 |\n| b | 7.5 ± 0.707 | – |\n")
    assert brief_table(BOTH, ["error", "hits"], ["small"], ["b"]) == ("|  | error | hits |\n| --- | ---: | ---: |\n"
                                                                      "| b | 0.5 | 7.5 ± 0.707 |\n")
    assert "large" not in brief_table(BOTH, variants=["b"])              # a column in which nothing was measured
    assert brief_table({**BOTH, "table": ["error"]}).startswith("| error | small | large |")


def test_a_bar_in_a_name_does_not_break_the_table():
    assert "| a\\|b | 1 |" in brief_table(result(**{"a|b": [1.0]}))


@pytest.mark.parametrize(("asked", "message"), [
    ({"values": ["height"]}, "values must be among .*'hits', 'error'.*, but 'height' came"),
    ({"sizes": ["huge"]}, "sizes must be among .*'small', 'large'.*, but 'huge' came"),
    ({"variants": ["c"]}, "variants must be among .*'a', 'b'.*, but 'c' came")])
def test_unknown_names_are_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        brief_table(BOTH, **asked)
