"""Levels and margins of the report, all in one place; docs/statistics.md gives their reasons."""

#: Of every interval, and of a whole family of simultaneous ones.
LEVEL = 0.95
#: Of every decision, and of a whole family of them.
ALPHA = 0.05
#: Of a test with as many further runs as the report says.
POWER = 0.8
#: Of the upper bound of a standard deviation that further runs are planned with.
CONFIDENCE = 0.8
#: A difference in accuracy that further runs are to show.
DETECTED = 0.02
#: Accuracies that differ by less are the same for any use made of them here.
SAME_ACCURACY = 0.01
#: A throughput below this share of an earlier one matters.
SLOWER = 0.95
#: Numbers of images that differ by a smaller share, as by an epoch's remainder, are one budget.
SAME_BUDGET = 0.05
