"""What every folder of graph uses: types, errors, ids, settings, lines on the console. Imports no other folder."""
