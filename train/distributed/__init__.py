"""Ranks: how they start, meet, talk, and end when something hangs."""
