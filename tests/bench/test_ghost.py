"""The comparison of step times, on steps of known cost."""

from __future__ import annotations

from tests.bench import ghost as bench_ghost


def test_ratios_are_of_neighbours_in_time_and_all_take_turns(monkeypatch) -> None:
    """The machine gets slower by half from round to round, which a ratio must not see."""
    now, order, pace = [0.0], [], [1.0]

    def step(name: str, seconds: float):
        def run() -> None:
            order.append(name)
            now[0] += seconds * pace[0]
            if len(order) % 3 == 0:
                pace[0] *= 1.5

        return run

    monkeypatch.setattr(bench_ghost.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(bench_ghost.time, "process_time", lambda: 2 * now[0])
    steps = {"plain": step("plain", 1.0), "a": step("a", 1.25), "b": step("b", 3.0)}
    found = bench_ghost.costs(steps, "plain", 5)
    assert {name: round(cost.ratio, 9) for name, cost in found.items()} == {
        "plain": 1, "a": 1.25, "b": 3,
    }  # fmt: skip
    assert found["a"].cpu_ratio == found["a"].ratio
    assert order[:3] == ["plain", "a", "b"], "once for the graphs"
    assert ["".join(name[0] for name in order[i : i + 3]) for i in range(3, 18, 3)] == [
        "pab", "abp", "bpa", "pab", "abp",
    ]  # fmt: skip
