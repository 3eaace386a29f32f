"""English word lists for the rules that make questions: verbs, participles, and nouns for things, people and places."""

import re
from collections.abc import Iterator
from dataclasses import dataclass


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


THINGS = _words("""
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
""")
"""Head nouns for things that documents are about; they take "which" and "that"."""

PEOPLE = _words("""
actor actress archaeologist architect artist astronomer athlete author baker ballerina baron baroness biologist
bishop botanist boxer brother businessman cardinal cartographer chemist coach composer conductor count countess
cricketer critic dancer daughter designer diplomat director doctor duchess duke earl economist emperor engineer
explorer father fisherman footballer founder general geologist governor guitarist historian husband inventor
journalist judge keeper king lawyer linguist manager mathematician mayor merchant minister missionary model monarch
mother musician noble nobleman noblewoman novelist officer painter partner person philosopher photographer physician
physicist pianist player playwright poet politician president priest prince princess producer professor queen rapper
ruler sailor scholar scientist screenwriter sculptor shipwright singer sister skater soldier son songwriter sprinter
swimmer teacher tutor violinist wife wrestler writer
""")
"""Head nouns for people; they take "who"."""

_IRREGULAR = {
    "begun": "began",
    "chosen": "chose",
    "drawn": "drew",
    "driven": "drove",
    "given": "gave",
    "grown": "grew",
    "overthrown": "overthrew",
    "run": "ran",
    "sung": "sang",
    "taken": "took",
    "written": "wrote",
    "rewritten": "rewrote",
    "co-written": "co-wrote",
}
_PAST_AND_PARTICIPLE = _words("bought brought built cut found held hit laid led made met shot sold taught told won")
_WITHOUT_AGENT = frozenset(["bordered", "bounded", "caused", "followed", "preceded", "surrounded"])
"""Participles of verbs whose agent is not a person."""
_OPENERS = re.compile(
    r"(?:is|was|are|were|has|had|became|began|belongs|brought|built|came|consists|flows|gave|got|grew|held|hosts|"
    r"includes|keeps|kept|led|left|lies|lives|lost|made|makes|marks|meets|met|owns|plays|ran|rises|runs|sang|sells|sits|"
    r"sold|spent|stands|stars|stood|taught|teaches|told|took|went|won|works|wrote|writes|[a-z]+ed)\b"
)
_NOT_VERBS = frozenset(["hundred", "kindred", "limited", "red", "united"])


def opens_with_verb(predicate: str) -> bool:
    """Whether a text after a subject can be its predicate.

    >>> opens_with_verb("was built in Quill"), opens_with_verb("and its people")
    (True, False)
    """
    match = _OPENERS.match(predicate)
    return match is not None and match[0] not in _NOT_VERBS


def past_of(participles: str) -> str | None:
    """The past tense of a participle (or of two: "written and directed"); None if a word is not a participle, or is one whose agent is not a person ("caused").

    >>> past_of("written and run"), past_of("song")
    ('wrote and ran', None)
    """
    words = participles.split(" and ")
    past = [_IRREGULAR.get(word, word if word.endswith("ed") or word in _PAST_AND_PARTICIPLE else "") for word in words]
    past = ["" if word in _WITHOUT_AGENT else word for word in past]
    return " and ".join(past) if all(past) else None


_REGULAR = """
accept accrue add admit address agree allow announce answer appear apply appoint approve arrange arrive ask assess attach attend
award bake base belong bill book calculate call cancel carry change charge check clean close collect complete confirm connect
consider consist contact contain contribute convert cook copy count cover create cross deduct deliver describe design die
destroy develop discover discuss display distribute donate double dye earn elect electrify employ empty end ensure enter equal
establish examine exceed expand expire extend face fill fine finish fire fit fix found gain grant guard handle hand hire
house improve include increase inform inherit inspect install introduce invent issue join kill label last launch licence lift
license limit link list live load locate lock lower maintain manage mark marry measure mend move name need note notify number
observe occupy offer open operate order organise organize oversee own pack paint park pass patrol permit photograph pick
place plan plant play polish post prepare present print process produce promote protect provide publish purchase raise
ratify reach rebuild receive recommend record reduce refer refund refuse register reimburse release relocate remain remove rename
renew rent repair repay replace report represent request require resign restore retain retire return review reward roll
save schedule seat sentence serve service settle shelve ship show sign situate stamp start stay stock stop store study submit
succeed suggest supervise supply support suspend test tie total train transfer translate transport travel treat turn
update use value visit wait walk want warn wash weigh welcome widen work
"""
_IRREGULAR_VERBS = """
become became become|begin began begun|bring brought brought|build built built|buy bought bought|choose chose chosen
come came come|cost cost cost|cut cut cut|do did done|draw drew drawn|drive drove driven|fall fell fallen|find found found
fly flew flown|get got got|give gave given|go went gone|grow grew grown|hang hung hung|have had had|hear heard heard
hide hid hidden|hold held held|keep kept kept|know knew known|lay laid laid|lead led led|leave left left|lend lent lent
lie lay lain|light lit lit|lose lost lost|make made made|mean meant meant|meet met met|oversee oversaw overseen|pay paid paid
read read read|ride rode ridden|ring rang rung|rise rose risen|run ran run|see saw seen|sell sold sold|send sent sent
set set set|shut shut shut|sing sang sung|sink sank sunk|sit sat sat|sleep slept slept|speak spoke spoken|spend spent spent
stand stood stood|take took taken|teach taught taught|tell told told|think thought thought|wear wore worn|win won won
write wrote written|rebuild rebuilt rebuilt|repay repaid repaid|overtake overtook overtaken|show showed shown
"""
_DOUBLED = _words("admit cancel equal fit label permit plan refer ship stop submit total transfer travel")


