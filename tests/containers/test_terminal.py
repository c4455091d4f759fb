"""Another user's program never holds root's terminal, and behaves as if it did."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sweeps import ROOT, ran, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
LOGIN = [sys.executable, str(ROOT / "containers" / "practice"), "login", "--user", "nobody", "--"]

#: What a program tries with each descriptor: is it root's terminal, can characters be pushed in?
GRASP = """
import fcntl, os, sys, termios
root = int(sys.argv[1])
found = []
for number in range(40):
    try:
        held = os.fstat(number).st_rdev == root
        if not held and not os.isatty(number):
            continue
        found += [f"holds {number}"] if held else []
        fcntl.ioctl(number, termios.TIOCSTI, b"x")
        found += [f"pushed into {number}"] if held else []
    except OSError:
        pass
try:
    fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), termios.TIOCSTI, b"y")
    found.append("pushed into /dev/tty")
except OSError:
    pass
if os.getsid(0) == int(sys.argv[2]):
    found.append("is in root's session")
print(f"grasped: {found}.", flush=True)
sys.exit(7)
"""
#: Says which signal came first, ends a while after, and with that number.
HEAR = r"""
import os, signal, sys, time
def heard(number, _):
    os.write(1, f"heard {signal.Signals(number).name}\n".encode())
    time.sleep(2.5)
    os.write(1, b"done\n")
    os._exit(number)
for number in (2, 1, 15):
    signal.signal(number, heard)
os.write(1, b"ready\n")
time.sleep(60)
"""


def at_terminal(
    script: str, meanwhile: Callable[[int, int, Callable[[str], None]], None] | None = None
) -> tuple[str, int]:
    """All that a bash script prints at a terminal of its own, and its exit code."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "-c", script])
    said = b""

    def until(text: str) -> None:
        nonlocal said
        while text.encode() not in said:
            said += os.read(master, 4096)

    if meanwhile is not None:
        meanwhile(pid, master, until)
    try:
        while data := os.read(master, 4096):
            said += data
    except OSError:  # all have left
        pass
    os.close(master)
    return said.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def line(code: str, *words: str) -> str:
    return shlex.join([*LOGIN, sys.executable, "-c", code, *words])


@pytest.mark.parametrize(
    "streams",
    ["", "</dev/null", "2>/dev/null", "| cat", "3<>/dev/tty", "</dev/null 2>&1 | cat",
     "< <(sleep 1)", "& wait $!"],
)  # fmt: skip
def test_no_descriptor_leads_to_root_s_terminal(streams: str) -> None:
    """Seen: the practice user's program pushed characters into root's shell."""
    device = shlex.join([sys.executable, "-c", "import os; print(os.stat(os.ttyname(0)).st_rdev)"])
    script = (
        f'set -o pipefail; root=$({device}); {line(GRASP)} "$root" $$ {streams}; code=$?; '
        'read -rsn 9 -t 0.3 typed; echo "code $code, typed <$typed>."'
    )
    said, _ = at_terminal(script)
    assert "grasped: []." in said
    assert "code 7, typed <>." in said


def test_output_goes_where_it_was_to_go_and_ends_with_its_reader() -> None:
    """As make captures it: errors stay on the terminal, and a line ends as it did."""
    program = line("import sys; print('out'); print('err', file=sys.stderr)")
    said, _ = at_terminal(f"x=$({program}); echo captured ${{x@Q}}")
    assert "err\r\n" in said and "captured 'out'\r\n" in said
    endless = line("while True: print('y' * 1000)")
    said, code = at_terminal(f"{endless} 2>/dev/null | head -c 3; exit ${{PIPESTATUS[0]}}")
    assert said.startswith("yyy") and code == 1  # Python's own end after BrokenPipeError
    assert at_terminal(f"echo y | {line('print(input())')} | cat")[0] == "y\r\n"


def test_the_program_sees_the_terminal_s_size_and_its_changes() -> None:
    code = (
        "import os, signal\n"
        "def size(): os.write(2, b'size %d %d\\n' % os.get_terminal_size(2))\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH]); size()\n"
        "signal.sigwait([signal.SIGWINCH]); size(); raise SystemExit(4)"
    )

    def change(_: int, master: int, until: Callable[[str], None]) -> None:
        until("size 80 24")
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("4H", 33, 111, 0, 0))

    said, code_ = at_terminal(f"stty cols 80 rows 24; {line(code)}", change)
    assert "size 111 33" in said and code_ == 4


def test_ctrl_c_reaches_the_program_once_and_it_ends_in_its_own_time() -> None:
    def press(_: int, master: int, until: Callable[[str], None]) -> None:
        until("ready")
        os.write(master, b"\x03")

    said, code = at_terminal(f"trap : INT; {line(HEAR)}; exit $?", press)
    assert said.count("heard") == 1 and "heard SIGINT" in said and "done" in said
    assert code == signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("terminal", [True, False])
