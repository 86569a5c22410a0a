"""The keyless model is a provider like any other: only its own file knows its name."""

import re
from pathlib import Path

SOURCES = Path(__file__).parents[3]
ITS_FILE = SOURCES / "services/agent-worker/src/agent_worker/llm/offline.py"
NAMES = re.compile(r"rules-1|\boffline\b", re.IGNORECASE)


def test_only_its_own_file_knows_the_keyless_model() -> None:
    files = [
        *(SOURCES / "services/agent-worker/src").rglob("*.py"),
        *(SOURCES / "shared/src").rglob("*.py"),
    ]
    knowing = {file for file in files if NAMES.search(file.read_text(encoding="utf-8"))}

    assert knowing == {ITS_FILE}
