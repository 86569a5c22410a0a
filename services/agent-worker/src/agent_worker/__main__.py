"""``python -m agent_worker``."""

from agent_worker.main import main

if __name__ == "__main__":
    main()
