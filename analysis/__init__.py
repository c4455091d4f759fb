"""From the records of a sweep to tables, figures and one report. Never touches a job or a rank."""
