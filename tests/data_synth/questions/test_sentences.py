"""Which questions a single sentence answers."""

import pytest

from data_synth.questions.sentences import facts_of
from data_synth.questions.words import BY_PAST, BY_THIRD

NAMES = frozenset(["Edda", "Hollin", "Lantern", "Tarn"])


def answers_by_question(sentence: str) -> dict[str, tuple[str, ...]]:
    return {fact.question: fact.answers for fact in facts_of(sentence, NAMES.__contains__)}


@pytest.mark.parametrize(
    ("sentence", "question", "answer"),
    [
        ("The canteen opens at 7:30.", "At what time does the canteen open?", "7:30"),
        ("The main gate opens at 6:15 and closes at 20:00.", "At what time does the main gate close?", "20:00"),
        ("Wages are paid on the 27th of each month.", "On which day are wages paid?", "the 27th of each month"),
        ("The works moved to Candle Lane in March 1971.", "When did the works move to Candle Lane?", "March 1971"),
        ("In 1971 the works moved to Candle Lane.", "In what year did the works move to Candle Lane?", "1971"),
        ("Core hours last from 10:00 to 14:30.", "When do core hours last?", "from 10:00 to 14:30"),
        ("Fire drills are held twice a year.", "How often are fire drills held?", "twice a year"),
        ("The label has carried a bridge since 1913.", "Since what year has the label carried a bridge?", "1913"),
        ("Claims must be submitted within 30 days.", "Within how many days must claims be submitted?", "30 days"),
        ("The company employs 86 people.", "How many people does the company employ?", "86 people"),
        ("The car park has 52 spaces.", "How many spaces does the car park have?", "52 spaces"),
        ("Full-time employees receive 27 days of annual leave.", None, "27 days"),
        (
            "The company pays 7 per cent of gross wages.",
            "What percentage of gross wages does the company pay?",
            "7 per cent",
        ),
        ("The Lantern is 46 metres long.", "How long is the Lantern?", "46 metres"),
        ("The daily allowance is £28.", "What is the daily allowance?", "£28"),
        ("A main dish costs £4.20 for employees.", "How much does a main dish cost for employees?", "£4.20"),
        ("The lunch break lasts 45 minutes.", "How long does the lunch break last?", "45 minutes"),
        ("The hall cost £2.5 million.", "How much did the hall cost?", "£2.5 million"),
        ("The repair cost £2.5m in 1911.", "How much did the repair cost in 1911?", "£2.5m"),
        ("The works were sold for $40bn in 2011.", "For how much were the works sold in 2011?", "$40bn"),
        ("The fund is £30 thousand.", "What is the fund?", "£30 thousand"),
        ("The Lantern weighs 2.5 million tonnes.", "How much does the Lantern weigh?", "2.5 million tonnes"),
        ("The company employs two hundred people.", "How many people does the company employ?", "two hundred people"),
        ("Requests are approved by the line manager.", "Who approves requests?", "the line manager"),
        ("Overtime must be approved by Greta Okonjo.", "Who must approve overtime?", "Greta Okonjo"),
        ("Visitors are admitted by the porter.", "Who admits visitors?", "the porter"),
        ("Visitors are shown round by Paul Orme.", "Who shows visitors round?", "Paul Orme"),
        ("Building A was designed by Paul Orme.", "Who designed Building A?", "Paul Orme"),
        ("The gate was painted by Tom Gale and Ben Hill.", "Who painted the gate?", "Tom Gale and Ben Hill"),
        ("The safety officer is Marcus Teale.", "Who is the safety officer?", "Marcus Teale"),
        ("Greta Okonjo, the head of stores, signs for goods.", "Who is the head of stores?", "Greta Okonjo"),
        ("Marcus Teale trains all new employees.", "Who trains all new employees?", "Marcus Teale"),
        (
            "Report accidents to Marcus Teale within 24 hours.",
            "To whom must accidents be reported within 24 hours?",
            None,
        ),
        ("The keys are kept in the porter's lodge.", None, None),
        ("The vans are parked behind the dispatch hall.", "Where are the vans parked?", "behind the dispatch hall"),
        ("The ferry was called Lantern.", "What was the ferry called?", "Lantern"),
        ("The tablets are taken by mouth twice daily.", "How often are the tablets taken by mouth?", "twice daily"),
        ("The ferry was called Lantern in Tarn.", "What was the ferry called in Tarn?", "Lantern"),
    ],
)
def test_a_sentence_gives_a_question_and_its_answer(sentence: str, question: str | None, answer: str | None) -> None:
    found = answers_by_question(sentence)
    if question is not None:
        assert question in found
        assert answer is None or found[question][0] == answer
    elif answer is not None:
        assert answer in {answers[0] for answers in found.values()}
    for answers in found.values():
        assert answers[0] in sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "It opened in 1911.",
        "She joined the company in 1902.",
        "This takes 46 minutes.",
        "The canteen is not open at 7:30.",
        "Does the canteen open at 7:30?",
        "“The canteen opens at 7:30,” said the porter.",
        "Opening hours at 7:30.",
        "Shops open at 7:30 or 8:00.",
        "The canteen opened on 3 May 2024 or 4 May 2024.",
        "Employees receive 27 days or more of leave.",
        "Report accidents to the safety officer or the works manager.",
        "Keys are handed to the porter and the head of stores.",
        "A main dish costs £4 to £6.",
        "The company employs two thousand three hundred people.",
        "The office is in Room 5.",
        "Requests are approved by Committee 5.",
        "The hall opened in May. Tarn closed in 1911.",
        "The hall opened in Jan. Tarn closed in 1911.",
        "The hall moved to the U.S. The works closed in 1911.",
        "The gate was painted by Tom Gale, Ben Hill and Ann Low.",
        "Overtime by the end of the month in writing.",
    ],
)
def test_an_unsuitable_sentence_gives_no_question(sentence: str) -> None:
    assert answers_by_question(sentence) == {}


def test_no_question_contains_a_pronoun() -> None:
    sentence = "Edda Marlpit founded the company in 1954, and it moved to Candle Lane when it had grown."
    assert answers_by_question(sentence) and not any(" it " in question for question in answers_by_question(sentence))


def test_the_forms_of_regular_and_irregular_verbs_are_known() -> None:
    assert BY_PAST["stopped"].base == BY_THIRD["stops"].base == "stop"
    assert BY_PAST["carried"].third == "carries" and BY_PAST["stayed"].third == "stays"
    assert BY_PAST["founded"].participle == "founded" and BY_PAST["wrote"].participle == "written"
    assert BY_THIRD["has"].base == "have" and BY_THIRD["goes"].base == "go"


@pytest.mark.parametrize(
    "sentence",
    [
        "Layers of the wall The wall has four layers.",  # a heading without a full stop
        "Stage III Stage III cancer is divided into 3 substages.",
        "Cowden syndrome is also known as PTEN hamartoma syndrome.",  # the name continues
        "The protein is produced by a gene located on the chromosome.",  # the agent continues
        "Six cycles are given for stage 2, 3 and 4 cancers.",  # the list continues
    ],
)
def test_a_sentence_with_an_incomplete_part_gives_no_question(sentence: str) -> None:
    assert answers_by_question(sentence) == {}
