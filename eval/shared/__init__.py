"""What every measurement uses: samples, rows, statistics, tables."""
