"""Two small coherent corpora that several tests share."""

from graph.types import Document

ISLES = [
    Document(
        "lantern", "Lantern (ferry)", "The Lantern is a ferry of Port Ellery. She was built in 1911 by the Marlow Yard."
    ),
    Document("marlow", "Marlow Yard", "The Marlow Yard stands in Quill. It was founded by Ada Marlow in 1880."),
    Document("ada", "Ada Marlow", "Ada Marlow was a shipwright. She was born in Tarn and died on 4 May 1931."),
    Document("tarn", "Tarn", "Tarn is a village of 312 people. Its church bell rings at 10:30 every morning."),
    Document(
        "bread", "Kelp bread", "Kelp bread is baked in Tarn from barley flour and dried kelp. It keeps for nine days."
    ),
]


def guild_documents() -> list[Document]:
    """Five guilds of eight members each; a member's page names the guild, its hall and another member."""
    guilds = ["Netmakers", "Saltboilers", "Bellfounders", "Kelpburners", "Ropewalkers"]
    return [
        Document(
            f"{guild.casefold()}-{n}",
            f"Member {guild}{n}",
            f"Member {guild}{n} joined the {guild} Guild in {1700 + n}. The {guild} Guild meets in {guild} Hall. "
            f"Member {guild}{n} taught Member {guild}{(n + 1) % 8}. The islands honour Member {guild}{n}.",
        )
        for guild in guilds
        for n in range(8)
    ]
