"""Whole tournaments on this machine's loopback: real coordinator, agents and streams, no Slurm."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest

from train.distributed.interfaces import Interface
from train.interconnect.diagnosis import noise as steady
from train.interconnect.measure.agent import run_agent
from train.interconnect.measure.coordinator import Coordinator
from train.interconnect.measure.meeting import Lines, Meeting, MeetingError, join, look_up, publish
from train.interconnect.measure.rounds import Pair
from train.interconnect.measure.stream import Plan
from train.interconnect.record import Clock, Tournament
from train.interconnect.tournament import play


@pytest.fixture(autouse=True)
def one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is always its processors' limit, and samples of 5 ms are too short to share."""
    monkeypatch.setattr(steady, "STREAMS", ())
    monkeypatch.setattr("train.interconnect.measure.coordinator.SILENCE_S", 60.0)


QUICK = Plan(samples=3, sample_s=0.005, largest=1 << 20)
LOOPBACK = Interface("lo", "127.0.0.1")
TOKEN = "t" * 32


def agent(port: int, name: str, token: str = TOKEN) -> threading.Thread:
    control = join(Meeting("127.0.0.1", port, token), "127.0.0.1")
    thread = threading.Thread(target=run_agent, args=(control, name, LOOPBACK, token), daemon=True)
    thread.start()
    return thread


async def with_agents(names: list[str], work: Callable, world: int | None = None):
    coordinator = Coordinator(TOKEN)
    port = await coordinator.serve("127.0.0.1")
    threads = [await asyncio.to_thread(agent, port, name) for name in names]
    await coordinator.gather(world or len(names), 60)
    try:
        return await work(coordinator, port)
    finally:
        await coordinator.end()
        for thread in threads:
            await asyncio.to_thread(thread.join, 60)
            assert not thread.is_alive()


def test_every_ordered_pair_is_measured_and_the_record_is_whole() -> None:
    said: list[str] = []

    async def work(coordinator: Coordinator, _port: int) -> Tournament:
        return await play(coordinator, QUICK, 0, said.append)

    found = asyncio.run(with_agents(["c", "a", "b", "d"], work))
    assert [node.name for node in found.nodes] == ["a", "b", "c", "d"]
    pairs = {(m.sender, m.receiver) for m in found.measurements if m.phase == "tournament"}
    assert len(pairs) == 12 and found.lost == {}
    for m in found.measurements:
        assert m.error is None and m.wrong_bytes == 0 and len(m.rates) == QUICK.samples
        assert m.at_sender.sent_bytes >= m.bytes and m.at_receiver.received_bytes >= m.bytes
    assert found.noise is not None and found.noise.together is not None
    assert Tournament.model_validate_json(found.model_dump_json()) == found
    assert any(text.startswith("round 1 of") for text in said)


def test_the_clocks_of_nodes_that_share_one_agree_and_the_lost_have_none() -> None:
    async def work(coordinator: Coordinator, _port: int) -> dict[str, Clock]:
        coordinator._agents["c"].lost = "no answer"
        return await coordinator.clocks()

    found = asyncio.run(with_agents(["a", "b", "c"], work))
    assert set(found) == {"a", "b"}
    for clock in found.values():
        assert abs(clock.ahead_s) <= clock.within_s + 1e-3 and clock.within_s < 1


def test_short_of_time_it_says_what_is_missing() -> None:
    async def work(coordinator: Coordinator, _port: int) -> Tournament:
        return await play(coordinator, QUICK, 0, lambda _: None, limit_s=1e-6)

    found = asyncio.run(with_agents(["a", "b", "c", "d"], work))
    assert found.cut is not None and "rounds were measured in" in found.cut
    assert not [m for m in found.measurements if m.phase == "tournament"]


def test_an_agent_that_dies_is_a_reason_and_the_others_go_on() -> None:
    async def work(coordinator: Coordinator, port: int) -> Tournament:
        return await play(
            coordinator, QUICK, 0, lambda text: kill() if "round 2 " in text else None
        )

    dying: list[socket.socket] = []

    def kill() -> None:
        dying[0].shutdown(socket.SHUT_RDWR)

    async def main() -> Tournament:
        coordinator = Coordinator(TOKEN)
        port = await coordinator.serve("127.0.0.1")
        for name in ("a", "b", "c"):
            await asyncio.to_thread(agent, port, name)
        connection = socket.create_connection(("127.0.0.1", port))
        dying.append(connection)
        lines = Lines(connection)
        threading.Thread(target=run_agent, args=(lines, "d", LOOPBACK, TOKEN), daemon=True).start()
        await coordinator.gather(4, 60)
        try:
            return await work(coordinator, port)
        finally:
            await coordinator.end()

    found = asyncio.run(main())
    assert set(found.lost) == {"d"} and "closed the connection" in found.lost["d"]
    failed = [m for m in found.measurements if m.error]
    assert failed and all("d" in (m.sender, m.receiver) for m in failed)
    assert all("the node is gone" in m.error for m in failed)
    good = {(m.sender, m.receiver) for m in found.measurements if m.rates}
    assert {(x, y) for x in "abc" for y in "abc" if x != y} <= good


def test_who_does_not_know_the_token_is_not_let_in() -> None:
    async def main() -> int:
        coordinator = Coordinator(TOKEN)
        port = await coordinator.serve("127.0.0.1")
        thread = await asyncio.to_thread(agent, port, "a", "wrong")
        await coordinator.gather(1, 0.3)
        await asyncio.to_thread(thread.join, 60)
        assert not thread.is_alive()
        return len(coordinator.nodes)

    assert asyncio.run(main()) == 0


def test_two_agents_of_one_node_count_once() -> None:
    async def work(coordinator: Coordinator, port: int) -> int:
        return len(coordinator.nodes)

    assert asyncio.run(with_agents(["a", "a", "b"], work, world=2)) == 2


def test_a_receiver_nobody_can_reach_is_told() -> None:
    async def work(coordinator: Coordinator, port: int):
        agents = coordinator._agents
        agents["b"].port = 1  # nothing listens there
        return await coordinator.measure((Pair(0, 1),), QUICK, "alone")

    (found,) = asyncio.run(with_agents(["a", "b"], work))
    assert found.rates == () and "a sending: connection refused" in found.error
    assert "b receiving: no progress" in found.error


def test_a_stranger_at_the_data_port_is_no_measurement() -> None:
    async def work(coordinator: Coordinator, _port: int):
        port = coordinator._agents["b"].port
        strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        strangers[0].close()
        strangers[1].sendall(b"GET / HTTP/1.0\r\n\r\n")
        found = await coordinator.measure((Pair(0, 1),), QUICK, "alone")
        strangers[1].close()
        return found

    (found,) = asyncio.run(with_agents(["a", "b"], work))
    assert found.error is None and len(found.rates) == QUICK.samples


def test_the_meeting_is_private_and_late_ones_are_told(tmp_path) -> None:
    publish(tmp_path, Meeting("127.0.0.1", 1, TOKEN))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    meeting = look_up(tmp_path, 1)
    assert meeting == Meeting("127.0.0.1", 1, TOKEN)
    with pytest.raises(MeetingError, match=r"127\.0\.0\.1 cannot reach the coordinator"):
        join(meeting, "127.0.0.1")
    file.unlink()
    with pytest.raises(MeetingError, match=r"no coordinator .* after 0 s: see the log of task 0"):
        look_up(tmp_path, 0.2)
