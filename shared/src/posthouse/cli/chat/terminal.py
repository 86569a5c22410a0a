"""The terminal of a chat: a prompt that stays usable while answers appear above it."""

from collections.abc import Callable, Iterable

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.application import get_app
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from posthouse.cli.chat.layout import last_rows
from posthouse.cli.chat.transcript import Shown

LOOKS = Style.from_dict(
    {
        "prompt": "ansigreen bold",
        "live": "noinherit",
        "said": "ansigreen",
        "error": "ansired",
        "notice": "ansiyellow",
        "progress": "ansibrightblack",
        "system": "ansibrightblack",
    }
)
# Answers grow word by word: more often nobody can see.
REDRAW_S = 0.05


class Terminal:
    """Reads lines and prints texts. ``live`` gives what stands between the two for now.

    ``interrupted`` is called for a Ctrl-C on an empty line; True ends the input.
    """

    def __init__(
        self,
        prompt: str,
        history: History,
        live: Callable[[], str],
        interrupted: Callable[[], bool],
    ) -> None:
        self._prompt = prompt
        self._live = live
        self._interrupted = interrupted
        self._session: PromptSession[str] = PromptSession(
            self._message,
            style=LOOKS,
            history=history,
            key_bindings=self._keys(),
            enable_suspend=True,
        )
        self._session.app.min_redraw_interval = REDRAW_S
        self._restored = ""

    async def line(self) -> str:
        """The next line. Raises EOFError when the person leaves."""
        default, self._restored = self._restored, ""
        return await self._session.prompt_async(default=default)

    def show(self, texts: Iterable[Shown]) -> None:
        """Print above the prompt."""
        fragments = [(f"class:{kind}", f"{text}\n") for kind, text in texts]
        if fragments:
            print_formatted_text(FormattedText(fragments), style=LOOKS, end="")
        self.refresh()

    def refresh(self) -> None:
        """``live`` changed."""
        self._session.app.invalidate()

    def restore(self, line: str) -> None:
        """Give a line back to be edited, unless another one is being typed."""
        buffer = self._session.default_buffer
        if not self._session.app.is_running:
            self._restored = line
        elif not buffer.text:
            buffer.insert_text(line)

    def _message(self) -> FormattedText:
        """The prompt, below what is live; a line that was entered keeps only the prompt."""
        prompt = ("class:prompt", self._prompt)
        live = "" if get_app().is_done else self._live()
        if not live:
            return FormattedText([prompt])
        size = self._session.app.output.get_size()
        # Half of the screen: the rest is for what is typed.
        rows = last_rows(live, max(size.columns - 1, 1), max(size.rows // 2, 1))
        return FormattedText([("class:live", "\n".join(rows) + "\n"), prompt])

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _interrupt(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text:
                buffer.reset()
            elif self._interrupted():
                event.app.exit(exception=EOFError)

        @keys.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return keys
