"""python -m leadline: the same as the command leadline."""

from leadline.cli import main

if __name__ == "__main__":
    main()
