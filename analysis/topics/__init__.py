"""What the report is about: each topic makes its tables and figures from the frames of a sweep."""
