"""Knows that `python -m penstock` is the `penstock` script, for where scripts are not on the path."""

from penstock.cli.entry import main

if __name__ == "__main__":
    main()
