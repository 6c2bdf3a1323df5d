"""`python -m patchvote` is the command `patchvote`."""

from .cli import main

if __name__ == "__main__":
    main()
