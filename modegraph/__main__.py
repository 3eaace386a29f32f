"""`python -P -m modegraph`: runs the command line without the installed script `modegraph`."""

from modegraph.cli import main

if __name__ == "__main__":
    main()
