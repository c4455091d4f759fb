"""What all programs share: what they see of their user's environment, their command line, streams
and exit codes."""
