"""What a turn asks for: an answer from the documents, the last answer in another form, or nothing (a remark). When in doubt, an answer.

Only words of closed lists make a turn anything but a question, so that whatever names a thing is searched for.
"""

from __future__ import annotations

import re
from typing import Literal

Intent = Literal["question", "request", "remark"]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


LONGEST = 200
"""In characters: a longer turn asks something."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_REMARK = _set(
    """awesome bye cheers clear cool excellent fine good goodbye great hello helpful helps hey hi interesting lovely nice no ok okay
    perfect right sorry super thank thanks thx understood welcome wonderful wow yes
    bedankt danke dziękuję gracias grazie kiitos merci obrigada obrigado tack tak takk спасибо धन्यवाद شكرا תודה
    谢谢 謝謝 ありがとう ありがとうございます 감사합니다 고마워"""
)
_BESIDE_REMARK = _set(
    """a all and answer bit day did evening for have help i indeed it job know lot morning much night now oh see so that that's the
    this very well you you're your"""
)
_REQUEST = _set(
    """again brief briefer briefly bullet bullets clearer concise continue detail detailed details elaborate expand formal list longer
    paraphrase repeat rephrase reword rewrite sentence sentences short shorten shorter simple simpler simplify simply summarise
    summarize summary sure table tldr translate translation words
    arabic bengali bulgarian chinese croatian czech danish dutch english estonian finnish french german greek hebrew hindi hungarian
    icelandic indonesian irish italian japanese korean latin latvian lithuanian norwegian persian polish portuguese romanian russian
    serbian slovak slovenian spanish swahili swedish thai turkish ukrainian urdu vietnamese welsh"""
)
_BESIDE_REQUEST = _set(
    """a an and answer are as be bit can could explain five form format give i in into it items just kindly language last less like
    little make me more much my now of ok okay on one only or other paragraph please point points previous put same say so tell that
    the them then this three to two up use using version very want with would write you your"""
)
_PHRASES: dict[str, Intent] = {
    "got it": "remark",
    "explain that": "request",
    "explain it": "request",
    "go on": "request",
    "tell me more": "request",
    "what do you mean": "request",
}


def intent(text: str) -> Intent:
    """What the last turn of a conversation with an answer in it asks for.

    >>> [intent(each) for each in ("Thanks!", "Shorter, please", "And in German?", "List the ferries.", "And in 2023?")]
    ['remark', 'request', 'request', 'question', 'question']
    """
    if len(text) > LONGEST:
        return "question"
    words = [word.casefold().replace("’", "'") for word in _WORD.findall(text)]
    if not words:
        return "remark" if text.strip("?¿？؟ ") else "question"
    if (phrase := " ".join(words)) in _PHRASES:
        return _PHRASES[phrase]
    if _made_of(words, _REMARK, _BESIDE_REMARK) and "?" not in text:
        return "remark"
    return "request" if _made_of(words, _REQUEST, _BESIDE_REQUEST) else "question"


def _made_of(words: list[str], saying: frozenset[str], beside: frozenset[str]) -> bool:
    return not saying.isdisjoint(words) and all(word in saying or word in beside for word in words)
