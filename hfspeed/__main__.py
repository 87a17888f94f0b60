"""``python -m hfspeed`` is the ``hfspeed`` command."""

from hfspeed.cli.app import main

if __name__ == "__main__":
    main()
