"""The report: answers first, then the topics with their evidence, on one page."""
