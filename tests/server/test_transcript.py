"""What the server keeps of what it heard: the round that it is of, and no other."""

from __future__ import annotations

from pathlib import Path

from fedkge.server.transcript import Transcript


def test_an_absent_client_does_not_appear_with_an_older_upload(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path, "last")
    transcript.hear("train", 0, b"first")
    transcript.hear("train", 1, b"first")
    transcript.settle_round(1, {}, {}, may_end=False)
    transcript.hear("train", 0, b"second")
    transcript.settle_round(2, {}, {}, may_end=True)
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("round-000002/*.bin")}
    assert kept == {"client-0.bin": b"second"}
