"""Who tells the agents what to measure, round by round, and outlives those that die."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from train.interconnect.measure.agent import CONNECT_S
from train.interconnect.measure.meeting import decode, encode
from train.interconnect.measure.rounds import Round
from train.interconnect.measure.stream import Plan
from train.interconnect.record import Clock, End, Measurement, Node, Tcp

#: Without a byte for this long a measurement is given up.
SILENCE_S = 5.0
#: On top of what its two ends give themselves.
_GRACE_S = 5.0
_CLOCK_TRIES = 5

Message = dict[str, Any]


@dataclass
class _Agent:
    node: Node
    port: int
    writer: asyncio.StreamWriter
    answers: dict[str, asyncio.Future[Message]] = field(default_factory=dict)
    lost: str | None = None  # why


class Coordinator:
    """Agents come in by ``serve``; ``nodes`` are numbered in the order of their names."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._agents: dict[str, _Agent] = {}
        self._order: list[str] = []
        self._came = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._listening: set[asyncio.Task[None]] = set()

    async def serve(self, address: str) -> int:
        """Listen on ``address``; the port.

        Raises:
            OSError: it cannot be listened on.
        """
        self._server = await asyncio.start_server(self._greet, address, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def gather(self, world: int, patience_s: float) -> None:
        """Wait for ``world`` agents, or for as many as come in time. Then nobody else is let in."""

        async def all_came() -> None:
            async with self._came:
                await self._came.wait_for(lambda: len(self._agents) >= world)

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(all_came(), patience_s)
        assert self._server is not None
        self._server.close()
        self._order = sorted(self._agents)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._agents[name].node for name in self._order)

    @property
    def lost(self) -> dict[str, str]:
        return {name: a.lost for name, a in self._agents.items() if a.lost is not None}

    async def clocks(self) -> dict[str, Clock]:
        """Of the nodes that answer, against this one's, by the fastest of some answers: the node's
        time belongs to some moment between question and answer (as NTP, RFC 5905, section 8)."""
        answers = [(name, await self._clock(self._agents[name])) for name in self._order]
        return {name: clock for name, clock in answers if clock is not None}

    async def _clock(self, agent: _Agent) -> Clock | None:
        best: Clock | None = None
        for _ in range(_CLOCK_TRIES):
            asked = time.time()
            told = await self._ask(agent, {"do": "clock", "id": secrets.token_hex(8)}, _GRACE_S)
            answered = time.time()
            if "error" in told:
                break
            within = (answered - asked) / 2
            if best is None or within < best.within_s:
                best = Clock(ahead_s=told["now"] - (asked + answered) / 2, within_s=within)
        return best

    async def measure(self, pairs: Round, plan: Plan, phase: str) -> list[Measurement]:
        """All ``pairs`` at the same time; a pair that fails is told with the reason."""
        return list(
            await asyncio.gather(*(self._pair(pair, plan, phase, len(pairs)) for pair in pairs))
        )

    async def end(self) -> None:
        for agent in self._agents.values():
            with contextlib.suppress(OSError):
                agent.writer.write(encode({"do": "end", "id": ""}))
                await agent.writer.drain()
            agent.writer.close()
        if self._listening:
            await asyncio.wait(self._listening, timeout=_GRACE_S)

    async def _pair(
        self, pair: Sequence[int], plan: Plan, phase: str, together: int
    ) -> Measurement:
        sender, receiver = (self._agents[self._order[number]] for number in pair)
        ident = secrets.token_hex(8)
        seed = zlib.crc32(f"{sender.node.name} {receiver.node.name}".encode())
        order = {"id": ident, "plan": plan._asdict(), "seed": seed, "silence_s": SILENCE_S}
        # the ends give up by themselves, after one more megabyte and its answer; a node that does
        # not say so by then is lost, and not merely slow
        limit = plan.give_up_s + CONNECT_S + 2 * SILENCE_S + _GRACE_S
        got, sent = await asyncio.gather(
            self._ask(receiver, {**order, "do": "receive"}, limit),
            self._ask(
                sender,
                {**order, "do": "send", "address": receiver.node.address, "port": receiver.port},
                limit,
            ),
        )
        errors = [
            f"{end.node.name} {what}: {answer['error']}"
            for end, what, answer in ((receiver, "receiving", got), (sender, "sending", sent))
            if "error" in answer
        ]
        names = {"sender": sender.node.name, "receiver": receiver.node.name, "phase": phase,
                 "together": together}  # fmt: skip
        if errors:
            return Measurement(**names, error="; ".join(errors))
        return Measurement(
            **names,
            rates=tuple(got["rates"]),
            bytes=got["bytes"],
            wrong_bytes=got["wrong_bytes"],
            latency_s=sent["latency_s"],
            latency_min_s=sent["latency_min_s"],
            at_sender=End(**sent["end"]),
            at_receiver=End(**got["end"]),
            tcp=Tcp(**sent["tcp"]) if sent["tcp"] else None,
        )

    async def _ask(self, agent: _Agent, order: Message, limit_s: float) -> Message:
        if agent.lost is not None:
            return {"error": agent.lost}
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        agent.answers[order["id"]] = answer
        try:
            agent.writer.write(encode(order))
            return await asyncio.wait_for(answer, limit_s)
        except asyncio.TimeoutError:
            agent.lost = f"no answer within {limit_s:.0f} s"
        except OSError as error:
            agent.lost = str(error)
        finally:
            agent.answers.pop(order["id"], None)
        return {"error": agent.lost}

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = decode(await reader.readline())
        if not hello or not secrets.compare_digest(str(hello.get("token")), self._token):
            writer.close()
            return
        node = Node(name=hello["hello"], interface=hello["interface"], address=hello["address"])
        agent = _Agent(node, int(hello["port"]), writer)
        if node.name in self._agents:  # two tasks on one node: there is one network to measure
            writer.close()
            return
        own = asyncio.current_task()
        assert own is not None
        self._listening.add(own)
        async with self._came:
            self._agents[node.name] = agent
            self._came.notify_all()
        with contextlib.suppress(OSError):
            while (told := decode(await reader.readline())) is not None:
                answer = agent.answers.get(told.get("id", ""))
                if answer is not None and not answer.done():
                    answer.set_result(told)
        self._listening.discard(own)
        agent.lost = agent.lost or "the node is gone: its agent closed the connection"
        for answer in agent.answers.values():
            if not answer.done():
                answer.set_result({"error": agent.lost})
