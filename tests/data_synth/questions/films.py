"""Documents that name one another, few enough for their questions to be worked out by hand."""

from graph.types import Document

FILMS = [
    Document("hawk", "The Saddle Hawk", "The Saddle Hawk is a lost 1925 western film directed by Edward Lorne."),
    Document("lorne", "Edward Lorne", "Edward Lorne (7 November 1889 – 3 May 1953) was an American film director."),
    Document(
        "night", "Night Ferry", "Night Ferry is a 1931 crime film directed by Mara Quill and starring Otto Brandt."
    ),
    Document("quill", "Mara Quill", "Mara Quill (2 June 1901 – 9 August 1980) was a Dutch director."),
    Document("tide", "Low Tide", "Low Tide is a 1940 drama film written by Otto Brandt."),
    Document("yard", "Marlow Yard", "The Marlow Yard was founded in 1880. It stands in Port Ellery."),
    Document("mill", "Tarn Mill", "Tarn Mill was founded in 1795. It stands in Tarn, a village of no fame."),
]
TOGETHER = 7
"""A seed that puts all documents except the yard into one split."""
