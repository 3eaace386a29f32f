"""What calls accept: documents of any kind, models to stream from, whether to show progress."""
