"""What is reasoning and what is text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.engine.thinking import strip_thinking


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("I think so", "I think so"),
        ("<think>a</think>b", "b"),
        ("<think>a</think>\n\nb\n", "b"),
        ("<thinking>a</thinking>b", "b"),
        ("<THINK>a</Think>b", "b"),
        ("<reasoning>a</reasoning>\nb", "b"),
        ("a</reasoning>b", "b"),
        ("the reasoning is clear", "the reasoning is clear"),
        ("a <think>b</think> c", "a  c"),
        ("<think>a</think>b<think>c</think>d", "bd"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("reasoning</think>answer", "answer"),
        ("<think>a</think>b</think>c", "bc"),
        ("<think>never closed", ""),
        ("\n<think>never closed", ""),
        ("a tag <think> in prose", "a tag <think> in prose"),
        ("use `<think>` tags", "use `<think>` tags"),
        ("use `</think>` tags", "use `</think>` tags"),
        ("```xml\n<think>x</think>\n```\nso", "```xml\n<think>x</think>\n```\nso"),
        ("<think>a ``` b</think>c", "c"),
        ("<think>a</think>see `<think>x</think>`", "see `<think>x</think>`"),
        ("思考</think>答案", "答案"),
        ("<think></think>", ""),
        ("", ""),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert strip_thinking(text) == shown


words = st.text(st.characters(exclude_characters="<>`~"))


@given(words)
def test_text_without_tags_stays(text: str) -> None:
    assert strip_thinking(text) == text


@given(st.lists(st.tuples(words, words), min_size=1), words)
def test_only_what_is_outside_of_blocks_is_shown(pairs: list[tuple[str, str]], end: str) -> None:
    text = "".join(f"{shown}<think>{hidden}</think>" for shown, hidden in pairs) + end
    expected = "".join(shown for shown, _ in pairs) + end

    assert strip_thinking(text) == expected.strip()


@given(st.lists(st.sampled_from(["<think>", "</think>", "`", "```", "a", "\n", " "])))
def test_anything_ends_and_is_stable(parts: list[str]) -> None:
    once = strip_thinking("".join(parts))

    assert len(once) <= len("".join(parts))
