import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))       # course_helpers


@pytest.fixture(autouse=True)
def no_progress_is_kept(monkeypatch, tmp_path):
    """No test writes beside the notebooks, and none sees what another has done."""
    from k3_scratch.course import progress  # noqa: F401
    monkeypatch.setattr(sys.modules["k3_scratch.course.progress"], "_session", {})
    monkeypatch.setenv("K3_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.delenv("K3_STRICT", raising=False)
