"""Made-up documents with a table, and questions over them: public reading sets have hardly any tables, but users' documents have many.

`_KIND_LINES` describes the tables: what a row is about, and columns with the values and questions that suit them. The questions ask for a cell, for the row
of a given cell, for the row with the largest or smallest number, or for that of two rows with the larger number. Some documents have a second edition
with other values, so that only the year distinguishes the two. Some tables lack a column: questions about that column cannot be answered, except one
whose answer may be in a sentence below the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from data_synth.questions.tables import name_of
from data_synth.reading.sets import ReadingQuestion, ReadingSet
from graph.types import Excerpt

_KIND_LINES = """\
locomotive|Engines of the {place} Railway|engine
 ~Wheels:0-6-0,2-6-2,4-4-0,2-8-0,4-6-2,0-4-0?What wheels does the {key} have?What is the wheel arrangement of the {key}
 ~Built:year 1840 1959?When was the {key} built?In which year was the {key} built!is the oldest>is the newest
 Weight (t):number 12 140?How heavy is the {key}>is the heaviest!is the lightest^heavier
 Top speed:measure 30 190 km/h?How fast does the {key} go?What is the top speed of the {key}>is the fastest!is the slowest^faster
 Driver:person?Who drives the {key}?Who is the driver of the {key}
 Depot:place?Where is the {key} stationed?Which depot does the {key} belong to
departure|Departures from {place}|place
 ~Line:code?Which line goes to {key}
 ~First:time?When does the first bus to {key} leave?At what time does the first departure for {key} leave!has the earliest first bus
 ~Last:time?When does the last bus to {key} leave?At what time does the last departure for {key} leave>has the latest last bus
 ~Minutes:number 9 140?How long does the ride to {key} take>takes the longest to reach!is the quickest to reach
 Platform:number 1 19?From which platform do buses to {key} leave
 Fare:money?How much is a ticket to {key}?What does the trip to {key} cost>has the highest fare!has the lowest fare
building|Listed buildings in {place}|building
 ~Built:year 1420 1990?When was {key} built?In which year was {key} built!is the oldest>is the newest^newer
 Architect:person?Who designed {key}?Who was the architect of {key}
 Height:measure 8 120 m?How tall is {key}?What height does {key} reach>is the tallest!is the lowest^taller
 Use:town hall,school,warehouse,chapel,flats,museum,bank?What is {key} used for
 ~Storeys:number 2 31?How many storeys does {key} have>has the most storeys
employee|Staff of the {place} office|person
 Department:accounts,sales,legal,purchasing,research,support,packing?In which department does {key} work?Where does {key} work
 Extension:number 1100 9800?What is {key}'s extension?On which number can {key} be reached
 Room:code?In which room does {key} sit?Where is {key}'s desk
 ~Since:year 1985 2024?Since when has {key} worked here?When did {key} join>joined last!joined first
 Deputy:person?Who stands in for {key}?Who is {key}'s deputy
product|Price list of {company}|product
 Article no.:code?What is the article number of the {key}
 Price:money?How much does the {key} cost?What is the price of the {key}>is the most expensive!is the cheapest^more expensive
 ~In stock:number 0 900?How many of the {key} are in stock>has the largest stock
 Weight (kg):decimal 0.2 48?How heavy is the {key}?What does the {key} weigh>is the heaviest!is the lightest^heavier
 Warranty:6 months,1 year,2 years,3 years,5 years,10 years?How long is the warranty of the {key}
 Supplier:company?Who supplies the {key}?Which company supplies the {key}
course|Courses of {place} College|course
 Teacher:person?Who teaches {key}?Who gives the course on {key}
 Day:weekday?On which day is {key}?When does {key} meet
 ~Starts at:time?At what time does {key} start
 Room:code?In which room is {key} held?Where does {key} take place
 ~Places:number 6 60?How many places does {key} have>has the most places!has the fewest places
 Fee:money?What does {key} cost?How much is the fee for {key}>is the most expensive!is the cheapest
