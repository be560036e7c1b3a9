"""Beats: what a process says while it waits."""

from advisor.runtime.beats import awaited, beat, beating, heard_by, in_thread


def test_only_the_main_thread_beats() -> None:
    """A worker says nothing about the loop of the main thread, and what it waits for runs in it."""
    heard: list[str] = []
    with heard_by(lambda: heard.append("main")):
        assert awaited(in_thread(lambda: beating(lambda: beat() or 7))) == 7
        assert heard == []
        beat()
    assert heard == ["main"]
