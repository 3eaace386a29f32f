"""HTML and PDF to text, in a child process with limits of time, memory and depth."""
