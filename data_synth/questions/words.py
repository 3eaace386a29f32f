"""English words that the templates go by: verbs, participles, the nouns that things are called by."""

import re

_THINGS = """
airport album anthem area army award band bank battle bay beach book bridge building canal castle cathedral
championship channel cheese church city clinic club college comet committee company competition corporation council
country county court dam dance department district drama dynasty event factory family ferry festival film firm
football fort foundation game garden group guild hall harbour headland hospital hotel house inlet institute
institution instrument island journal kingdom label lake law league library lighthouse line list magazine market
ministry monastery monument mountain movie municipality museum music newspaper novel observatory office opera
orchestra organisation organization painting palace parish park party peak peninsula plant play poem pond port
prefecture prison prize programme project province quarry quay race railway region reserve river road sanctuary
school sea season sequel series ship shipyard show single society song soundtrack spring square stadium state
station story strait street studio suburb summit survey team temple theatre town track trail tram treaty tributary
trilogy trophy tunnel university valley vessel village war watershed website work yard
"""
THINGS = frozenset(_THINGS.split())
"""Heads of the phrase that says what a document is about, of which "which" can be asked and "that" said."""

_PEOPLE = """
actor actress archaeologist architect artist astronomer athlete author baker ballerina baron baroness biologist
bishop botanist boxer brother businessman cardinal cartographer chemist coach composer conductor count countess
cricketer critic dancer daughter designer diplomat director doctor duchess duke earl economist emperor engineer
explorer father fisherman footballer founder general geologist governor guitarist historian husband inventor
journalist judge keeper king lawyer linguist manager mathematician mayor merchant minister missionary model monarch
mother musician noble nobleman noblewoman novelist officer painter partner person philosopher photographer physician
physicist pianist player playwright poet politician president priest prince princess producer professor queen rapper
ruler sailor scholar scientist screenwriter sculptor shipwright singer sister skater soldier son songwriter sprinter
swimmer teacher tutor violinist wife wrestler writer
"""
PEOPLE = frozenset(_PEOPLE.split())
"""The same for people, of whom "who" is asked and said."""

_IRREGULAR = {
    "begun": "began",
    "chosen": "chose",
    "drawn": "drew",
    "driven": "drove",
    "given": "gave",
    "grown": "grew",
    "overthrown": "overthrew",
    "sung": "sang",
    "taken": "took",
    "written": "wrote",
    "rewritten": "rewrote",
    "co-written": "co-wrote",
}
_SAME = "bought brought built cut found held hit laid led made met run shot sold taught told won"
_SAME_IN_BOTH = frozenset(_SAME.split())
_NOT_DONE = frozenset(["bordered", "bounded", "caused", "followed", "preceded", "surrounded"])
"""What things do that nobody does."""
_OPENERS = re.compile(
    r"(?:is|was|are|were|has|had|became|began|belongs|brought|built|came|consists|flows|gave|got|grew|held|hosts|"
    r"includes|keeps|kept|led|left|lies|lives|lost|made|makes|marks|meets|met|owns|plays|ran|rises|runs|sang|sells|sits|"
    r"sold|spent|stands|stars|stood|taught|teaches|told|took|went|won|works|wrote|writes|[a-z]+ed)\b"
)
_NOT_VERBS = frozenset(["hundred", "kindred", "limited", "red", "united"])


def opens_with_verb(predicate: str) -> bool:
    """Whether what follows a subject can be its predicate.

    >>> opens_with_verb("was built in Quill"), opens_with_verb("and its people")
    (True, False)
    """
    found = _OPENERS.match(predicate)
    return found is not None and found[0] not in _NOT_VERBS


def past_of(participles: str) -> str | None:
    """The past tense of a participle (or of two: "written and directed"); None for a word that is none.

    >>> past_of("written and directed"), past_of("song")
    ('wrote and directed', None)
    """
    words = participles.split(" and ")
    told = [_IRREGULAR.get(word, word if word.endswith("ed") or word in _SAME_IN_BOTH else "") for word in words]
    told = ["" if word in _NOT_DONE else word for word in told]
    return " and ".join(told) if all(told) else None
