"""Did a run learn, or did it diverge? Rules fixed before any result."""

from __future__ import annotations

import math

from train.config.plan import EpochPlan
from train.record.measurements import EpochRecord
from train.record.run import RunError
from train.step.result import StepResult

#: Final training loss above this multiple of the loss of guessing means diverged.
LOSS_FACTOR = 1.2
#: Final accuracies below this multiple of chance mean that the run never learned, but never more
#: than CHANCE_MARGIN above it: with two classes, 1.5 x chance would be 75 %.
CHANCE_FACTOR, CHANCE_MARGIN = 1.5, 0.05
#: Steps in a row that half precision may skip before the run counts as diverged.
MOST_SKIPPED = 20


def divergence(last: EpochRecord, classes: int, *, labelled: bool) -> RunError | None:
    """Of a run that came to its end; None if it learned.

    It has diverged if a loss of its last epoch is no number, if its training loss (without steps
    that half precision skipped) exceeds 1.2 times that of guessing, ln(classes), or if both
    accuracies end below the bound: a network that died sits at chance with a harmless loss.
    """
    if last.train_loss is None or last.validation_loss is None:
        which = "training" if last.train_loss is None else "validation"
        return _error(f"the last epoch's {which} loss is not finite", last.epoch)
    guessing = math.log(classes)
    if last.train_loss > LOSS_FACTOR * guessing:
        return _error(
            f"the last epoch's training loss is {last.train_loss:.3g}, above "
            f"{LOSS_FACTOR:g} x ln({classes}) = {LOSS_FACTOR * guessing:.3g}",
            last.epoch,
        )
    chance = 1 / classes
    bound = min(CHANCE_FACTOR * chance, chance + CHANCE_MARGIN)
    accuracies = (last.train_accuracy, last.validation_accuracy)
    if labelled and all(a is not None and a < bound for a in accuracies):
        return _error(
            f"training and validation accuracy ended at {accuracies[0]:.3f} and "
            f"{accuracies[1]:.3f}, below {bound:.3f} where chance is {chance:.3f}",
            last.epoch,
        )
    return None


def fatal(plan: EpochPlan, step: int, result: StepResult, skipped_in_a_row: int) -> RunError | None:
    """What ends the run at this step, from 1 in its epoch; the same on all ranks.

    skipped_in_a_row: steps up to this one, those of earlier epochs included.
    """
    epoch = plan.number + 1
    if skipped_in_a_row > MOST_SKIPPED:
        return _error(
            f"numbers overflowed in half precision in more than {MOST_SKIPPED} steps in a row, up "
            f"to step {step} of epoch {epoch}",
            epoch,
        )
    if not result.applied and not result.skipped:
        return _error(f"the mean gradient is not finite at step {step} of epoch {epoch}", epoch)
    return None


def _error(what: str, epoch: int) -> RunError:
    return RunError(
        what=what,
        where=f"epoch {epoch}",
        what_to_do="a result, not a fault: try a lower learning rate, warm-up, another technique",
    )
