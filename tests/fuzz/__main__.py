"""Break files on purpose and give them to the linter: ``make fuzz``.

File N is always the same. Every one is judged in a process that is ended when it takes ten seconds of processor time
for one file, and started again behind it. The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
for folder in (HERE, ROOT):
    sys.path.insert(0, str(folder))

import judging  # noqa: E402

SECONDS = 10
MEMORY = 4 * 2**30
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("last", type=int, nargs="?", default=100_000)
    parser.add_argument("--total", type=int, default=0, help="begin no further file after so many seconds")
    parser.add_argument("--tally", type=Path, default=ROOT / ".fuzz" / "tally.jsonl", help="one line is added per run")
    parser.add_argument("--show", type=int, metavar="N", help="write file N to standard output, and judge nothing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "files").mkdir()
        judge = judging.Judge(Path(folder) / "files")
        if given.show is not None:
            sys.stdout.buffer.write(judge.made(given.show)[1])
            return 0
        result = _watched(judge, given.first, given.last, given.total)
    given.tally.parent.mkdir(parents=True, exist_ok=True)
    with given.tally.open("a") as stream:
        print(json.dumps(result), file=stream)
    print(json.dumps(result, indent=1))
    return int(bool(result["failed"]))


def _watched(judge: judging.Judge, first: int, last: int, total: int) -> dict[str, object]:
    """Judge files in processes of their own, a new one behind every file that ended one."""
    shared = mmap.mmap(-1, 16)
    failed: dict[int, str] = {}
    counts: dict[str, int] = {}
    begun, number, worst = time.monotonic(), first, (0.0, 0)
    peak = 0
    while number < last and not (total and time.monotonic() - begun > total):
        shared[:] = struct.pack("qq", number, 0)
        said_in = Path(f"{judge.folder}.said")
        said_in.write_text("")
        child = os.fork()
        if not child:
            _work(judge, range(number, min(last, number + 1000)), shared, said_in)
        ended = _wait(child, shared)
        with said_in.open() as lines:
            for line in lines:
                said = json.loads(line)
                failed.update({int(at): why for at, why in said.get("failed", {}).items()})
                for what, count in said.get("counts", {}).items():
                    counts[what] = counts.get(what, 0) + count
                worst = max(worst, tuple(said.get("worst", (0.0, 0))))
                peak = max(peak, said.get("peak", 0))
        number = struct.unpack("qq", shared[:])[0]
        if ended:
            failed[number] = ended
            print(f"{number}: {ended}", flush=True)
            number += 1
    seconds = round(time.monotonic() - begun, 1)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"first": first, "last": number, "seconds": seconds, "of processor": round(used.ru_utime + used.ru_stime, 1),
            "counts": counts, "worst": worst, "peak MiB": peak, "failed": failed}  # fmt: skip


def _work(judge: judging.Judge, numbers: range, shared: mmap.mmap, said_in: Path) -> None:
    """The child: it says after each file how far it is, and what is wrong as soon as it is."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    gc.freeze()  # what was imported is not looked through again and again
    worst = (0.0, 0)
    with said_in.open("w") as stream:
        judge.counts.clear()
        for number in numbers:
            shared[:8] = struct.pack("q", number)
            begun = time.process_time()
            try:
                judge.judge(number)
            except BaseException:  # noqa: BLE001  whatever it is, it is what was looked for
                why = traceback.format_exc()
                print(f"{number}: {why[-700:]}", flush=True)
                print(json.dumps({"failed": {number: why[-1500:]}}), file=stream, flush=True)
            worst = max(worst, (round(time.process_time() - begun, 2), number))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"counts": judge.counts, "worst": worst, "peak": peak}), file=stream, flush=True)
        shared[:8] = struct.pack("q", numbers.stop)
    os._exit(0)


def _wait(child: int, shared: mmap.mmap) -> str:
    """Wait for the child; why it ended, if not by itself. Processor time is what counts: the machine may be busy."""
    number, since = -1, 0.0
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "" if code == 0 else f"the process ended with {code}"
        used = _used(child)
        now = struct.unpack("qq", shared[:])[0]
        if now != number:
            number, since = now, used
        if used - since > SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"not done after {SECONDS} seconds"
        time.sleep(0.1)


def _used(child: int) -> float:
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    raise SystemExit(main())
