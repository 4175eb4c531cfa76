import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / place) for place in ("support", "")]

if __name__ == "__main__":
    from matrix.command import main

    sys.exit(main())
