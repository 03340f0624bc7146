"""`python -m relmap`: the command line."""

from relmap.cli import main

if __name__ == "__main__":
    main()
