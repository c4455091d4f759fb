"""Statistics of the report: intervals, differences, further runs, times that may never come.

The unit is one full run; of ratios of two networks it is a node. docs/statistics.md has the rules,
and what simulation says of them.
"""
