"""``python -m scheduler``."""

from scheduler.main import main

if __name__ == "__main__":
    main()
