"""Statistics of the report: intervals, differences, further runs, times that may never come.

The unit is one full run. docs/statistics.md has the rules, and what simulation says of them.
"""
