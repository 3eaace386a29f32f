"""Runs a command, and kills its whole process group when the command ends, or when the process that started this script ends for any reason.

Run as a script: `python process_group_guard.py COMMAND …` in its own process group, with a pipe as standard input. The end of that pipe
(its writer closed it, or died) is the signal to stop. The script uses only the standard library, so that it starts quickly."""

import os
import signal
import subprocess
import sys
import threading

GRACE_S = 20.0


def main() -> None:
    """Run the command until it or the pipe ends, then kill its whole group."""
    # This process must survive the signals to its group. With SIG_IGN instead of these handlers, the command would ignore the signals too.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
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


if __name__ == "__main__":
    main()
