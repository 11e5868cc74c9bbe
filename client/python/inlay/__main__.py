"""`python -m inlay`: the command line."""

from inlay.cli import main

if __name__ == "__main__":
    main()
