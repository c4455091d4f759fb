"""From a folder of records to frames: read, hold against their own configs, taken apart, cached."""
