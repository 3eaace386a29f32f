"""What every room uses: nouns, errors, ids, settings, lines on the console. Imports no other room."""
