"""``python -m memory`` serves; ``python -m memory migrate`` upgrades the database."""

import sys

from posthouse.errors import PosthouseError


def _main(arguments: list[str]) -> int:
    if arguments == ["migrate"]:
        from memory import migrate
        from posthouse.settings import load

        try:
            migrate.main(load().postgres_dsn)
        except PosthouseError as error:
            print(f"memory migrate: {error.message}", file=sys.stderr)
            return 1
        return 0
    if arguments:
        print("usage: python -m memory [migrate]", file=sys.stderr)
        return 2
    from memory.main import main

    main()
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
