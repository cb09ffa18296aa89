"""Files that are whole, whoever else writes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from fedkge.storage import staged


def test_two_threads_that_write_one_file_leave_it_whole(tmp_path: Path) -> None:
    target, together = tmp_path / "encoding", Barrier(2, timeout=30)

    def write(letter: str) -> None:
        with staged(target) as partial, partial.open("w", encoding="utf-8") as file:
            for _ in range(50):
                together.wait()
                file.write(letter * 100)
                file.flush()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, "ab"))
    assert target.read_text(encoding="utf-8") in ("a" * 5000, "b" * 5000)
    assert [path.name for path in tmp_path.iterdir()] == ["encoding"]
