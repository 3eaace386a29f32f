"""From files of every format to text, in a child process with limits on time, memory, size and depth."""