mountain|Summits of the {place} Range|mountain
 Height (m):number 480 4900?How high is {key}?What is the height of {key}>is the highest!is the lowest^higher
 ~First ascent:year 1786 1975?When was {key} first climbed>was climbed last!was climbed first
 ~Climbed by:person?Who was the first to climb {key}?Who first climbed {key}
 Hut:building?Which hut is used for {key}
river|Rivers of {place}|river
 Length:measure 11 900 km?How long is the {key}>is the longest!is the shortest^longer
 Source:mountain?Where does the {key} rise?What is the source of the {key}
 Mouth:place?Where does the {key} reach the sea?Where does the {key} end
 ~Bridges:number 1 44?How many bridges cross the {key}>has the most bridges
town|Towns of {place} County|place
 Population:big 900 240000?How many people live in {key}?What is the population of {key}>has the most inhabitants!has the fewest inhabitants^larger
 Area (km²):decimal 2 190?What is the area of {key}?How large is {key}>has the largest area
 Mayor:person?Who is the mayor of {key}
 Market day:weekday?On which day is the market in {key}?When is market day in {key}
 Twin town:place?What is {key}'s twin town?With which town is {key} twinned
match|Results of the {place} Cup|year 1931 2022
 Winner:club?Who won in {key}?Which club won the cup in {key}
 Runner-up:club?Who lost the final of {key}?Who was the runner-up in {key}
 Score:score?What was the score in {key}?How did the final of {key} end
 Attendance:big 800 64000?How many people watched the final of {key}>had the largest crowd!had the smallest crowd
 Ground:building?Where was the final of {key} played
club|Table of the {place} League|club
 ~Played:number 18 40?How many games has {key} played
 ~Won:number 2 29?How many games did {key} win>won the most games!won the fewest games
 ~Points:number 9 88?How many points does {key} have>has the most points!has the fewest points
 ~Goals:number 11 91?How many goals did {key} score>scored the most goals
 Captain:person?Who is the captain of {key}?Who captains {key}
option|Settings of {company} Backup|option
 Default:number 1 600?What is the default of {key}?Which value does {key} have by default
 ~Unit:seconds,minutes,MB,GB,percent,retries,files?In which unit is {key} given?What is the unit of {key}
 ~Since version:version?Which version introduced {key}?In which version did {key} appear
 ~Restart:required,not required?Is a restart required after a change of {key}
error|Error codes of the {company} pump|error
 Meaning:filter blocked,motor too hot,no water,door open,sensor defective,low voltage,valve stuck,tank empty?What does error {key} mean?What is the meaning of {key}
 ~Remedy:clean the filter,let it cool for an hour,open the tap,close the door,call the service,check the cable,fill the tank?What should I do when {key} is shown?What helps against {key}
 Lamp:red,yellow,green,blue,red and flashing?Which lamp is lit with {key}
medicine|Stock of the {place} pharmacy|medicine
 Dose:measure 2 800 mg?What is the dose of {key}
 ~Times a day:number 1 6?How often is {key} taken a day
 Maker:company?Who makes {key}?Which company makes {key}
 ~Expires:month?When does {key} expire?Until when can {key} be used
 Shelf:code?On which shelf is {key}?Where is {key} stored
sample|Readings at the {place} station|code
 Depth (m):number 1 900?At what depth was {key} taken?From what depth is {key}>was taken deepest
 Temperature (°C):decimal 0.5 71?What was the temperature of {key}?How warm was {key}>was the warmest!was the coldest
 Salinity:decimal 1 38?What was the salinity of {key}>was the saltiest
 ~Taken by:person?Who took {key}
 Date:date?When was {key} taken?On which date was {key} taken
invoice|Invoices of {company}|code
 Customer:company?Who is the customer of invoice {key}?To whom was {key} sent
 Amount:money?What is the amount of invoice {key}?How much is due on {key}>is the largest!is the smallest
 ~Due:date?When is invoice {key} due
 ~Paid on:date?When was invoice {key} paid
 Clerk:person?Who handles invoice {key}
