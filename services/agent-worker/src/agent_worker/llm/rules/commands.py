"""The rules: one plain command to one action. The first call wins, else the first text."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from agent_worker.llm.rules.actions import Action, Call, Offer, Say, missing, use
from agent_worker.llm.rules.arithmetic import expression_in
from posthouse.texts import Language

_SEARCH = ("search", "web_search", "search_web")
_FETCH = ("fetch", "web_fetch", "fetch_url")
_REMEMBER = ("remember", "archival_memory_insert", "memory_insert", "core_memory_append")
_RECALL = ("recall", "archival_memory_search", "memory_search", "search_memory")
_REMIND = ("remind", "schedule", "create_schedule", "schedule_create")
_DELEGATE = ("sub_agent",)

_LAST_MESSAGE = re.compile(
    r"\bwhat (?:did|have) i (?:just |last )?(?:say|said|tell|told|ask|wr(?:ite|itten)|sen[dt])"
    r"|\bmy (?:last|previous) (?:message|question|request|words?)\b"
    r"|我(?:的)?(?:上一?[条句个]|上次|刚才|刚刚|之前|前面).{0,6}(?:消息|话|问题|说|问|发|写)"
    r"|上一?[条句](?:消息|话)",
    re.IGNORECASE,
)
_WHAT_IS_REMEMBERED = re.compile(
    r"^(?:what do you (?:remember|know) about|do you remember)\s+(?P<en>.+)"
    r"|^你还?记得(?P<zh>.+?)吗?$",
    re.IGNORECASE,
)
_TO_REMEMBER = re.compile(
    r"^(?:please )?remember(?: that|:)?\s+(?P<en>.+)|^(?:请)?记住[:：,，]?\s*(?P<zh>.+)",
    re.IGNORECASE,
)
_TO_REMIND = re.compile(r"^(?:please )?remind me\s+(?P<en>.+)|^(?P<zh>.*提醒我.*)", re.IGNORECASE)
_TO_SEARCH = re.compile(
    r"^(?:please )?(?:search|look up)(?: for)?\s+(?P<en>.+)"
    r"|^(?:请)?(?:搜索|搜一下|查一下)\s*(?P<zh>.+)",
    re.IGNORECASE,
)
_TO_FETCH = re.compile(
    r"^(?:please )?(?:fetch|open|read|打开|读取|抓取)?\s*(?P<url>https?://\S+)$", re.IGNORECASE
)
_TO_DELEGATE = re.compile(
    r"^ask (?:the )?(?P<role>[\w-]+) to (?P<task>.+)"
    r"|^让(?P<zh_role>[\w-]+?)(?:助手)?去(?P<zh_task>.+)",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\bwhat(?:'s|’s| is) the (?:current )?(?:time|date)\b|\bwhat (?:time|day) is\b"
    r"|\bcurrent (?:time|date)\b"
    r"|几点|(?:现在|当前)(?:是)?(?:什么)?时间|今天(?:是)?(?:几号|星期几|周几|日期)",
    re.IGNORECASE,
)
_ZONE = re.compile(r"\b[A-Z][A-Za-z]+(?:/[A-Z][A-Za-z_]+)+\b")
_ZONE_ARGUMENTS = ("zone", "timezone", "tz")

_QUOTE = {"en": "Your last message was: “{text}”", "zh": "你的上一条消息是：“{text}”"}
_NONE_BEFORE = {
    "en": "There is no earlier message of yours in this conversation.",
    "zh": "这个对话里没有你更早的消息。",
}
_ANSWERED = {"en": "Your answer: “{text}”", "zh": "你的回答：“{text}”"}


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a command stands: offered tools, the user's message before it, and the language."""

    offer: Offer
    earlier: str | None
    language: Language
    is_answer: bool = False


def act(text: str, situation: Situation) -> Action | None:
    """The action for a command, None if no rule knows it."""
    fallback: Action | None = None
    for rule in _RULES:
        action = rule(text, situation)
        if isinstance(action, Call) or (action is not None and not action.tentative):
            return action
        fallback = fallback or action
    return fallback


def _last_message(text: str, at: Situation) -> Action | None:
    if not _LAST_MESSAGE.search(text):
        return None
    if at.earlier is None:
        return Say(_NONE_BEFORE[at.language])
    return Say(_QUOTE[at.language].format(text=at.earlier))


def _recall(text: str, at: Situation) -> Action | None:
    found = _first_group(_WHAT_IS_REMEMBERED, text)
    return use(at.offer, _RECALL, found, at.language) if found else None


def _remember(text: str, at: Situation) -> Action | None:
    found = _first_group(_TO_REMEMBER, text)
    return use(at.offer, _REMEMBER, found, at.language) if found else None


def _remind(text: str, at: Situation) -> Action | None:
    found = _first_group(_TO_REMIND, text)
    return use(at.offer, _REMIND, found, at.language) if found else None


def _search(text: str, at: Situation) -> Action | None:
    found = _first_group(_TO_SEARCH, text)
    return use(at.offer, _SEARCH, found, at.language) if found else None


def _fetch(text: str, at: Situation) -> Action | None:
    found = _first_group(_TO_FETCH, text)
    return use(at.offer, _FETCH, found, at.language) if found else None


def _delegate(text: str, at: Situation) -> Action | None:
    found = _TO_DELEGATE.match(text)
    if not found:
        return None
    tool = at.offer.find(*_DELEGATE)
    if tool is None:
        return missing(_DELEGATE[0], at.language)
    role, task = found["role"] or found["zh_role"], found["task"] or found["zh_task"]
    return Call(tool, {"role": role, "task": task})


def _by_name(text: str, at: Situation) -> Action | None:
    """``count apples``: an offered tool, then its arguments as JSON or as its one text."""
    name, _, rest = text.partition(" ")
    tool = at.offer.find(name)
    if tool is None:
        return None
    rest = rest.strip()
    if not rest:
        return None if at.offer.required(tool) else Call(tool)
    if rest.startswith("{"):
        arguments = _object(rest)
        return None if arguments is None else Call(tool, arguments)
    parameter = at.offer.text_argument(tool)
    return None if parameter is None else Call(tool, {parameter: rest})


def _arithmetic(text: str, at: Situation) -> Action | None:
    expression = expression_in(text)
    return use(at.offer, ("calculator",), expression, at.language) if expression else None


def _time(text: str, at: Situation) -> Action | None:
    if not _TIME.search(text):
        return None
    tool = at.offer.find("current_time")
    if tool is None:
        return missing("current_time", at.language)
    zone = _ZONE.search(text)
    argument = next((a for a in _ZONE_ARGUMENTS if a in at.offer.properties(tool)), None)
    return Call(tool, {argument: zone[0]} if zone and argument else {})


def _answer_to_question(text: str, at: Situation) -> Action | None:
    return Say(_ANSWERED[at.language].format(text=text)) if at.is_answer else None


_RULES: tuple[Callable[[str, Situation], Action | None], ...] = (
    _last_message,
    _recall,
    _remember,
    _delegate,
    _remind,
    _search,
    _fetch,
    _by_name,
    _arithmetic,
    _time,
    _answer_to_question,
)


def _first_group(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.match(text)
    if not found:
        return ""
    return next((group for group in found.groups() if group), "").strip().rstrip("?？。.")


def _object(text: str) -> dict[str, object] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
