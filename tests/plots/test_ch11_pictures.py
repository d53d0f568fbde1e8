import pytest
from picture_helpers import assert_readable, drawn_texts

from k3_scratch.plots.prefix_blocks import prefix_blocks
from k3_scratch.plots.style import PlotError

PROMPTS = {"a": 55, "b": 48, "c": 47, "d": 0, "e": 96}


def test_prefix_blocks_say_what_is_shared_and_what_is_used():
    figure = prefix_blocks(6, [1, 3, 6], PROMPTS)
    texts = drawn_texts(figure)
    words = [text.get_text() for text, _ in texts]
    for text in ("shared 55", "used 48", "shared 47", "used 16", "shared 0", "used 0", "used 96", "80–95"):
        assert text in words
    assert words.count("latents") == 6 and words.count("state") == 3 and words.count("used 48") == 2
    assert_readable(figure)


@pytest.mark.parametrize(("arguments", "says"), [
    ((0, [1], {"a": 1}), "states must rise"), ((3, [], {"a": 1}), "states must rise"),
    ((3, [2, 1], {"a": 1}), "states must rise"), ((3, [4], {"a": 1}), "states must rise"),
    ((3, [0, 1], {"a": 1}), "states must rise"), ((3, [1], {}), "prompts must share"),
    ((3, [1], {"a": 49}), "prompts must share 0 to 48"), ((3, [1], {"a": -1}), "prompts must share")])
def test_prefix_blocks_refuse(arguments, says):
    with pytest.raises(PlotError, match=says):
        prefix_blocks(*arguments)