budget|Budget of {place}|budget
 ~Planned:money?How much was planned for {key}>has the largest plan
 ~Spent:money?How much was spent on {key}>cost the most!cost the least
 ~Responsible:person?Who is responsible for {key}
 ~Approved:date?When was the money for {key} approved
book|New in the {place} library|book
 Author:person?Who wrote “{key}”?Who is the author of “{key}”
 Year:year 1790 2024?When was “{key}” published?In which year did “{key}” appear>is the newest!is the oldest
 ~Pages:number 64 1180?How many pages does “{key}” have>is the longest!is the shortest
 Shelf mark:code?What is the shelf mark of “{key}”?Where is “{key}” shelved
 ~Copies:number 1 14?How many copies of “{key}” are there
release|Releases of {company} Studio|version
 Date:date?When was version {key} released?When did {key} come out
 Code name:mountain?What is the code name of {key}?What is version {key} called
 Size:measure 18 960 MB?How large is version {key}>is the largest!is the smallest
 ~Fixed bugs:number 3 260?How many bugs were fixed in {key}>fixed the most bugs
plant|Nursery list of {company}|plant
 Height:measure 10 900 cm?How tall does {key} grow>grows tallest!stays smallest^taller
 ~Flowers:month?When does {key} flower?In which month does {key} flower
 Colour:white,pink,red,yellow,blue,purple,orange?What colour are the flowers of {key}
 Soil:dry,moist,sandy,chalky,heavy,acid?What soil does {key} need?Which soil suits {key}
 Price:money?What does {key} cost?How much is {key}>is the dearest!is the cheapest
planet|Worlds of the {place} system|mountain
 Diameter (km):big 1900 150000?What is the diameter of {key}?How large is {key}>is the largest!is the smallest^larger
 ~Moons:number 0 79?How many moons does {key} have>has the most moons
 Day:measure 5 900 hours?How long is a day on {key}>has the longest day!has the shortest day
 ~Discovered by:person?Who discovered {key}
room|Rooms of the {place} Hotel|room
 ~Guests:number 1 12?How many guests can stay in the {key}?For how many people is the {key}>holds the most guests
 Floor:ground floor,first floor,second floor,third floor,attic,basement?On which floor is the {key}
 Price:money?What does the {key} cost per night?How much is a night in the {key}>is the most expensive!is the cheapest
 View:the harbour,the garden,the courtyard,the lake,the street,the hills?What does one see from the {key}?What view does the {key} have
meeting|Calendar of the {place} Society|event
 Date:date?When is the {key}?On which date is the {key}
 ~Place:building?Where is the {key}?Where does the {key} take place
 ~Starts:time?At what time does the {key} start?When does the {key} begin
 Speaker:person?Who speaks at the {key}
 ~Tickets:number 30 900?How many tickets are there for the {key}>has the most tickets
recipe|Baking times at {company}|food
 ~Minutes:number 6 140?How long is {key} baked?How many minutes does {key} need>takes the longest!is done first
 Oven (°C):number 110 290?At what temperature is {key} baked?How hot is the oven for {key}>needs the hottest oven
 ~Flour (g):number 80 2400?How much flour does {key} need>needs the most flour
 ~Serves:number 2 24?How many people does {key} serve
train|Trains of {place} Junction|route
 Departures:times?At what times does the {0} leave {1} for {2}?When does the {0} go from {1} to {2}?What are the departures of the {0} from {1} to {2}
 ~Minutes:number 9 190?How long does the {0} take from {1} to {2}?How many minutes is the {0} under way from {1} to {2}
 Fare:money?What does a ticket for the {0} from {1} to {2} cost?How much is the {0} from {1} to {2}
 ~Days:daily,weekdays,Sundays,Saturdays,not on Mondays,summer only?On which days does the {0} go from {1} to {2}
month|Rain in {place} County in millimetres|month
 place:number 2 240?How much rain fell in {column} in {key}?How many millimetres of rain did {column} have in {key}>was the wettest in {column}!was the driest in {column}
