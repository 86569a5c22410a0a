"""``python -m gateway``."""

from gateway.main import main

if __name__ == "__main__":
    main()
