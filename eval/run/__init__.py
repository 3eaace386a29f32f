"""`modegraph eval run`: measures every system on every task. The results of a system on a task (a cell) are one file, from which scores and the report are made."""