def test_signals_and_exit_codes_are_passed_on(number: signal.Signals, *, terminal: bool) -> None:
    """Without a terminal as in CI. `runuser --pty` kills two seconds after SIGTERM."""
    argv = [*LOGIN, sys.executable, "-c", HEAR]
    if terminal:
        said, code = at_terminal(
            f"exec {shlex.join(argv)}",
            lambda pid, _, until: (until("ready"), os.kill(pid, number))[0],
        )
    else:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            process.send_signal(number)
            said, code = process.stdout.read(), process.wait()
    assert f"heard {number.name}" in said and "done" in said and code == number


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_an_end_by_a_signal_stays_one(number: signal.Signals) -> None:
    done = ran([*LOGIN, "sh", "-c", f"kill -{number.value} $$"])
    assert done.returncode == -number


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_outlives_root_s_part(*, terminal: bool) -> None:
    """As after kill -9."""
    argv = [*LOGIN, "sh", "-c", "echo pid $$ at; exec sleep 60"]
    found: list[int] = []

    def kill(pid: int, said: str) -> None:
        found.append(int(said.split()[1]))
        os.kill(pid, signal.SIGKILL)

    if terminal:
        pid, master = pty.fork()
        if pid == 0:
            os.execv(argv[0], argv)
        said = b""
        while b" at" not in said:
            said += os.read(master, 100)
        kill(pid, said.decode())
        os.waitpid(pid, 0)
        os.close(master)
    else:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            kill(process.pid, process.stdout.readline())

    def ended() -> bool:
        try:
            return "Z" in Path(f"/proc/{found[0]}/stat").read_text().split(")")[1].split()[0]
        except FileNotFoundError:
            return True

    wait_until(ended, "the end of the program")


def test_what_is_left_in_the_background_holds_nobody_up() -> None:
    begin = time.monotonic()
    said, code = at_terminal(shlex.join([*LOGIN, "sh", "-c", "sleep 15 & echo here; exit 3"]))
    assert (said, code) == ("here\r\n", 3) and time.monotonic() - begin < 10


@pytest.mark.parametrize("blocking", [True, False])
def test_a_slow_reader_gets_all_output(*, blocking: bool) -> None:
    """Also where a program before left the terminal without waiting (O_NONBLOCK)."""
    code = "import os; os.write(1, b'y' * 20000 + b'end')"
    prepare = shlex.join([sys.executable, "-c", f"import os; os.set_blocking(1, {blocking})"])
    script = f"{prepare}; {line(code)}"
    said, code_ = at_terminal(script, lambda *_: time.sleep(4))
    assert (len(said), said[-3:], code_) == (20003, "end", 0)


@pytest.mark.parametrize("pause", ["true", "sleep 0.05"])
def test_what_writes_on_for_ever_holds_nobody_up(pause: str) -> None:
    begin = time.monotonic()
    left = f"while {pause}; do echo yyyyyyyyyy || exit; done & echo here; exit 3"
    said, code = at_terminal(shlex.join([*LOGIN, "sh", "-c", left]))
    assert "here\r\n" in said and code == 3 and time.monotonic() - begin < 10


def test_ctrl_c_ends_the_wait_for_a_reader() -> None:
    def stop(pid: int, master: int, until: Callable[[str], None]) -> None:
        until("y")
        time.sleep(4)  # the program has ended
        os.kill(pid, signal.SIGINT)

    _, code = at_terminal(f"exec {line('print(20000 * chr(121))')}", stop)
    assert code == -signal.SIGINT


def test_root_s_variables_stay_root_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: sbatch exported them all into jobs."""
    dropped = ("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "TF_VAR_password", "OMP_NUM_THREADS",
               "XDG_CACHE_HOME", "SUDO_USER", "BASH_FUNC_x%%", "LD_PRELOAD", "a b")  # fmt: skip
    kept = ("NCCL_DEBUG", "UCX_TLS", "https_proxy", "SSL_CERT_FILE", "LC_TIME", "TERM", "TZ")
    for name in (*dropped, *kept):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("SLURM_CONF", "/of/another/cluster")
    monkeypatch.delenv("HOROSCALE_PRACTICE", raising=False)
    done = ran([*LOGIN, "env"])
    assert done.returncode == 0, done.stderr
    seen = dict(text.split("=", 1) for text in done.stdout.splitlines())
    assert not set(dropped) & seen.keys() and set(kept) <= seen.keys()
    assert seen["HOME"] == os.path.expanduser("~nobody")  # noqa: PTH111
    assert seen["SLURM_CONF"] == "/run/horoscale-practice/slurm.conf"
