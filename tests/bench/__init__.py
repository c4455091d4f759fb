"""What a step costs, as ratios within one run: ``make bench``."""
