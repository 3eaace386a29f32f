"""Structured requests as retrieval and synthesis send them, about the example documents."""

from collections import Counter

from data_synth.preferences.preferences import MAX_VERDICT_TOKENS, Verdict
from graph.answer.prompt import answer_messages
from graph.documents.read import read_documents
from graph.retrieve.learned.selectors import MAX_TOKENS, Selection, list_statements
from graph.retrieve.modes.global_mode import MAX_REPLY_TOKENS, Contribution, SubQuestions
from graph.retrieve.modes.plan import MAX_ANSWER_TOKENS, Resolution
from graph.shared.jsonl import read_jsonl
from graph.text.prompting import fill, quote, read_prompt
from graph.text.replies import BadReply, ReplyModel, parse_reply, strict_schema
from graph.types import Completion, CompletionRequest, Excerpt, LanguageModel, Message
from tests.places import EXAMPLES


def requests(per_kind: int) -> list[tuple[type[ReplyModel], CompletionRequest]]:
    """Five requests for each of the first `per_kind` example questions. They ask for sub-questions, for the relevant statements among several,
    for what these statements contribute to an answer, for an answer from passages, and for a verdict on whether the passages support a reason and an answer.
    """
    questions = [str(row["question"]) for _, row in read_jsonl(EXAMPLES / "questions.jsonl")][:per_kind]
    documents = read_documents(EXAMPLES / "documents", note=print)
    sentences = [sentence for document in documents for sentence in document.text.split(". ")]
    calls: list[tuple[type[ReplyModel], CompletionRequest]] = []
    for place, question in enumerate(questions):
        texts = sentences[3 * place : 3 * place + 3]
        prompt = answer_messages(question, [Excerpt(str(n), "", text) for n, text in enumerate(texts)])[-1].content
        check = fill("data_synth/check.txt", question_over_passages=prompt, reason=quote(texts[0]), answer="375")
        for kind, system, user, tokens in (
            (SubQuestions, "graph/decompose.txt", f"Question: {quote(question)}", MAX_REPLY_TOKENS),
            (Selection, "graph/select.txt", list_statements(question, texts), MAX_TOKENS),
            (Contribution, "graph/facet.txt", list_statements(question, texts), MAX_REPLY_TOKENS),
            (Resolution, "graph/resolve.txt", prompt, MAX_ANSWER_TOKENS),
            (Verdict, "", check, MAX_VERDICT_TOKENS),
        ):
            system_turn = (Message("system", read_prompt(system)),) if system else ()
            request = CompletionRequest((*system_turn, Message("user", user)), tokens, schema=strict_schema(kind))
            calls.append((kind, request))
    return calls


def count_valid(model: LanguageModel, per_kind: int) -> tuple[Counter[str], int]:
    """The number of valid replies of each kind, and the number of all requests."""
    calls = requests(per_kind)
    answers = model.complete([request for _, request in calls])
    valid = Counter(kind.__name__ for (kind, _), answer in zip(calls, answers, strict=True) if is_valid(kind, answer))
    return valid, len(calls)


def is_valid(kind: type[ReplyModel], answer: Completion) -> bool:
    """Whether a reply is complete and can be parsed without dropping anything."""
    dropped: list[object] = []
    try:
        parse_reply(kind, answer.text, dropped)
    except BadReply:
        return False
    return answer.finish_reason == "stop" and not dropped
