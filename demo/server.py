"""vLLM's OpenAI-compatible server as a child process: started, waited for, and stopped whatever happens."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console

from demo.failure import DemoError

HOST = "127.0.0.1"
START_SECONDS = 900
STOP_SECONDS = 30
TOLD_EVERY = 30.0
PHASES = (
    ("non-default args", "vLLM reads the model"),
    ("Starting to load model", "hfspeed plans, proves and builds it"),
    ("hfspeed serves", "vLLM loads the weights"),
    ("Warming up model", "vLLM compiles it for this machine"),
    ("KV cache size", "vLLM opens its API"),
)
"""Words of the log, and what they are signs of, in the order they come."""
# float32, because vLLM 0.32 compiles bfloat16 for CPUs into something that answers wrongly, hfspeed or not.
FLAGS = ["--trust-remote-code", "--dtype", "float32", "--max-model-len", "1024", "--served-model-name", "smollm"]
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONUNBUFFERED": "1",
}


class Server:
    """A context manager: inside, the server runs; after, it does not."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder = folder
        self.log = log
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://{HOST}:{self.port}/v1"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "hfspeed", "serve", str(self.folder), "--host", HOST, "--port", str(self.port)]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                [*command, *FLAGS],
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that Ctrl-C reaches only us, and we can stop all its children
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait(self, console: Console) -> None:
        """Return once the server answers, telling now and then what it is doing.

        Raises:
            DemoError: it ended, or took longer than `START_SECONDS`.
        """
        console.print(f"[bold]$ hfspeed serve {self.folder.name} {' '.join(FLAGS)}[/]")
        console.print(f"[dim]log: {self.log}[/]")
        began = told = time.monotonic()
        before = ""
        with console.status("") as status:
            while not self.healthy():
                now = time.monotonic()
                if self.process is None or self.process.poll() is not None:
                    raise DemoError(f"The server ended before it was ready.\n{self.tail(25)}")
                if now - began > START_SECONDS:
                    raise DemoError(f"The server was not ready after {START_SECONDS} s.\n{self.tail(25)}")
                phase, doing = self.phase(), f"{now - began:3.0f} s  {self.phase()}"
                status.update(doing)
                if phase != before or (not console.is_terminal and now - told > TOLD_EVERY):
                    before, told = phase, now
                    console.print(f"  [dim]{doing}[/]")
                time.sleep(0.5)
        console.print(f"  {time.monotonic() - began:3.0f} s  ready at {self.url}")

    def phase(self) -> str:
        """What the server is doing, by the last sign of it in the log."""
        text = self.log.read_text("utf-8", errors="replace")
        return next((doing for sign, doing in reversed(PHASES) if sign in text), "starting")

    def healthy(self) -> bool:
        """Whether the server answers that it is well."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def tail(self, lines: int) -> str:
        """The last lines of the log."""
        text = self.log.read_text("utf-8", errors="replace").strip()
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """Ask the server to end, and end what is left of it."""
        if self.process is None:
            return
        for sign, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            if self.process.poll() is not None:
                break
            self.process.send_signal(sign)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # workers that outlived their parent
        self.process = None


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