@dataclass(frozen=True)
class Verb:
    """The forms of one verb: "take", "takes", "took", "taken"."""

    base: str
    third: str
    past: str
    participle: str


def _verbs() -> Iterator[Verb]:
    irregular = [line.split() for line in _IRREGULAR_VERBS.strip().replace("\n", "|").split("|")]
    for base, past, participle in irregular:
        yield Verb(base, {"have": "has"}.get(base, _third(base)), past, participle)
    for base in set(_REGULAR.split()) - {base for base, _, _ in irregular}:
        stem = base + base[-1] if base in _DOUBLED else base.removesuffix("e")
        past = f"{base[:-1]}ied" if base.endswith("y") and base[-2] not in "aeo" else f"{stem}ed"
        yield Verb(base, _third(base), past, past)


def _third(base: str) -> str:
    if base.endswith(("s", "x", "z", "sh", "ch", "o")):
        return f"{base}es"
    return f"{base[:-1]}ies" if base.endswith("y") and base[-2] not in "aeo" else f"{base}s"


VERBS = tuple(sorted(_verbs(), key=lambda verb: verb.base))
BY_BASE = {verb.base: verb for verb in VERBS}
BY_THIRD = {verb.third: verb for verb in VERBS}
BY_PAST = {verb.past: verb for verb in VERBS}
BY_PARTICIPLE = {verb.participle: verb for verb in VERBS}

NOUN_OR_VERB = _words("""
bases calls changes charges checks claims cooks copies costs counts covers cuts displays draws drives dyes ends fields fills
fines fires fits finishes gains grants guards handles hands houses increases issues joins labels leaves licences limits links
lists loads locks marks matches measures moves names needs notes numbers offers orders paints parks passes permits picks
places plans plants plays posts presents prices prints processes records refunds registers releases rents repairs reports
requests returns reviews rewards rises rolls runs schedules sentences services sets shelves ships shows signs stamps stands
starts stays stocks stops stores studies supplies supports tests ties totals trains transfers transports travels treats turns
updates uses values visits waits walks warns washes works
""")
"""Forms that are both a plural noun and a verb: "the store plans …", "plans are …"."""

PHRASE_STOPS = _words("""
a about across after along an and around as at away because before behind between beyond but by daily each every for from if
in inside into long monthly near off on onto or out outside over per plus since than the through throughout to together
toward towards under unless until up upon weekly when where which while who with within without yearly
""") | {"of"}
"""Words that end a noun phrase (callers treat "of" specially)."""

PLURALS_WITHOUT_S = _words("cattle children cm feet fish kg km men mm pence people sheep staff women")

LOCATION_VERBS = _words("""
allow base be begin belong bury build display end find fit fix hand hang hold house install keep lie live locate lock make meet
park permit place play post record register repair serve shelve sit situate stand start stay store teach test train wear work
""")
"""Verbs whose place can be asked for with "where"."""

TRANSFER_VERBS = _words(
    "address apply deliver give go hand pass pay present refer report return send show speak submit"
)
"""Verbs whose recipient can be asked for with "to whom"."""

PLACES = _words("""
archive attic bank barn basement bay bench block board box building cabinet canteen cellar centre coast corner corridor
cottage counter court cupboard depot desk door drawer east edge entrance factory farm field file floor folder foyer gallery
garage garden gate gatehouse green ground hall harbour hill hook house intranet island kitchen lane library lobby locker lodge magazine mill
north noticeboard office park path pier porch port quarry quay rack reception river road roof room safe school shed shelf shelter shop
side south square stairs station store street studio tower town tunnel tunnels valley vault village wall ward warehouse
website west wharf workshop yard
""")
"""Nouns for places."""

ROLES = _words("""
adviser agent apprentice assistant baker barber captain chair chairman chairwoman chief clerk contact controller cooper coordinator
cook deputy driver employee gardener porter fire-warden first-aider foreman forewoman guard head lead leader mentor nurse officer owner receptionist
representative secretary shopkeeper skipper specialist steward storekeeper supervisor technician trainee treasurer trustee
warden
""")
"""Nouns for occupations, in addition to those in PEOPLE."""

MODALS, BE = _words("can may must will shall should"), _words("is are was were")
AUXILIARIES = MODALS | BE | {"has", "have", "had"}
ADVERBS = _words("also always currently generally normally now still usually")
"""Adverbs next to a verb; a question may omit them."""

LINKS = _words("after and at before between by during for from in on or other to under with within without")
"""Words that may link the nouns of a subject."""
NO_SUBJECT = (
    _words("""
another anyone as because both but either even few he her here his how however i if it its many most my neither no nobody none nor
not nothing one only others our please several she since so some such that their then there these they this those though unless
until we what when where while who whoever why you your although once
""")
    | LINKS
)
"""Words that cannot begin a subject that names something."""

NO_AGENT = _words("acclamation age beginning close end hand law majority means middle post start time vote way")
"""Nouns that follow "by" but are not agents."""
TIME_UNITS = _words("days hours minutes months nights seconds weeks years")

INTRANSITIVE = _words("""
appear arrive become begin belong burn close come continue die end expire fall finish fly go happen hang join last leave lie live
meet move open pass play resign retire return rise run sail serve sing sit speak stand start stay stop study teach train travel work
""")
"""Verbs that need no object."""

INANIMATE = _words("""
bridge canal earthquake ferry fire flood gale landslip line machine path railway river road storm street train tramway tunnel wall
""")
"""Nouns for agents that are not people."""
