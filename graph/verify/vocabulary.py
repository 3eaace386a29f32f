"""English words that decide what a sentence says, or say nothing by themselves."""

_FUNCTION = """
a about after all also among an and any are as at be because been before being between both but by can could did do
does during each for from had has have he her here hers him his how if in into is it its itself may might more most
much must of on only or other others our over own same shall she should since so some such than that the their theirs
them then there these they this those through to too under until up was we were what when where which while who whom
whose why will with within would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION.split())
_NEGATORS = """
not no never without neither nor none nobody nothing cannot hardly fail failed fails lack lacks lacked
"""
NEGATORS = frozenset(_NEGATORS.split())
_PAIRS = """
increase decrease, increased decreased, increases decreases, increasing decreasing, higher lower, highest lowest, high low, more less,
more fewer, most least, before after, first last, earlier later, early late, larger smaller, largest smallest, large small, greater less,
longer shorter, long short, older younger, oldest youngest, old new, positive negative, better worse, best worst, improved worsened,
above below, northern southern, north south, eastern western, east west, won lost, wins loses, opened closed, opens closes, born died,
same different, similar different, common rare, effective ineffective, significant insignificant, significantly insignificantly, many few,
all none, beginning end, began ended, begins ends, reduced raised, safe unsafe, male female, men women, man woman, brother sister,
father mother, son daughter, husband wife, king queen, left right, top bottom, inside outside, success failure, succeeded failed,
gained lost, rose fell, strong weak, fast slow, heavy light, hot cold, public private, morning evening, day night, summer winter,
buys sells, bought sold, arrived left, accepted rejected, allowed forbidden, built destroyed, enemy friend
"""


def _opposites() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for pair in _PAIRS.split(","):
        first, second = pair.split()
        found.setdefault(first, set()).add(second)
        found.setdefault(second, set()).add(first)
    return {word: frozenset(others) for word, others in found.items()}


OPPOSITES = _opposites()
"""A word to the words that deny it."""
