"""Text of scanned pages, by programs that are installed beside ours."""
