"""Runs a command and ends its whole process group when whoever started it goes, however that happens.

Run as a script: `python process_group_guard.py COMMAND …` in a process group of its own, with a pipe as standard input. The end of that pipe
(its writer closed it, or died) is the sign to stop. Only the standard library, so that it starts at once."""

import os
import signal
import subprocess
import sys
import threading

GRACE_S = 20.0


def main() -> None:
    """Run the command until it ends or the pipe does, then end its whole group."""
    # Handlers that do nothing: unlike signals that are ignored, the command does not inherit them.
    signal.signal(signal.SIGTERM, _stay)
    signal.signal(signal.SIGINT, _stay)
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_stop_at_end_of_pipe, args=(child,), daemon=True).start()
    code = child.wait()
    print(f"guard: the command ended with status {code}", file=sys.stderr, flush=True)
    os.killpg(0, signal.SIGKILL)


def _stop_at_end_of_pipe(child: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(0, signal.SIGKILL)


def _stay(number: int, frame: object) -> None:
    """The signal is for the rest of the group."""


if __name__ == "__main__":
    main()
