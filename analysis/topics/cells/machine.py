"""Which machines, networks and code the runs used, and what differs between them."""

from __future__ import annotations

from itertools import groupby

import pandas as pd

from analysis.provenance import machines, mixtures, provenance_rows
from analysis.table import Column, Row, Table, frame, types
from analysis.topics.topic import Caution, Topic

COLUMNS: tuple[Column, ...] = (
    Column("what", "string", "what"),
    Column("value", "string", "value", wide=True),
    Column("runs", "Int64", "runs"),
)
#: Values of one kind that the table names.
MOST = 20


def table(runs: pd.DataFrame) -> Table:
    """(what, value, number of runs) for every value found, the most common first."""
    found = [("machine", line, count) for line, count in machines(runs)]
    found += provenance_rows(runs)
    rows: list[Row] = []
    for what, group in groupby(found, key=lambda row: row[0]):
        values = [{"what": what, "value": value, "runs": count} for _, value, count in group]
        rows += values[:MOST]
        if rest := values[MOST:]:
            others = sum(row["runs"] for row in rest)
            rows.append({"what": what, "value": f"{len(rest)} others", "runs": others})
    return Table("provenance", "Machines and code", COLUMNS, frame(rows, COLUMNS), folded=True)


TRAFFIC: tuple[Column, ...] = (
    Column("interface", "string", "interface", "a network interface, or a port of InfiniBand"),
    Column("model", "string", "model", only_if_varied=True),
    Column("gpus", "Int64", "ranks"),
    Column("nodes", "Int64", "nodes"),
    Column("n", "Int64", "runs"),
    Column("received_mb", "Float64", "received", "by a node per training step: all bytes of the "
           "last attempt, evaluation included, over its steps; mean over nodes and runs",
           unit="MB"),
    Column("sent_mb", "Float64", "sent", unit="MB"),
)  # fmt: skip
FACTS = ("cpu", "gpu", "driver", "kernel", "image_digest")
HOSTS: tuple[Column, ...] = (
    Column("first_host", "string", "host", "of rank 0, which alone says what its machine is"),
    Column("cpu", "string", "CPU", only_if_varied=True),
    Column("gpu", "string", "GPU", only_if_varied=True),
    Column("driver", "string", "GPU driver", only_if_varied=True),
    Column("kernel", "string", "kernel", only_if_varied=True),
    Column("image_digest", "string", "image", only_if_varied=True),
    Column("runs", "Int64", "runs"),
)


def traffic(links: pd.DataFrame, epochs: pd.DataFrame, runs: pd.DataFrame) -> Table:
    """One row per interface, model, ranks and nodes; empty where only the loopback was used.

    ``links``: the frame of traffic.
    """
    used = links if (links["interface"] != "lo").any() else links.head(0)
    of = epochs.loc[epochs["cell_id"].isin(used["cell_id"]), ["cell_id", "attempt", "steps"]]
    last = of["attempt"] == of.groupby("cell_id", observed=True)["attempt"].transform("max")
    steps = of[last].groupby("cell_id", observed=True)["steps"].sum()
    summed = used.groupby(["cell_id", "interface"])[["received_bytes", "sent_bytes"]].sum()
    own = summed.reset_index().merge(runs[["cell_id", "model", "gpus", "nodes"]], on="cell_id")
    per = 1e6 * own["cell_id"].map(steps) * own["nodes"]
    own = own.assign(received_mb=own["received_bytes"] / per, sent_mb=own["sent_bytes"] / per)
    means = own.groupby(["interface", "model", "gpus", "nodes"]).agg(
        n=("cell_id", "size"), received_mb=("received_mb", "mean"), sent_mb=("sent_mb", "mean")
    )
    wanted = types(TRAFFIC)
    data = means.reset_index()[list(wanted)].astype(wanted)
    return Table("traffic", "Bytes per step and node", TRAFFIC, data, folded=True)


def hosts(runs: pd.DataFrame) -> Table:
    """One row per host and what it is; empty where all are alike."""
    found = runs.groupby(["first_host", *FACTS], dropna=False, sort=True).size().reset_index()
    alike = len(found[[*FACTS]].drop_duplicates()) < 2
    data = found.rename(columns={0: "runs"}).iloc[: 0 if alike else None]
    wanted = types(HOSTS)
    return Table(
        "hosts", "What differs between hosts", HOSTS, data[list(wanted)].astype(wanted), folded=True
    )


TOPIC = Topic(
    tables=(
        lambda of: traffic(of.frames.traffic, of.frames.epochs, of.runs),
        lambda of: hosts(of.runs),
        lambda of: table(of.runs),
    ),
    cautions=(lambda of: (Caution(*mixture) for mixture in mixtures(of.runs)),),
)
