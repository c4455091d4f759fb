"""What Slurm grants a user: accounts, QoS and partitions; what scontrol says of nodes."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from grp import getgrgid

from jobs.messages import say
from jobs.slurm.client.run import Ask, SlurmError

#: sinfo says neither which cores a node keeps for itself nor who may use a partition (22.05).
NODES = ("scontrol", "--all", "--oneliner", "show", "node")
PARTITIONS = ("scontrol", "--all", "--oneliner", "show", "partition")
ACCOUNTS = ("sacctmgr", "--noheader", "--parsable2", "show", "user", "withassoc")
_ACCOUNT_COLUMNS = "DefaultAccount,DefaultQOS,Cluster,Account,QOS"
Row = Mapping[str, str]


@dataclass(frozen=True)
class User:
    """Who asks, as far as that decides what Slurm grants."""

    environment: Mapping[str, str]
    name: str | None = None  # None: an id without a name has no accounts
    groups: frozenset[str] | None = None  # None: root, whom no group keeps out
    # that the user may use, the default one first; none where nobody says
    accounts: Sequence[str] = ()
    qos: Sequence[str] = ()
    default_qos: str = ""  # that a job gets which names none; Slurm takes "normal" without another

    @classmethod
    def here(cls) -> User:
        name, groups = None, set()
        with suppress(KeyError):
            name = pwd.getpwuid(os.getuid()).pw_name
        for number in {os.getgid(), *os.getgroups()}:
            with suppress(KeyError):
                groups.add(getgrgid(number).gr_name)
        return cls(os.environ, name, frozenset(groups) if os.getuid() else None)

    def granted(self, ask: Ask, config: Row) -> User:
        """The same with what the accounts of the cluster say."""
        accounts, qos, default = [], [], ""
        if self.name and "none" not in config.get("AccountingStorageType", "none"):
            argv = (*ACCOUNTS, f"name={self.name}", f"format={_ACCOUNT_COLUMNS}")
            with suppress(SlurmError):
                for line in ask(argv).splitlines():
                    fields = line.split("|")
                    if len(fields) >= 5 and fields[2] in ("", cluster_name(config)):
                        accounts += [fields[0], fields[3]]
                        qos += [fields[1], *fields[4].split(",")]
                        default = default or fields[1]
        once = (list(dict.fromkeys(filter(None, names))) for names in (accounts, qos))
        found = replace(self, accounts=next(once), qos=next(once))
        return replace(found, default_qos=default or ("normal" if "normal" in found.qos else ""))


def cluster_name(config: Row) -> str:
    return config.get("ClusterName", "cluster")


def ask_if_allowed(ask: Ask, argv: Sequence[str]) -> str:
    """Its answer; none where it is refused for good: a site may keep nodes, or srun, from users of
    its login nodes."""
    try:
        return ask(argv)
    except SlurmError as error:
        if error.passing:
            raise
        say(f"{error}: SITE=auto goes without it")
        return ""


def read_rows(ask: Ask, argv: Sequence[str]) -> list[Row]:
    """scontrol's records, one a line, by its own names; none where it refuses. Of values with
    blanks, the first word."""
    rows = list[Row]()
    for line in ask_if_allowed(ask, argv).splitlines():
        if line.startswith(("NodeName=", "PartitionName=")):
            pairs = re.findall(r"(?:^|\s)([A-Za-z][\w/:]*)=(\S*)", line)
            rows.append(dict(reversed(pairs)))  # the first of a name counts
    return rows


def shut(row: Row, user: User) -> str:
    """Why a partition takes no jobs of this user; '' where it does, as far as Slurm says."""
    if user.groups is not None and row.get("RootOnly") == "YES":
        return "for root only"
    groups = {} if user.groups is None else {"Groups": sorted(user.groups)}
    for what, mine in {**groups, "Accounts": user.accounts, "Qos": user.qos}.items():
        if not any(takes(row, what, one) for one in mine or [""]):
            rule = row.get(f"Allow{what}") or f"all but {row[f'Deny{what}']}"
            return f"for {what.lower()} {rule}; yours: {', '.join(mine) or 'unknown'}"
    return ""


def takes(row: Row, what: str, name: str) -> bool:
    """Whether a partition takes this account, group or QoS."""
    allowed, denied = row.get(f"Allow{what}", "ALL"), row.get(f"Deny{what}", "")
    if what != "Groups":  # Slurm keeps names of accounts and QoS in small letters
        name, allowed, denied = name.lower(), allowed.lower(), denied.lower()
    return (allowed.lower() in ("all", "(null)") or name in allowed.split(",")) and (
        name not in denied.split(",") or not denied
    )
