"""What every stage uses: the record of a run, labelled rows, options of commands."""
