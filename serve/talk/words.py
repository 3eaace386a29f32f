"""Words of English that tell whether a question leans on what was said before (standing.py)."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


AUXILIARY = _set(
    """am are be been being can could did do does had has have is may might must shall should was were will would
    can't couldn't didn't doesn't don't hadn't hasn't haven't isn't wasn't aren't weren't won't wouldn't"""
)
ASKING = _set("how what when where which who whom whose why")
ASKING_HOW = _set("how when where why")
"""Question words after which a whole question has an auxiliary."""
AMOUNTS = _set("many much")
TELLING = _set("compare describe explain find give list name say show summarise summarize tell")
PREPOSITIONS = _set(
    "about after against as at before between by during for from in into near of on over since than through to under until with without"
)
ARTICLES = _set("a an the")
SUBJECTS, OBJECTS, OWNERS = _set("he it she they"), _set("her him it them"), _set("her his its their")
POINTING = _set("that these this those")
SUBORDINATE = _set("although because if since that though until when where which while who whom whose")
CHOOSING = _set("another first last new next old other second that third this which")
"""What stands before "one" where it means one of several."""
MEASURES = _set(
    """big century cost costs date dates day days far heavy high hour hours kind large long minute minutes month months name number
    often old person people place sort tall thing things time times town week weeks year years"""
)
"""What a question asks for, and not what it asks about."""
COLLECTION = _set("collection corpus document documents index passage passages source sources text texts")
EMPTY = (
    AUXILIARY
    | ASKING
    | PREPOSITIONS
    | ARTICLES
    | SUBJECTS
    | OBJECTS
    | OWNERS
    | POINTING
    | _set(
        """above again all also and any anybody anyone anything anywhere became because become both but call called came come down each
        either else ever every everyone everything exactly few first former further get go going got great happen happened
        happens here hers himself herself i instead itself just know last later latter left less made make makes many me mean
        meant more most much my neither next no nobody none nor not nothing now off ok once one ones only or other others our out
        own please really same second see so some somebody someone something somewhere still such take taken tell theirs then
        there third though today together too two up us use used very we well went whether yes yet you your"""
    )
)
"""Words that say nothing of what is looked for."""
ENGLISH = EMPTY - _set(
    "a am an as at but come do even for had he her i in is me no once or over see so under up was we will"
)
"""Words that show that a text is English, without those that stand in other languages too."""
