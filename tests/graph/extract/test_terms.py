"""Languages without letter case: sentences with exact offsets, entities found by statistics, and a second hop through these entities."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.build.build import build_index
from graph.build.lifecycle import delete_documents
from graph.extract.entities import title_keys
from graph.extract.terms import MAX_RARE_COUNT, candidates, caseless_terms
from graph.index.index import Index, open_index
from graph.retrieve.parts.mentions import named_documents
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.text.sentences import split_units
from graph.types import Document
from tests.fakes import HashEncoder
from tests.graph.same import assert_same_index

JAPANESE = [
    Document("ferry", "灯台丸", "灯台丸は丸山造船所で1911年に造られた。港の人々に愛されている。"),
    Document("yard", "丸山造船所", "丸山造船所は丸山愛子が設立した。工場は川の近くにある。"),
    Document("bread", "昆布パン", "昆布パンは大麦粉から焼かれる。九日間もつ。"),
]
CHINESE = [
    Document("tower", "望海塔", "望海塔由林建国设计。塔高三百米！它何时建成？1958年完工。"),
    Document("lin", "林建国", "林建国出生于青石镇。他是一名建筑师。"),
]
ARABIC = [
    Document("boat", "القارب الأزرق", "صنع القارب الأزرق في ورشة مرجان. هل هو قديم؟ نعم!"),
    Document("shop", "ورشة مرجان", "أسس سالم النجار ورشة مرجان قبل قرن."),
]
HINDI = [
    Document("minar", "नीली मीनार", "नीली मीनार को रामलाल वर्मा ने बनाया। यह ऊँची है।"),
    Document("verma", "रामलाल वर्मा", "रामलाल वर्मा का जन्म सागरपुर में हुआ।"),
]


KOREAN = [
    Document("tower", "서울타워", "서울타워는 김철수가 설계했다. 높이는 300미터이다."),
    Document("kim", "김철수", "김철수는 부산에서 태어났다."),
]
HEBREW = [
    Document("boat", "הסירה הכחולה", "הסירה הכחולה נבנתה בכרמיה בידי אומן זקן."),
    Document("town", "כרמיה", "כרמיה שוכנת ליד הנהר."),
]
THAI = [
    Document("tower", "หอทะเล", "หอทะเลสร้างโดยสมชาย และเปิดเมื่อปี 1958"),
    Document("somchai", "สมชาย", "สมชายเกิดที่เมืองหินเขียว"),
]
UNRELATED = Document("apart", "Kelp", "Kelp grows on the northern shore. It is dried in spring.")


def build(folder: Path, documents: list[Document]) -> Index:
    build_index(folder, documents, IndexSettings(), lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


def entities_of(index: Index, fragment: str) -> set[str]:
    (row,) = [row for row in range(len(index.data.proposition_ids)) if fragment in index.data.proposition_texts[row]]
    return {index.data.entity_texts[row] for row in index.data.proposition_entity_NE[[row], :].indices}


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (CHINESE[0].text, ["望海塔由林建国设计。", "塔高三百米！", "它何时建成？", "1958年完工。"]),
        (JAPANESE[0].text, ["灯台丸は丸山造船所で1911年に造られた。", "港の人々に愛されている。"]),
        (ARABIC[0].text, ["صنع القارب الأزرق في ورشة مرجان.", "هل هو قديم؟", "نعم!"]),
        (HINDI[0].text, ["नीली मीनार को रामलाल वर्मा ने बनाया।", "यह ऊँची है।"]),
        (KOREAN[0].text, ["서울타워는 김철수가 설계했다.", "높이는 300미터이다."]),
        ("یہ مینار ہے۔ وہ اونچا ہے۔", ["یہ مینار ہے۔", "وہ اونچا ہے۔"]),
    ],
)
def test_sentences_are_split_at_the_punctuation_of_their_script(text: str, sentences: list[str]) -> None:
    units = list(split_units(text))
    assert [unit.text for unit in units] == sentences == [text[unit.start : unit.end] for unit in units]


@pytest.mark.parametrize(
    ("documents", "sentence", "name"),
    [
        (JAPANESE, "1911年", "丸山造船所"),
        (CHINESE, "设计", "林建国"),
        (ARABIC, "صنع", "ورشة مرجان"),
        (HINDI, "बनाया", "रामलाल वर्मा"),
        (KOREAN, "설계", "김철수"),
        (HEBREW, "נבנתה", "כרמיה"),
        (THAI, "สร้าง", "สมชาย"),
    ],
)
def test_a_term_that_two_documents_share_is_a_name_and_links_them(
    tmp_path: Path, documents: list[Document], sentence: str, name: str
) -> None:
    index = build(tmp_path / "i", [*documents, UNRELATED])
    assert name in entities_of(index, sentence)
    question = f"{documents[0].title}?"
    assert [document for _, document in named_documents(index, question)] == [
        index.sources().index(documents[0].source)
    ]
    found = retrieve(index, question, RetrieveSettings(mode="hops", top_k=2))
    assert [passage.item.source for passage in found.passages] == [documents[0].source, documents[1].source]
    assert found.paths[1][1:] == (f"mentions “{name}”", "and this is the document of that name")


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("千と千尋の神隠し", "彼は千と千尋の神隠しを見た。"),
        ("2008年奥运会", "他参加了2008年奥运会的开幕式。"),
        ("东京", "他住在东京。"),
        ("مكتبة المدينة القديمة الكبيرة", "زار سالم مكتبة المدينة القديمة الكبيرة أمس."),
        ("부산", "그는 부산에서 살았다."),
        ("列奥纳多·达·芬奇", "画家列奥纳多·达·芬奇出生了。"),
        ("东京 塔", "他参观了东京 塔。"),
        ("갤럭시 s23", "그는 갤럭시 S23을 샀다."),
        ("2018년 동계 올림픽", "그는 2018년 동계 올림픽에서 이겼다."),
        ("चंद्रयान-3", "भारत ने चंद्रयान-3 भेजा।"),
        ("رؤية 2030", "أطلقت المدينة رؤية 2030."),
    ],
)
def test_a_title_is_a_name_wherever_it_occurs(title: str, text: str) -> None:
    assert (0, title) in caseless_terms([text], title_keys(title))
    assert caseless_terms([text], []) == []


def test_a_title_inside_a_longer_word_is_not_a_name() -> None:
    texts = ["المكاتب قديمة جدا.", "أطلقت المدينة رؤية 20301."]
    assert caseless_terms(texts, ["كاتب", "رؤية 2030"]) == []


def test_an_affix_is_stripped_where_the_noun_also_occurs_without_that_affix() -> None:
    assert caseless_terms(["바다마을은 작다", "큰 바다마을에서"], []) == [(0, "바다마을"), (1, "바다마을")]
    often = ["바다마을은 작다", "바다마을은 곱다", "큰 바다마을에서"]
    assert caseless_terms(often, []) == [(0, "바다마을"), (1, "바다마을"), (2, "바다마을")]
    assert caseless_terms(["작은 고양이 하나", "고양이 두 마리"], []) == [(0, "고양이"), (1, "고양이")]
    assert {term for _, term in caseless_terms(["في القاهرة", "والقاهرة مدينة"], [])} == {"القاهرة"}


@pytest.mark.parametrize(
    ("question", "named_source"),
    [("서울타워는 어디에 있나?", "tower"), ("أين مرجان؟", "coral"), ("उस मीनार को किसने बनाया?", "minaret")],
)
def test_a_question_in_a_caseless_script_names_documents(tmp_path: Path, question: str, named_source: str) -> None:
    documents = [KOREAN[0], Document("coral", "مرجان", "مرجان قديم جدا."), Document("minaret", "मीनार", "मीनार ऊँची है।")]
    index = build(tmp_path / "i", documents)
    assert [index.sources()[document] for _, document in named_documents(index, question)] == [named_source]


def test_parts_of_a_longer_name_are_not_names() -> None:
    texts = ["林建国设计望海塔", "由林建国建造", "望海塔高三百米"]
    assert caseless_terms(texts, []) == [(0, "望海塔"), (0, "林建国"), (1, "林建国"), (2, "望海塔")]
    assert caseless_terms(["由林建国建造", "由林建国设计"], []) == [(0, "林建国"), (1, "林建国")]
    assert caseless_terms(texts, ["海塔"]) == sorted([*caseless_terms(texts, []), (0, "海塔"), (2, "海塔")])


def test_words_found_in_too_many_sentences_are_not_names() -> None:
    texts = [f"السفينة{chr(0x0628 + n % 20)} ترسو هناك" for n in range(40)]
    assert "ترسو هناك" not in {term for _, term in caseless_terms(texts, [])}
    assert "ترسو هناك" in {term for _, term in caseless_terms(texts[:MAX_RARE_COUNT], [])}


def test_text_with_letter_case_has_no_caseless_terms() -> None:
    assert caseless_terms(["The Lantern sails. The Lantern rests.", "The Lantern is old."], ["lantern"]) == []


@given(st.permutations(range(8)))
def test_the_order_of_texts_does_not_matter(order: list[int]) -> None:
    texts = [document.text for document in JAPANESE + CHINESE + HINDI[:1] + KOREAN]
    plain = {(texts[row], term) for row, term in caseless_terms(texts, ["林建国"])}
    shuffled = [texts[row] for row in order]
    assert {(shuffled[row], term) for row, term in caseless_terms(shuffled, ["林建国"])} == plain


@given(st.text(alphabet="林建国望海塔のは 東京", max_size=30))
def test_every_candidate_occurs_in_its_text(text: str) -> None:
    assert all(term in text and len(term) > 1 for term in candidates(text))


@pytest.mark.long
def test_documents_added_one_by_one_give_the_index_of_one_build_and_deleting_a_document_removes_its_terms(
    tmp_path: Path,
) -> None:
    documents = JAPANESE + CHINESE[1:] + KOREAN[1:]
    whole = build(tmp_path / "bulk", documents).data
    for document in reversed(documents):
        build(tmp_path / "single", [document])
    assert_same_index(whole, load_arrays(tmp_path / "single", IndexData))
    build(tmp_path / "single", ARABIC)
    delete_documents(tmp_path / "single", [document.source for document in ARABIC], lambda spec: HashEncoder())
    assert_same_index(whole, load_arrays(tmp_path / "single", IndexData))
