"""Two experiments that take a moment, beside the real ones: `tiny/`."""

from pathlib import Path

import pytest

TINY = Path(__file__).parent / "tiny"


@pytest.fixture(scope="session")
def tiny():
    """The folder of the small experiments."""
    return TINY