year|Sales of {company} by branch|year 1990 2024
 place:big 900 980000?How much did the branch in {column} sell in {key}?What were the sales in {column} in {key}>was the best for {column}!was the worst for {column}
year|Prizes of the {place} Show|year 1920 2024
 First prize:person?Who won the first prize in {key}?Who came first in {key}
 Second prize:person?Who won the second prize in {key}?Who came second in {key}
 ~Entries:number 8 300?How many entries were there in {key}>had the most entries
 Judge:person?Who was the judge in {key}
feature|Plans of {company}|feature
 plan:measure 1 500 units?What does the {column} plan include for {key}?What is the limit on {key} in the {column} plan
country|Members of the {place} Union|country
 Capital:place?What is the capital of {key}
 Currency:tallen,crown,florin,mark,pound,dinar,shilling?What is the currency of {key}?What do people pay with in {key}
 ~Joined:year 1949 2013?When did {key} join?In which year did {key} become a member>joined last!joined first
 ~Votes:number 2 31?How many votes does {key} have>has the most votes!has the fewest votes
 ~Inhabitants (millions):decimal 0.3 92?How many inhabitants does {key} have>has the most inhabitants
"""
"""Per kind: "noun|title|values of the first column", then its columns: "header:values", questions after "?", and how to ask for the row with the
largest (">") or smallest ("!") number and for the larger of two ("^"). Values are a list, a key of `_VALUES` or `_WORDS`, or a
kind of number with its range. "~" marks a header that does not fit "What is the … of …?"; a header that names a kind of value stands for several
columns; a route fills the first three columns."""

_WORD_LISTS = """\
syllable: ar, bel, bor, bran, cal, cor, dal, den, dor, el, fen, gar, gil, hal, har, hol, is, jar, kel, kir, lam, lor, mar, mel, mor, nar, nor, ol, or,
 pel, quin, ran, ros, sal, sel, tam, tar, tor, ul, val, ven, wel, wes, yar, zel
ending: a, an, by, dale, den, don, ed, er, ford, ham, ia, ick, in, land, ley, low, mere, mont, ness, on, ow, stead, ton, um, wick, wood
first name: Ada, Ahmed, Alice, Amir, Anna, Ben, Bram, Carla, Chen, Clara, Daniel, Dora, Elena, Elias, Emma, Farid, Felix, Greta, Hanna, Hugo, Ines,
 Ivan, Jonas, Judith, Karim, Lena, Lucas, Maria, Marta, Miguel, Nadia, Nils, Nora, Olga, Omar, Paul, Petra, Priya, Rosa, Samuel, Sara, Tomas, Vera,
 Viktor, Wanda, Yusuf
team: Rovers, United, Athletic, Wanderers, Town, Albion, Harriers, Rangers
house: Hall, House, Court, Tower, Chapel, Mill, Lodge, Arcade, Theatre, Library, Hut
firm: & Sons, Ltd, Works, Trading, Foods, Brothers, Instruments, Group
month: January, February, March, April, May, June, July, August, September, October, November, December
weekday: Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday
engine: Aurora, Concordia, Endeavour, Marigold, Meridian, Tempest, Vigilant, Wanderer, Thistle, Goliath, Duchess, Swift, Sirius, Bulldog, Rocket,
 Vulcan, Minerva, Badger
product: drill, kettle, lamp, ladder, saw, pump, heater, chair, desk, printer, scanner, router, blender, toaster, vacuum cleaner, drone, camera, tent,
 scale, fan
course: Pottery, Beginners' Italian, Bookkeeping, Watercolours, First Aid, Welding, Creative Writing, Chess, Yoga, Photography, Statistics, Bread
 Baking, Sign Language, Beekeeping, Guitar
option: retry_limit, cache_size, max_threads, keep_days, timeout, chunk_size, log_level, sync_interval, upload_rate, buffer_size, scan_depth,
 idle_wait, page_size, queue_length
