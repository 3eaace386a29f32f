"""From files to text: plain text directly, other formats in a child process with limits on time, memory, size and depth."""
