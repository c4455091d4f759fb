"""How an image is built, by an unprivileged user and without any image registry."""