error: E01, E02, E03, E07, E11, E12, E17, E21, E24, E30, F1, F3, F5, F8, H2, H4, H9
medicine: Alvorin, Betalan, Cordivex, Dolexin, Ergamol, Fenotril, Gastrane, Histavon, Ibralen, Kalmirin, Lumetan, Nervalis, Oxitrol, Pulmadex,
 Somnavit
budget: road repairs, street lighting, the library, the swimming pool, parks, school meals, snow clearing, the fire brigade, rents, salaries,
 software, travel, training, insurance, the canteen
book: The Salt Road, A Winter Crossing, Letters to Nobody, The Glass Orchard, Nine Lanterns, The Quiet Engine, Maps of Rain, Under the Viaduct, The
 Last Ferryman, Ashes and Honey, A House of Clocks, The Copper Bird, North of Sleep
plant: lavender, foxglove, peony, sage, catmint, hosta, yarrow, columbine, iris, larkspur, lupin, mallow, primrose, sea holly, stonecrop, thrift,
 tansy
room: Rose Room, Captain's Cabin, Garden Suite, Tower Room, Blue Room, Attic Studio, Family Room, Harbour Suite, Library Room, Orchard Room, Bridal
 Suite
event: annual meeting, spring concert, book fair, flower show, harvest supper, quiz night, lantern walk, chess evening, open day, charity run, film
 night, choir festival, winter ball
feature: storage, users, projects, backups, support hours, reports, messages, exports, guests, calls
plan: Basic, Standard, Pro, Team, Business, Free, Premium
food: rye bread, apple pie, shortbread, onion tart, ginger cake, plum crumble, oat biscuits, cheese straws, walnut loaf, lemon sponge, meringue, fish
 pie, corn bread
