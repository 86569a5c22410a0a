"""What bubblewrap is told: a machine with nothing but programs and one workspace.

There is no network. Programs and libraries are read-only, so is everything else but the
workspace and a small ``/tmp`` of its own, which is gone afterwards. Processes see only each
other, and all of them end with the first. The environment must be clean outside too: the first
process inside shows what bubblewrap itself was started with.
"""

import os
from pathlib import Path

PROGRAM = "bwrap"
# Bounds of one process. Their number is bounded too, but not for root: the kernel exempts it.
MEMORY_BYTES = 2 * 1024 * 1024 * 1024
PROCESSES = 128
TMP_BYTES = 64 * 1024 * 1024
NICE = 10
_PATH = "/usr/local/bin:/usr/bin:/bin"
_PROGRAMS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
# Without these, programs that are links, and libraries, are not found on Debian.
_READABLE = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")


def environment(root: Path) -> dict[str, str]:
    """All that the sandbox is told: no variable of ours."""
    return {"PATH": _PATH, "HOME": str(root), "LANG": "C.UTF-8", "TERM": "dumb"}


def arguments(command: str, root: Path, max_file_bytes: int, cpu_s: int) -> list[str]:
    """To run ``command`` by a shell in ``root``, an absolute path; limits are of one process."""
    inside = str(root)
    return [
        # Needs bubblewrap 0.8: no second user namespace inside, a way into the kernel less.
        *("--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-net"),
        *("--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--new-session"),
        *("--cap-drop", "ALL", "--hostname", "sandbox"),
        *("--ro-bind", "/usr", "/usr"),
        *_programs(),
        *(word for path in _READABLE for word in ("--ro-bind-try", path, path)),
        *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
        *("--size", str(TMP_BYTES), "--tmpfs", "/tmp"),
        *("--bind", inside, inside, "--chdir", inside),
        *("--remount-ro", "/"),
        "--",
        # Counted inside: the user's other processes are none of its business.
        *("prlimit", f"--nproc={PROCESSES}", f"--as={MEMORY_BYTES}", f"--cpu={cpu_s}"),
        *(f"--fsize={max_file_bytes}", "--core=0", "--"),
        *("nice", "-n", str(NICE), "sh", "-c", command),
    ]


def _programs() -> list[str]:
    """The folders beside ``/usr``, which are links into it on most systems."""
    words: list[str] = []
    for path in _PROGRAMS:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    return words
