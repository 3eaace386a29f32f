"""Files of every format to text, in a child process with limits of time, memory, size and depth."""
