"""Records with class scores, for the tests of both topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.analysis.builders import config, record
from train.record.run import Classification, ClassScore, RunRecord

NAMES = ("ant", "bee", "<cat>")


def scored(
    matrix: Sequence[Sequence[int]], run: Any = None, names: Sequence[str] = NAMES, **changes: Any
) -> RunRecord:
    """A record with this confusion; its scores by the definitions, written out."""
    scores = []
    for i, name in enumerate(names):
        hits, there, said = matrix[i][i], sum(matrix[i]), sum(row[i] for row in matrix)
        scores.append(
            ClassScore(
                name=name,
                precision=hits / said if said else None,
                recall=hits / there if there else None,
                f1=2 * hits / (said + there) if said + there else None,
                support=there,
            )
        )
    found = Classification(
        epoch=3, classes=tuple(scores), confusion=tuple(tuple(row) for row in matrix)
    )
    return record(run or config(), classification=found, **changes)


FIRST = [[6, 2, 0], [1, 3, 0], [4, 0, 4]]
SECOND = [[8, 0, 0], [4, 0, 0], [0, 0, 8]]  # no bee predicted
