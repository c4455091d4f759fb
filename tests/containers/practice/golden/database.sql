CREATE DATABASE IF NOT EXISTS practice_accounting;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON practice_accounting.* TO slurm@localhost;
