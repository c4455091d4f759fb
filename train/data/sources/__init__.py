"""Where data sets come from: each file finds one, or serves those that do."""
