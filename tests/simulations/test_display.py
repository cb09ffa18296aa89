"""Progress of the command line, in a pipe."""

from __future__ import annotations

import pytest

from fedkge.simulations.cli import display


def test_counted_steps_tell_a_pipe_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of what is over in a moment, then a line every few seconds, as it is."""
    now = 0.0
    monkeypatch.setattr(display, "monotonic", lambda: now)
    with display.StepDisplay("mapping") as steps:
        for now, done in ((1.0, 1), (2.5, 2), (3.0, 3), (8.0, 4)):  # noqa: B007  (the clock)
            steps.show(done, 9, f"table [{done}]")
    told = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert told == ["mapping  2 of 9  table [2]", "mapping  4 of 9  table [4]"]
    with display.StepDisplay("mapping", quiet=True) as steps:
        now = 99.0
        steps.show(1, 9, "table")
    assert capsys.readouterr().err == ""
