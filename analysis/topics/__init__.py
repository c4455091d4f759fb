"""What the report is about: a topic makes its tables, figures, answers and cautions of a sweep."""
