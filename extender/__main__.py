"""`python -m extender` is the `extender` command. Holds nothing else."""

import sys

from extender.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
