"""`python -m writepath` is the command `writepath`."""

import sys

from writepath import _native


def main() -> int:
    """Runs the command with the words of this process. Returns its exit code."""
    return _native.main(["writepath", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
