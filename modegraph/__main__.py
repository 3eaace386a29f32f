"""`python -P -m modegraph`: the command line without its script."""

from modegraph.cli import main

if __name__ == "__main__":
    main()
