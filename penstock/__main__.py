"""Knows that `python -m penstock` runs the `penstock` command, for when that is not on the path."""

from penstock.cli.entry import main

if __name__ == "__main__":
    main()