"""
"""The words that values are made of."""
_WORDS = {
    name: " ".join(words.split()).split(", ")
    for name, _, words in (line.partition(": ") for line in re.split(r"\n(?=\S)", _WORD_LISTS))
}
_INTRODUCTIONS = (
    "The table below was drawn up for the board.",
    "All figures were checked by two people. Corrections go to the secretary in writing.",
    "This list replaces the one on the notice board, which some may still remember.",
    "Entries are in no particular order. Where nothing was known, nothing was written.",
    "Please read the notes at the end before you ring the office.",
    "",
)
_ENDINGS = (
    "Errors should be reported at the front desk.",
    "Later changes are not included.",
    "The next list will appear in spring.",
    "",
)
_EDITIONS = ("in {year}", "in the list of {year}", "according to the {year} edition")
_NAMING = ("{question} in “{title}”{mark}", "{question} according to “{title}”{mark}", "{title}: {question}{mark}")
_INVENTED = frozenset(
    ["place", "person", "company", "building", "mountain", "river", "country", "club", "code", "product", "route"]
)
"""Kinds of values of which hardly any occurs in two documents."""
_BY_CELL = ("Which {noun} has the {header} {value}?", "For which {noun} is the {header} {value}?")
_GENERAL = (
    "What is the {header} of {key}?",
    "What {header} is given for {key}?",
    "{key}: what is the {header}?",
    "Tell me the {header} of {key}.",
)


def _name(rng: Random) -> str:
    middle = rng.choice(_WORDS["syllable"]) if rng.random() < 0.3 else ""
    return f"{rng.choice(_WORDS['syllable'])}{middle}{rng.choice(_WORDS['ending'])}".capitalize()


_VALUES: Mapping[str, Callable[[Random], str]] = {
    "place": lambda rng: rng.choice(("{}", "{}", "{}", "Port {}", "Upper {}", "{} Bay")).format(_name(rng)),
    "person": lambda rng: f"{rng.choice(_WORDS['first name'])} {_name(rng)}",
    "company": lambda rng: f"{_name(rng)} {rng.choice(_WORDS['firm'])}",
    "building": lambda rng: f"{_name(rng)} {rng.choice(_WORDS['house'])}",
    "mountain": lambda rng: rng.choice(("Mount {}", "{} Peak", "{}", "{} Horn")).format(_name(rng)),
    "river": lambda rng: rng.choice(("River {}", "{}", "{} Brook")).format(_name(rng)),
    "country": _name,
    "club": lambda rng: f"{_name(rng)} {rng.choice(_WORDS['team'])}",
    "time": lambda rng: f"{rng.randint(5, 23):02}:{rng.randrange(0, 60, 5):02}",
    "date": lambda rng: f"{rng.randint(1, 28)} {rng.choice(_WORDS['month'])} {rng.randint(1950, 2025)}",
    "code": lambda rng: f"{rng.choice('ABCDEFGHKLMNPRSTW')}{rng.choice(('', '-', ''))}{rng.randint(2, 399)}",
    "version": lambda rng: f"{rng.randint(1, 9)}.{rng.randint(0, 19)}",
    "score": lambda rng: f"{rng.randint(1, 7)}–{rng.randint(0, 5)}",
    "money": lambda rng: f"{rng.randint(2, 990)}.{rng.choice(('00', '50', '90', '25', '40'))}",
    "route": lambda rng: f"{rng.choice(_WORDS['engine'])} | {_name(rng)} | {_name(rng)}",
    "times": lambda rng: ", ".join(sorted({_VALUES["time"](rng) for _ in range(rng.randint(1, 4))})),
    "product": lambda rng: f"{_name(rng)} {rng.choice(_WORDS['product'])}",
}
"""The kinds of values without arguments. `year`, `number`, `big`, `decimal` and `measure` have a smallest and a largest number, and `measure` a unit."""


def _value(kind: str, rng: Random) -> str:
    """A random value of a kind, which is written as in `_KIND_LINES`."""
    if kind in _VALUES:
        return _VALUES[kind](rng)
    if kind in _WORDS:
        return rng.choice(_WORDS[kind])
    if "," in kind:
        return rng.choice(kind.split(","))
    name, low, high, *unit = kind.split()
    if name == "decimal":
        return f"{rng.uniform(float(low), float(high)):.1f}"
    number = rng.randint(int(low), int(high))
    return f"{number:,}" if name == "big" else " ".join([str(number), *unit])


def _number(cell: str) -> float:
    """The number at the start of a cell; for a time, the minutes since midnight.

    >>> _number("1,904"), _number("38 m"), _number("10:30")
    (1904.0, 38.0, 630.0)
    """
    first = cell.split()[0].replace(",", "")
    hours, _, minutes = first.partition(":")
    return float(hours) * 60 + float(minutes) if minutes else float(first)


@dataclass(frozen=True)
class _Column:
    header: str
    values: str
    questions: tuple[str, ...]
    phrases: Mapping[str, str]
    """How to ask for the row with the largest (">") and smallest ("!") number, and for the larger of two ("^")."""
    is_noun: bool

    @property
    def name(self) -> str:
        """The header as a question names it."""
        return name_of(self.header)

    def with_header(self, name: str) -> _Column:
        """The column with the header `name`, one of those that this header stands for; this header names a kind of value."""
        questions = tuple(text.replace("{column}", name) for text in self.questions)
        phrases = {mark: text.replace("{column}", name) for mark, text in self.phrases.items()}
        return _Column(name, self.values, questions, phrases, is_noun=False)


@dataclass(frozen=True)
class _Kind:
    noun: str
    title: str
    keys: str
    columns: tuple[_Column, ...]

    @property
    def header(self) -> str:
        """The header of the first column; of the first three, if a row is a route."""
        return self.noun.capitalize() + (" | From | To" if self.keys == "route" else "")


def _read_kinds(text: str) -> list[_Kind]:
    kinds: list[_Kind] = []
    for kind in re.split(r"\n(?=\S)", text.strip()):
        first, *lines = kind.split("\n")
        noun, title, keys = first.split("|")
        kinds.append(_Kind(noun, title, keys, tuple(map(_read_column, lines))))
    return kinds


def _read_column(line: str) -> _Column:
    header, _, rest = line.strip().partition(":")
    values, *pieces = re.split(r"(?=[?>!^])", rest)
    questions = tuple(f"{piece[1:]}?" for piece in pieces if piece[0] == "?")
    phrases = {piece[0]: piece[1:] for piece in pieces if piece[0] != "?"}
    return _Column(header.lstrip("~"), values, questions, phrases, is_noun=not header.startswith("~"))


_KINDS = _read_kinds(_KIND_LINES)


@dataclass(frozen=True)
class _Table:
    """A document with one table. A sentence may state a value of `hidden`, a column that the table does not have."""

    id: str
    title: str
    kind: _Kind
    columns: tuple[_Column, ...]
    cells: Mapping[str, Sequence[str]]
    """The cells of each key, in the order of `columns`."""
    hidden: _Column | None
    stated: tuple[str, str] | None
    """A key, and its value of `hidden`."""
    edition: str
    """How a question names the document, if there are two editions; else ""."""

    def row(self, key: str) -> str:
        """The table row of a key, in Markdown."""
        return f"| {' | '.join([key, *self.cells[key]])} |"

    @property
    def sentence(self) -> str:
        """The sentence below the table that states a value of `hidden`; "" if none does."""
        if not (self.hidden and self.stated):
            return ""
        key, value = self.stated
        key = key.replace(" | ", " from ", 1).replace(" | ", " to ")  # a route
        return f"The {self.hidden.name} of {key} is {value}."

    def excerpt(self, rng: Random) -> Excerpt:
        """The document: an introduction, the table, and a last sentence; introduction and last sentence may be missing."""
        header = f"| {' | '.join([self.kind.header, *(column.header for column in self.columns)])} |"
        table = "\n".join([header, "|---" * header.count(" | ") + "|---|", *map(self.row, self.cells)])
        ending = rng.choice(_ENDINGS)
        parts = (rng.choice(_INTRODUCTIONS), table, self.sentence or ending)
        return Excerpt(self.id, self.title, "\n\n".join(filter(None, parts)))


def made_tables(count: int, seed: int) -> ReadingSet:
    """A reading set of `count` made-up documents (or one more), each with a table and up to ten questions about it."""
    rng = Random(seed)
    passages: dict[str, Excerpt] = {}
    questions: list[ReadingQuestion] = []
    while len(passages) < count:
        editions = _editions(f"table-{len(passages)}", rng)
        ids = tuple(table.id for table in editions)
        passages |= {table.id: table.excerpt(rng) for table in editions}
        for table in editions:
            by_text = {question.text: question for question in _questions(table, rng)}
            chosen = rng.sample(list(by_text.values()), min(10, len(by_text)))
            questions += [replace(one, id=f"{table.id}-{n}", context_ids=ids) for n, one in enumerate(chosen)]
    return ReadingSet("tables", passages, tuple(questions))


def _editions(name: str, rng: Random) -> list[_Table]:
    """One table, or two with the same keys and columns, whose titles differ in the year."""
    kind = rng.choice(_KINDS)
    title = kind.title.format(place=_value("place", rng), company=_value("company", rng))
    keys = list(dict.fromkeys(_value(kind.keys, rng) for _ in range(40)))[: rng.randint(3, 10)]
    columns = [column for each in kind.columns for column in _expand(each, rng)]
    columns = rng.sample(columns, rng.randint(min(2, len(columns)), len(columns)))
    hidden = columns.pop() if len(columns) > 2 and columns[-1].is_noun and rng.random() < 0.5 else None
    two_editions = rng.random() < 0.35 and not kind.keys.startswith("year")
    years = rng.sample(range(1990, 2026), 2 if two_editions else 1)
    dated = two_editions or rng.random() < 0.3
    tables = []
    for year in years:
        rng.shuffle(keys)
        cells = {key: [_value(column.values, rng) for column in columns] for key in keys}
        stated = (rng.choice(keys), _value(hidden.values, rng)) if hidden and rng.random() < 0.5 else None
        edition = rng.choice(_EDITIONS).format(year=year) if two_editions else ""
        titled = f"{title}, {year}" if dated else title
        tables.append(_Table(f"{name}-{year}", titled, kind, tuple(columns), cells, hidden, stated, edition))
    return tables


def _expand(column: _Column, rng: Random) -> list[_Column]:
    """The column, or the columns that its header stands for."""
    if not column.header[0].islower():
        return [column]
    return [
        column.with_header(name) for name in dict.fromkeys(_value(column.header, rng) for _ in range(rng.randint(2, 5)))
    ]


def _questions(table: _Table, rng: Random) -> Iterator[ReadingQuestion]:
    keys = list(table.cells)
    for position, column in enumerate(table.columns):
        cell_of = {key: cells[position] for key, cells in table.cells.items()}
        for key in rng.sample(keys, min(3, len(keys))):
            yield _question(table, _cell_question(table, column, key, rng), cell_of[key], table.row(key), "cell", rng)
        other = _value(table.kind.keys, rng)
        if not any(set(key.split(" | ")) & set(other.split(" | ")) for key in keys):
            yield _question(table, _cell_question(table, column, other, rng), "", "", "unanswerable", rng)
        yield from _row_questions(table, column, cell_of, rng)
    if table.hidden and table.stated:
        key, value = table.stated
        yield _question(table, _cell_question(table, table.hidden, key, rng), value, table.sentence, "sentence", rng)
    for key in rng.sample(keys, min(2, len(keys))) if table.hidden else ():
        if table.hidden and not (table.stated and table.stated[0] == key):
            yield _question(table, _cell_question(table, table.hidden, key, rng), "", "", "unanswerable", rng)


def _row_questions(
    table: _Table, column: _Column, cell_of: Mapping[str, str], rng: Random
) -> Iterator[ReadingQuestion]:
    """The questions whose answer is in the first column."""
    key = rng.choice(list(cell_of))
    if column.is_noun and list(cell_of.values()).count(cell_of[key]) == 1 and table.kind.keys != "route":
        text = rng.choice(_BY_CELL).format(noun=table.kind.noun, header=column.name, value=cell_of[key])
        yield _question(table, text, key, table.row(key), "row", rng)
    ranked = sorted(cell_of, key=lambda key: _number(cell_of[key])) if column.phrases else []
    for mark, best, next_best in ((">", -1, -2), ("!", 0, 1)):
        if mark in column.phrases and _number(cell_of[ranked[best]]) != _number(cell_of[ranked[next_best]]):
            text = f"Which {table.kind.noun} {column.phrases[mark]}?"
            yield _question(table, text, ranked[best], table.row(ranked[best]), "largest", rng)
    if "^" in column.phrases:
        low, high = sorted(rng.sample(ranked, 2), key=lambda key: _number(cell_of[key]))
        if _number(cell_of[low]) != _number(cell_of[high]):
            first, second = rng.sample((low, high), 2)
            text = f"Which is {column.phrases['^']}, {first} or {second}?"
            yield _question(table, text, high, table.row(high), "larger", rng)


def _cell_question(table: _Table, column: _Column, key: str, rng: Random) -> str:
    templates = _GENERAL if column.is_noun and table.kind.keys != "route" and rng.random() < 0.3 else column.questions
    return rng.choice(templates).format(*key.split(" | "), key=key, header=column.name)


def _question(table: _Table, text: str, answer: str, evidence: str, kind: str, rng: Random) -> ReadingQuestion:
    """A question about a table, with the row or sentence that contains its answer; unanswerable if `answer` is empty.

    It names the document if other documents may answer it too, or the year of the document if there are two editions.
    """
    if kind == "largest" or table.kind.keys not in _INVENTED:
        text = rng.choice(_NAMING).format(question=text[:-1], mark=text[-1], title=table.title)
    elif table.edition:
        text = f"{text[:-1]} {table.edition}{text[-1]}"
    answers, gold, quotes = ((answer,), (table.id,), (evidence,)) if answer else ((), (), ())
    return ReadingQuestion("", text, answers, gold, (), quotes, kind, "train")
