"""The proof that each technique is the published algorithm: a table of errors, made by the tests.

A test that proves something of science says so through the ``invariant`` fixture; ``make
invariants`` runs those tests and prints technique x invariant x observed error x bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from rich.console import Console
from rich.table import Table

Invariant = Callable[[str, str, float, float], None]


@dataclass(frozen=True)
class Finding:
    technique: str
    statement: str
    error: float
    bound: float

    @property
    def holds(self) -> bool:
        return math.isfinite(self.error) and abs(self.error) <= self.bound


#: Of what the whole proof consists: at least one test of each number of T0 to T16, of the noise
#: scale (S2) and of Muon (S5).
WHOLE = {*(f"T{number}" for number in range(17)), "S2", "S5"}
FINDINGS = pytest.StashKey[list[Finding]]()


@pytest.fixture
def invariant(request: pytest.FixtureRequest) -> Invariant:
    """``invariant("T6 LARS", "first step is lr eta |w| for any gradient scale", error, bound)``.

    Fails the test where the error is no number or above the bound; keeps it for the table.
    """

    def check(technique: str, statement: str, error: float, bound: float) -> None:
        found = Finding(technique, statement, float(error), float(bound))
        request.config.stash[FINDINGS].append(found)
        assert found.holds, f"{technique}: {statement}: error {error:.3g}, bound {bound:.3g}"

    return check


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses the fixture carries the mark, so that `-m invariant` finds it."""
    for item in items:
        if "invariant" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.invariant)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FINDINGS] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--whole-proof",
        action="store_true",
        help="fail where a number has no invariant (one process)",
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--whole-proof") and missing(session.config.stash[FINDINGS]):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(config: pytest.Config) -> None:
    findings = config.stash[FINDINGS]
    console = Console(width=130)
    if findings and config.getoption("-m") == "invariant":
        console.print(table_of(findings))
    if config.getoption("--whole-proof") and (gaps := missing(findings)):
        console.print(f"[red]Not shown at all: {', '.join(gaps)}[/]")


def missing(findings: list[Finding]) -> list[str]:
    """Parts of the whole proof that no test has reported: one that lost the fixture, say, or that
    failed before it got there."""
    return sorted(WHOLE - {_number(found.technique) for found in findings}, key=_place)


def table_of(findings: list[Finding]) -> Table:
    """Worst error of each (technique, statement), in the order of the techniques' numbers."""
    worst: dict[tuple[str, str], Finding] = {}
    for found in findings:
        key = (found.technique, found.statement)
        old = worst.get(key)
        if old is None or not found.holds or abs(found.error) > abs(old.error):
            worst[key] = found
    table = Table(title="Invariants")
    for name, side in (("technique", "left"), ("invariant", "left"), ("error", "right"),
                       ("bound", "right"), ("", "left")):  # fmt: skip
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for found in sorted(worst.values(), key=lambda f: _place(f.technique)):
        mark = "[green]holds[/]" if found.holds else "[red]BROKEN[/]"
        table.add_row(
            found.technique, found.statement, f"{found.error:.2g}", f"{found.bound:.2g}", mark
        )
    return table


def _place(technique: str) -> tuple[int, str]:
    number = _number(technique).removeprefix("T")
    return (int(number) if number.isdigit() else 99, technique)


def _number(technique: str) -> str:
    return technique.split(maxsplit=1)[0]
